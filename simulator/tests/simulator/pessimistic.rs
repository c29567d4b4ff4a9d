//! The pessimistic rule under the simulator: programs with unnamed receives with several possible messages, and sends
//! dependent on the delivery order.

use std::collections::BTreeMap;

use counterfoil_campaign::{scaled, stride};
use counterfoil_canaries::Canary as Mistake;
use counterfoil_protocols::{pessimistic, sender_based};
use counterfoil_simulator::{self as simulator, Canary, Config, Mode, Pattern, Schedule, Summary, Tier};

/// Programs without properties assumed by the rule.
fn unnamed() -> Config {
    Config { unnamed: true, ..Config::default() }
}

fn assert_no_failure(summary: &Summary) {
    if let Some(failure) = summary.failures.first() {
        panic!(
            "{} of {} fail, such as\n{}\n{}",
            summary.failed, summary.schedules, failure.schedule, failure.violation
        );
    }
}

#[test]
fn the_pessimistic_rule_survives_twenty_thousand_schedules() {
    let summary = simulator::campaign(&pessimistic::RULE, 0..scaled(20_000), &unnamed(), |_| {});
    eprintln!("{:#?}", summary.coverage);
    assert_no_failure(&summary);
    // The schedules reach the intended cases: also early messages, second recoveries, and kills during one.
    let met = &summary.coverage;
    assert!(
        met.faults > scaled(36_000)
            && met.faults_at_once > counterfoil_campaign::met(2_000)
            && met.faults_again > scaled(8_000),
        "{met:?}"
    );
    assert!(met.faults_during_recovery > scaled(6_000) && met.faults_while_writing > scaled(600), "{met:?}");
    assert!(met.restarts_from_checkpoint > scaled(8_000) && met.restarts_from_start > scaled(20_000), "{met:?}");
    assert!(met.held > scaled(10_000) && met.determinants > scaled(400_000) && met.choices == 0, "{met:?}");
    assert!(
        met.duplicates > scaled(16_000) && met.dead_messages > scaled(600) && met.dead_hellos > scaled(1_600),
        "{met:?}"
    );
    assert!(
        met.checkpoints > scaled(80_000) && met.checkpoints_refused > scaled(50) && met.freed > scaled(200_000),
        "{met:?}"
    );
}

/// The plain rule needs named calls, and the pessimistic rule is the yardstick without them: where calls aren't named,
/// a replacement takes messages in another order, and other ranks have seen the result of the first.
#[test]
fn the_plain_rule_does_not_survive_programs_that_name_nothing() {
    let config = unnamed();
    let mut found: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..2_000 {
        let schedule = config.schedule(seed, false);
        let Some(violation) = simulator::run(&sender_based::RULE, &schedule).violation else { continue };
        *found.entry(violation.kind.name()).or_default() += 1;
        // It fails for lack of names, and the receive order repairs it.
        assert!(schedule.shape.ordered, "{schedule}: {violation}");
        assert_eq!(
            simulator::run(&sender_based::RULE, &Schedule { unnamed: false, ..schedule.clone() }).violation,
            None,
            "{schedule}"
        );
        assert_eq!(simulator::run(&pessimistic::RULE, &schedule).violation, None, "{schedule}");
    }
    eprintln!("{found:?}");
    assert!(found.values().sum::<u32>() > 20, "{found:?}");
    // The replacement sends other bytes than its predecessor.
    assert!(found.keys().all(|name| ["Diverged", "Repeat", "Undone", "Cycle"].contains(name)), "{found:?}");
    assert!(found["Diverged"] > 0, "{found:?}");
}

/// The shortest case: rank 0 takes from two others in any order, sends the taken messages, and dies.
#[test]
fn the_smallest_such_schedule_fails_under_the_plain_rule_alone() {
    let config = Config { ranks: (3, 3), rounds: (1, 2), faults: (1, 1), checkpoints: false, ..unnamed() };
    let failing = |seed: &u64| simulator::run(&sender_based::RULE, &config.schedule(*seed, false)).violation.is_some();
    let schedule = config.schedule((0..5_000).find(failing).unwrap(), false);
    let small = simulator::shrink(&sender_based::RULE, &schedule, 5_000).unwrap();
    eprintln!("{}\n{}", small.violation, small.schedule);
    let again: Schedule = small.schedule.to_string().parse().unwrap();
    assert!(again.unnamed && again.faults.len() == 1, "{again}");
    assert_eq!(simulator::run(&sender_based::RULE, &again).violation, Some(small.violation));
    assert_eq!(simulator::run(&pessimistic::RULE, &again).violation, None, "{again}");
}

#[test]
fn many_ranks_and_many_faults_do_not_break_the_pessimistic_rule() {
    let config = Config { ranks: (9, 16), rounds: (1, 4), faults: (4, 12), ..unnamed() };
    assert_no_failure(&simulator::campaign(&pessimistic::RULE, 0..scaled(300), &config, |_| {}));
    let config = Config { ranks: (2, 3), rounds: (4, 8), faults: (6, 20), ..unnamed() };
    let summary = simulator::campaign(&pessimistic::RULE, 0..scaled(1_000), &config, |_| {});
    assert_no_failure(&summary);
    assert!(summary.coverage.faults_during_recovery > scaled(1_000), "{:?}", summary.coverage);
}

#[test]
fn nothing_is_left_when_nothing_fails() {
    for pattern in Pattern::ALL {
        let config = Config { patterns: vec![pattern], ranks: (2, 8), faults: (0, 0), ..unnamed() };
        let summary = simulator::campaign(&pessimistic::RULE, 0..scaled(50), &config, |_| {});
        assert_no_failure(&summary);
        let met = &summary.coverage;
        assert!(met.sends > 0 && met.determinants == met.sends && met.held == 0, "{met:?}");
    }
}

/// Kills every rank at every event in some runs, so none is left out by chance.
#[test]
fn a_rank_may_die_at_any_event() {
    for pattern in Pattern::ALL {
        let config = Config { patterns: vec![pattern], ranks: (3, 3), rounds: (2, 2), ..unnamed() };
        for tier in [Tier::Volatile, Tier::ProcessCrashSafe] {
            let mut schedule = Schedule { tier, ..config.schedule(11, false) };
            schedule.shape.checkpoint_one_in = 2;
            schedule.shape.ordered = true;
            schedule.faults.truncate(1);
            for at in (0..200).step_by(stride()) {
                for node in 0..3 {
                    schedule.faults[0].at = at;
                    schedule.faults[0].node = node;
                    assert_eq!(simulator::run(&pessimistic::RULE, &schedule).violation, None, "{schedule}");
                }
            }
        }
    }
}

/// Returns the first schedule in which the oracles find a canary's promise broken.
fn find(canary: Canary, schedules: u64) -> (u64, Schedule, &'static str) {
    let config = Config { canary: Some(canary), ..unnamed() };
    let found = (0..schedules).find_map(|seed| {
        let schedule = config.schedule(seed, false);
        let violation = simulator::run(&pessimistic::RULE, &schedule).violation?;
        Some((seed + 1, schedule, violation.kind.name()))
    });
    found.unwrap_or_else(|| panic!("{canary:?} is not found in {schedules} schedules"))
}

#[test]
fn every_canary_of_the_rule_is_found_and_its_schedule_shrinks() {
    for canary in Canary::every().filter(|&canary| canary.is_of_a_rule() && canary.applies_to(&pessimistic::RULE)) {
        let (schedules, schedule, name) = find(canary, 10_000);
        let small = simulator::shrink(&pessimistic::RULE, &schedule, 5_000).unwrap();
        eprintln!("{canary:?}: {schedules} schedules; {}\n    {}", small.violation, small.schedule);
        assert_eq!(small.violation.kind.name(), name);
        let again: Schedule = small.schedule.to_string().parse().unwrap();
        assert!(matches!(again.mode, Mode::Listed(_)) && again.faults.len() <= 2, "{again}");
        assert_eq!(simulator::run(&pessimistic::RULE, &again).violation, Some(small.violation));
        assert_eq!(simulator::run(&pessimistic::RULE, &Schedule { canary: None, ..again }).violation, None);
    }
}

/// The rule's own oracle checks the order, even where no message shows it.
#[test]
fn an_order_that_is_not_forced_is_found_in_programs_that_do_not_show_it() {
    let canary = Canary::Rule(Mistake::OrderNotForced);
    let config = Config { canary: Some(canary), ordered: false, ..unnamed() };
    let wrong = |seed| simulator::run(&pessimistic::RULE, &config.schedule(seed, false)).violation;
    let found = (0..1_000).find_map(wrong).unwrap();
    assert_eq!(found.kind.name(), "OtherOrder");
}

#[test]
fn connections_between_survivors_may_break_and_be_made_again() {
    let config = Config { faults: (1, 4), ranks: (3, 8), revoked: true, ..unnamed() };
    let summary = simulator::campaign(&pessimistic::RULE, 0..scaled(3_000), &config, |_| {});
    assert_no_failure(&summary);
    assert!(summary.coverage.reconnections > scaled(15_000), "{:?}", summary.coverage);
}

//! The plain sender-based logging rule under the simulator, and the simulator under its own planted mistakes.
//!
//! To rerun one schedule: `SIM_SCHEDULE='sim1 ...' cargo test -p counterfoil-simulator plain::a_schedule_of_the`.

use counterfoil_campaign::{scaled, stride};
use counterfoil_protocols::sender_based;
use counterfoil_simulator::{self as simulator, Canary, Config, Mode, Pattern, Schedule, Summary, Tier};

/// Fails with everything needed to rerun the first failures.
fn assert_no_failure(summary: &Summary) {
    let failures = summary.failures.iter();
    let lines: Vec<String> = failures.map(|f| format!("seed {}: {}\n  {}", f.seed, f.violation, f.schedule)).collect();
    assert!(summary.failed == 0, "{} of {}:\n{}", summary.failed, summary.schedules, lines.join("\n"));
}

#[test]
fn five_thousand_schedules_do_not_break_the_plain_rule() {
    let mut calls = 0;
    let summary = simulator::campaign(&sender_based::RULE, 0..scaled(5_000), &Config::default(), |progress| {
        calls += 1;
        assert_eq!((progress.schedules, progress.of, progress.failed), (calls, scaled(5_000), 0));
    });
    eprintln!("{:#?}", summary.coverage);
    assert_no_failure(&summary);
    assert_eq!((summary.schedules, calls), (scaled(5_000), scaled(5_000)));
    // The schedules reach the intended cases.
    let met = &summary.coverage;
    assert!(
        met.faults > scaled(9_000) && met.faults_at_once > scaled(400) && met.faults_again > scaled(2_000),
        "{met:?}"
    );
    assert!(met.faults_during_recovery > scaled(1_500) && met.faults_when_finished > scaled(200), "{met:?}");
    assert!(met.faults_while_writing > scaled(150) && met.checkpoints > scaled(20_000), "{met:?}");
    assert!(met.faults_within_events > scaled(2_000) && met.checkpoints_abandoned > scaled(800), "{met:?}");
    assert!(met.in_flight_lost > scaled(2_000) && met.in_flight_kept > scaled(500), "{met:?}");
    assert!(met.restarts_from_checkpoint > scaled(2_000) && met.restarts_from_start > scaled(5_000), "{met:?}");
    assert!(
        met.duplicates > scaled(4_000) && met.dead_messages > scaled(150) && met.dead_hellos > scaled(400),
        "{met:?}"
    );
    assert!(
        met.replayed > scaled(20_000) && met.choices_forced > scaled(4_000) && met.freed > scaled(50_000),
        "{met:?}"
    );
    assert!(met.unacknowledged > scaled(1_000), "{met:?}");
}

#[test]
fn many_ranks_and_many_faults_do_not_break_the_plain_rule() {
    let config = Config { ranks: (9, 16), rounds: (1, 4), faults: (4, 12), ..Config::default() };
    assert_no_failure(&simulator::campaign(&sender_based::RULE, 0..scaled(300), &config, |_| {}));
    let config = Config { ranks: (2, 3), rounds: (4, 8), faults: (6, 20), ..Config::default() };
    let summary = simulator::campaign(&sender_based::RULE, 0..scaled(500), &config, |_| {});
    assert_no_failure(&summary);
    assert!(summary.coverage.faults_during_recovery > scaled(500), "{:?}", summary.coverage);
}

/// A second run of any schedule has the same trace, and so has a run from its choices.
#[test]
fn a_schedule_repeats_exactly() {
    let config = Config::default();
    let mut different = std::collections::BTreeSet::new();
    for seed in 0..scaled(300) {
        let schedule = config.schedule(seed, false);
        assert_eq!(schedule, config.schedule(seed, false));
        let first = simulator::run(&sender_based::RULE, &schedule);
        assert_eq!(first, simulator::run(&sender_based::RULE, &schedule), "seed {seed}");
        let listed = Schedule { mode: Mode::Listed(first.choices.clone()), seed: 0, ..schedule };
        let read_back: Schedule = listed.to_string().parse().expect("a schedule");
        assert_eq!(read_back, listed);
        assert_eq!(first, simulator::run(&sender_based::RULE, &read_back), "seed {seed}");
        different.insert(first.fingerprint);
    }
    assert_eq!(different.len() as u64, scaled(300));
    let again = || simulator::campaign(&sender_based::RULE, 50..150, &config, |_| {}).fingerprint;
    assert_eq!(again(), again());
}

#[test]
fn every_program_ends_and_leaves_nothing_when_nothing_fails() {
    for pattern in Pattern::ALL {
        for ranks in [2, 3, 5, 8, 16, 32] {
            let config = Config { patterns: vec![pattern], ranks: (ranks, ranks), faults: (0, 0), ..Config::default() };
            let summary = simulator::campaign(&sender_based::RULE, 0..4, &config, |_| {});
            assert_no_failure(&summary);
            assert!(summary.coverage.sends > 0 && summary.coverage.duplicates == 0, "{:?}", summary.coverage);
        }
    }
}

/// Kills every rank at every event in some runs, so none is left out by chance.
#[test]
fn a_rank_may_die_at_any_event() {
    for pattern in Pattern::ALL {
        let config = Config { patterns: vec![pattern], ranks: (3, 3), rounds: (2, 2), ..Config::default() };
        for tier in [Tier::Volatile, Tier::ProcessCrashSafe] {
            let mut schedule = Schedule { tier, ..config.schedule(11, false) };
            schedule.shape.checkpoint_one_in = 2;
            schedule.faults.truncate(1);
            for at in (0..200).step_by(stride()) {
                for node in 0..3 {
                    schedule.faults[0].at = at;
                    schedule.faults[0].node = node;
                    assert_eq!(simulator::run(&sender_based::RULE, &schedule).violation, None, "{schedule}");
                }
            }
        }
    }
}

/// Returns the first failing schedule, the number of schedules up to it, and its violation's name.
fn find(canary: Canary, schedules: u64) -> (Schedule, u64, &'static str) {
    let config = Config { canary: Some(canary), ..Config::default() };
    let found = (0..schedules).find_map(|seed| {
        let schedule = config.schedule(seed, false);
        simulator::run(&sender_based::RULE, &schedule)
            .violation
            .map(|violation| (schedule, seed + 1, violation.kind.name()))
    });
    found.unwrap_or_else(|| panic!("{canary:?} is not found in {schedules} schedules"))
}

/// Prints the table in `docs/lab/simulations.md`.
#[test]
fn every_canary_is_found_and_its_schedule_shrinks() {
    let mut faults = 0;
    for canary in Canary::ALL {
        let (schedule, after, name) = find(canary, 1_000);
        eprintln!("| `{}` | {after} | `{name}` |", canary.name());
        let small = simulator::shrink(&sender_based::RULE, &schedule, 5_000).expect("it fails");
        eprintln!("{canary:?}: {}, {} runs\n    {}", small.violation, small.runs, small.schedule);
        assert_eq!(small.violation.kind.name(), name);
        // It fails in the same way when it is read back, and passes without the mistake.
        let again: Schedule = small.schedule.to_string().parse().expect("a schedule");
        assert_eq!(simulator::run(&sender_based::RULE, &again).violation, Some(small.violation.clone()));
        assert_eq!(
            simulator::run(&sender_based::RULE, &Schedule { canary: None, ..again }).violation,
            None,
            "{canary:?}"
        );
        let (before, after) = (&schedule, &small.schedule);
        assert!(after.shape.ranks <= 3 && after.shape.rounds <= before.shape.rounds, "{canary:?}: {after}");
        assert!(after.faults.len() <= before.faults.len(), "{canary:?}: {after}");
        faults += after.faults.len();
        let Mode::Listed(choices) = &after.mode else { panic!("{canary:?}: {after}") };
        let special = choices.iter().filter(|&&choice| choice > 0).count();
        assert!(special <= 16, "{canary:?}: {after}");
    }
    assert!(faults <= 12, "{faults} faults for {} canaries", Canary::ALL.len());
}

#[test]
fn a_log_has_the_events_of_a_run() {
    let schedule = find(Canary::DeliverDuplicate, 1_000).0;
    let (outcome, story) = simulator::transcript(&sender_based::RULE, &schedule);
    assert_eq!(outcome, simulator::run(&sender_based::RULE, &schedule));
    let last = story.last().expect("a line");
    assert!(last.contains("Accepted"), "{last}");
    assert_eq!(story.iter().filter(|line| line.contains("Killed")).count() as u64, outcome.coverage.faults);
}

#[test]
fn a_schedule_that_does_not_fail_does_not_shrink() {
    assert_eq!(simulator::shrink(&sender_based::RULE, &Config::default().schedule(1, false), 100), None);
}

/// Runs a schedule from the environment, if there is one, to look into a failure.
#[test]
fn a_schedule_of_the_environment_does_not_fail() {
    let line = std::env::var("SIM_SCHEDULE").unwrap_or_else(|_| Config::default().schedule(3, false).to_string());
    let schedule: Schedule = line.parse().expect("a schedule");
    let outcome = simulator::run(&sender_based::RULE, &schedule);
    assert_eq!(outcome.violation, None, "{:#?}", outcome.coverage);
}

/// MPI job repair by revocation breaks all connections. With a log beginning a replay one record too late, the campaign
/// fails.
#[test]
fn connections_between_survivors_may_break_and_be_made_again() {
    let config = Config { faults: (1, 4), ranks: (3, 8), revoked: true, ..Config::default() };
    let summary = simulator::campaign(&sender_based::RULE, 0..scaled(3_000), &config, |_| {});
    assert_no_failure(&summary);
    let met = &summary.coverage;
    assert!(met.reconnections > scaled(15_000) && met.in_flight_lost > scaled(4_000), "{met:?}");
    let config = Config { canary: Some(Canary::SkipOne), ..config };
    assert!(simulator::campaign(&sender_based::RULE, 0..scaled(300).max(50), &config, |_| {}).failed > 0);
}

//! The user-level rule under the simulator: programs with collective calls, and messages overtaking each other.

use counterfoil_campaign::{percent, scaled, stride};
use counterfoil_protocols::user_level;
use counterfoil_simulator::{self as simulator, Canary, Config, Coverage, Mode, Pattern, Schedule, Summary, Tier};

/// All programs, half of them with collective calls; messages overtake each other in half the schedules.
fn all() -> Config {
    Config { patterns: Pattern::of(&user_level::RULE), overtaking: true, ..Config::default() }
}

/// Programs with collective calls.
fn calls() -> Config {
    Config { patterns: vec![Pattern::Calls], rounds: (1, 6), faults: (1, 5), ..all() }
}

/// Runs schedules, all of which must succeed; returns their counters.
fn right(schedules: u64, config: &Config) -> Coverage {
    let summary: Summary = simulator::campaign(&user_level::RULE, 0..scaled(schedules), config, |_| {});
    let lines = summary.failures.iter().map(|f| format!("seed {}: {}\n  {}", f.seed, f.violation, f.schedule));
    let lines: Vec<String> = lines.collect();
    assert!(summary.failed == 0, "{} of {}:\n{}", summary.failed, summary.schedules, lines.join("\n"));
    eprintln!("{:#?}", summary.coverage);
    summary.coverage
}

#[test]
fn five_thousand_schedules_do_not_break_the_user_level_rule() {
    let met = right(5_000, &all());
    assert!(met.faults > scaled(9_000) && met.faults_at_once > scaled(400), "{met:?}");
    assert!(met.faults_during_recovery > scaled(1_500) && met.faults_when_finished > scaled(100), "{met:?}");
    assert!(met.restarts_from_checkpoint > scaled(2_000) && met.restarts_from_start > scaled(5_000), "{met:?}");
    assert!(met.duplicates > scaled(2_000) && met.replayed > scaled(10_000), "{met:?}");
    assert!(met.choices_forced > scaled(1_000) && met.overtaken > scaled(1_500), "{met:?}");
}

#[test]
fn calls_that_others_have_completed_are_skipped_or_served() {
    let met = right(5_000, &calls());
    assert!(met.calls > scaled(50_000) && met.calls_again > scaled(5_000), "{met:?}");
    assert!(met.calls_recorded > scaled(5_000) && met.calls_skipped > scaled(1_000), "{met:?}");
    assert!(met.entries_sent > scaled(2_000), "{met:?}");
    assert!(met.calls_straddled_barriers > scaled(200) && met.calls_straddled_all_to_all > scaled(200), "{met:?}");
    assert!(met.calls_straddled_from_root > scaled(200) && met.calls_straddled_root_lost > scaled(50), "{met:?}");
}

#[test]
fn calls_of_four_ranks_are_split_in_every_way() {
    let met = right(3_000, &Config { ranks: (4, 4), rounds: (2, 8), faults: (1, 3), ..calls() });
    let (to_root, others): (Vec<_>, Vec<_>) =
        met.splits_at_faults.each().partition(|(split, _)| split.starts_with("to root"));
    assert!(percent() < 100 || others.iter().all(|(_, count)| *count > 0), "{others:?}");
    // The rule has no plan for calls to a root, and these programs have none.
    assert!(others.len() == 84 && to_root.iter().all(|(_, count)| *count == 0), "{to_root:?}");
}

#[test]
fn two_to_sixteen_ranks_and_many_faults_do_not_break_the_user_level_rule() {
    let many = right(500, &Config { ranks: (2, 16), rounds: (1, 4), faults: (4, 12), ..all() });
    assert!(many.calls_recorded > scaled(500), "{many:?}");
    let few = right(500, &Config { ranks: (2, 3), rounds: (4, 8), faults: (6, 20), ..calls() });
    assert!(few.faults_during_recovery > scaled(500), "{few:?}");
}

#[test]
fn connections_between_survivors_may_break_and_be_made_again() {
    let met = right(1_500, &Config { ranks: (3, 8), revoked: true, ..calls() });
    assert!(met.reconnections > scaled(5_000) && met.in_flight_lost > scaled(1_000), "{met:?}");
}

/// Schedules that once failed.
#[test]
fn schedules_that_once_failed_pass() {
    // The connection of two first processes broke when one had the other's Hello, and the other had none. When they met
    // again, the first waited for a result not sent by the second, since for the latter it was the first meeting.
    let line = "sim1 pattern=calls ranks=3 rounds=2 program=16965501194947177810 checkpoints=1 ordered=0 tier=volatile mode=list:7,0,2,4,0,2,7,\
                0,5,3,0,2,7,6,4,2x2,3x2,4,3x2,4,3x2,2x3,5,2,3,0,2,8,7,0,6,3,2,3x2,4,3x2,4,3x2,4,3x2,4,3,2,0x2,2,7,6,4,5,0x2,3x2 seed=0 \
                faults=4:1:0:0,4:1:0,20:1:2:0,54:1:0 revoked=1 overtaking=1";
    let schedule: Schedule = line.parse().unwrap();
    assert_eq!(simulator::run(&user_level::RULE, &schedule).violation, None, "{line}");
}

/// Kills every rank at every event in some runs, so none is left out by chance.
#[test]
fn a_rank_may_die_at_any_event() {
    for seed in 0..3 {
        let config = Config { ranks: (3, 3), rounds: (4, 4), ..calls() };
        for tier in [Tier::Volatile, Tier::ProcessCrashSafe] {
            let mut schedule = Schedule { tier, ..config.schedule(seed, false) };
            schedule.shape.checkpoint_one_in = 2;
            schedule.faults.truncate(1);
            for at in (0..200).step_by(stride()) {
                for node in 0..3 {
                    schedule.faults[0].at = at;
                    schedule.faults[0].node = node;
                    assert_eq!(simulator::run(&user_level::RULE, &schedule).violation, None, "{schedule}");
                }
            }
        }
    }
}

#[test]
fn every_call_runs_once_when_nothing_fails() {
    let met = right(300, &Config { ranks: (2, 8), faults: (0, 0), ..calls() });
    assert!(met.calls > 0, "{met:?}");
    assert_eq!((met.calls_recorded, met.calls_skipped, met.calls_again, met.entries_sent), (0, 0, 0, 0), "{met:?}");
}

/// Prints the table in `docs/lab/simulations.md`.
#[test]
fn every_canary_is_found_and_its_schedule_shrinks() {
    for canary in Canary::every().filter(|&canary| canary.applies_to(&user_level::RULE)) {
        let config = Config { canary: Some(canary), ..all() };
        let found = (0..10_000).find_map(|seed| {
            let schedule = config.schedule(seed, false);
            let violation = simulator::run(&user_level::RULE, &schedule).violation?;
            Some((seed + 1, schedule, violation.kind.name()))
        });
        let (after, schedule, name) = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
        let small = simulator::shrink(&user_level::RULE, &schedule, 5_000).unwrap();
        eprintln!("| `{}` | {after} | `{name}` |\n{}\n    {}", canary.name(), small.violation, small.schedule);
        assert_eq!(small.violation.kind.name(), name);
        let again: Schedule = small.schedule.to_string().parse().unwrap();
        assert!(matches!(again.mode, Mode::Listed(_)) && again.faults.len() <= 3, "{again}");
        assert_eq!(simulator::run(&user_level::RULE, &again).violation, Some(small.violation));
        assert_eq!(
            simulator::run(&user_level::RULE, &Schedule { canary: None, ..again }).violation,
            None,
            "{canary:?}"
        );
    }
}

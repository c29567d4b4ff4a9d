//! Under the simulator: right on every schedule, and each planted mistake is found.

use counterfoil_campaign::scaled;
use counterfoil_simulator::{self as simulator, Config, Pattern, Schedule, SimRule, Summary, campaign};
use counterfoil_test_rules::exit::SimOnFailure;
use counterfoil_test_rules::line::{self, SimLine};

/// Programs with collective calls.
fn calls() -> Config {
    Config { patterns: vec![Pattern::Calls], ranks: (2, 6), rounds: (1, 6), faults: (1, 5), ..Config::default() }
}

fn run<P: SimRule>(schedules: u64, config: &Config) -> Summary {
    campaign::<P>(0..schedules, config, |_| {})
}

/// Asserts that every schedule is right, and returns the counters.
fn right<P: SimRule>(schedules: u64, config: &Config) -> counterfoil_simulator::Coverage {
    let summary = run::<P>(schedules, config);
    assert_eq!(summary.failed, 0, "{:#?}", summary.failures);
    eprintln!("{:#?}", summary.coverage);
    summary.coverage
}

/// Programs with collective calls that a rule without records of outcomes can repeat, with checkpoints of the job.
fn lines() -> Config {
    Config { ordered: false, rounds: (4, 16), faults: (1, 4), collections: (4, 16), ..calls() }
}

#[test]
fn calls_that_straddle_a_line_are_recorded_or_run_again() {
    let met = right::<SimLine<{ line::Mistake::NONE }>>(scaled(5_000), &lines());
    let least = scaled(1_000);
    assert!(
        met.calls_recorded > least && met.calls_with_dummies > scaled(300) && met.checkpoints_forced > least,
        "{met:?}"
    );
    assert!(met.suppressed > least, "{met:?}");
}

#[test]
fn mistakes_of_the_rule_of_lines_are_found() {
    let found = |summary: Summary| summary.failed > 0;
    assert!(found(run::<SimLine<{ line::Mistake::NOT_KEPT }>>(1_000, &lines())));
    assert!(found(run::<SimLine<{ line::Mistake::NO_DUMMIES }>>(1_000, &lines())));
    assert!(found(run::<SimLine<{ line::Mistake::COMMITTED_EARLY }>>(1_000, &lines())));
    assert!(found(run::<SimLine<{ line::Mistake::COVERED_EARLY }>>(1_000, &lines())));
    assert!(found(run::<SimLine<{ line::Mistake::STALE }>>(1_000, &lines())));
    assert!(found(run::<SimLine<{ line::Mistake::NEWEST }>>(1_000, &lines())));
    assert!(found(run::<SimLine<{ line::Mistake::LEARNT_EARLY }>>(1_000, &lines())));
    assert!(found(run::<SimLine<{ line::Mistake::SUPPRESSED_LATE }>>(1_000, &lines())));
}

#[test]
fn survivors_save_their_state_and_are_loaded_again() {
    let config = Config { ranks: (2, 5), rounds: (1, 6), ..Config::default() };
    let met = right::<SimOnFailure>(scaled(5_000), &config);
    let least = scaled(1_000);
    assert!(met.exits > least && met.restarts_from_checkpoint > least && met.restarts_from_start > least, "{met:?}");
    assert!(met.choices_forced > least, "{met:?}");
}

/// A send was suppressed by what its receiver had reported before it went back further: one of 200,000 schedules.
#[test]
fn a_schedule_of_the_rule_of_lines_that_once_failed_passes() {
    let line = "sim1 pattern=calls ranks=5 rounds=15 program=5215901297523778431 checkpoints=1 ordered=0 tier=volatile mode=priorities:4 \
                seed=13449821448550052486 faults=219:0:8538575362708455787,44:2:3785552115688922936,55:1:8373560580701602978:1 collections=9";
    let schedule: Schedule = line.parse().unwrap();
    assert_eq!(simulator::run::<SimLine<{ line::Mistake::NONE }>>(&schedule).violation, None);
}

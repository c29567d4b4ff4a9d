//! Under the simulator: right on every schedule, and each planted mistake is found.

use counterfoil_campaign::scaled;
use counterfoil_simulator::{Config, Pattern, SimRule, Summary, campaign};
use counterfoil_test_rules::exit::SimOnFailure;
use counterfoil_test_rules::served::{Mistake, SimServed};

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

#[test]
fn a_result_that_a_rank_lacks_comes_from_one_that_has_it() {
    let met = right::<SimServed<{ Mistake::NONE }>>(scaled(5_000), &calls());
    let least = scaled(1_000);
    assert!(
        met.calls > least && met.calls_failed > least && met.calls_again > least && met.calls_recorded > least,
        "{met:?}"
    );
    assert!(met.entries_sent > least && met.restarts_from_checkpoint > least, "{met:?}");
}

#[test]
fn mistakes_of_the_served_rule_are_found() {
    let found = |summary: Summary| summary.failed > 0;
    assert!(found(run::<SimServed<{ Mistake::NOT_LATER }>>(1_000, &calls())));
    assert!(found(run::<SimServed<{ Mistake::DROPPED_EARLY }>>(1_000, &calls())));
    assert!(found(run::<SimServed<{ Mistake::NOT_KEPT }>>(1_000, &calls())));
}

#[test]
fn survivors_save_their_state_and_are_loaded_again() {
    let config = Config { ranks: (2, 5), rounds: (1, 6), ..Config::default() };
    let met = right::<SimOnFailure>(scaled(5_000), &config);
    let least = scaled(1_000);
    assert!(met.exits > least && met.restarts_from_checkpoint > least && met.restarts_from_start > least, "{met:?}");
    assert!(met.choices_forced > least, "{met:?}");
}

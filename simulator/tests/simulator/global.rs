//! The simulator under a rule as unlike the plain one as possible: when any process dies, *all* ranks roll back to the
//! start, under a coordinator, which can die too.
//!
//! Messages from an undone attempt are recognised by a number in their phase; deliveries and sends are held while an
//! attempt is being prepared.
//!
//! Such rules need no special support in the simulator's core, and its oracles check them just as well: so this file
//! also breaks the rule in two places.

mod rule;

use counterfoil_campaign::scaled;
use counterfoil_simulator::{self as simulator, Config, Summary};

use rule::{Global, Mistake};

fn config() -> Config {
    // Outcomes are not recorded, so programs must be send-deterministic.
    Config { ordered: false, rounds: (1, 3), ranks: (2, 5), ..Config::default() }
}

fn campaign<const MISTAKE: u8>(schedules: u64) -> Summary {
    simulator::campaign(&Global::<MISTAKE>::RULE, 0..schedules, &config(), |_| {})
}

#[test]
fn ranks_that_did_not_fail_roll_back_and_a_coordinator_may_fail() {
    let summary = campaign::<{ Mistake::NONE }>(scaled(3_000));
    assert_eq!(summary.failed, 0, "{:#?}", summary.failures);
    let met = &summary.coverage;
    eprintln!("{met:#?}");
    assert!(met.coordinator_faults > scaled(500) && met.faults_during_recovery > scaled(1_000), "{met:?}");
    assert!(met.rollbacks > scaled(10_000) && met.held > scaled(2_000) && met.dead_messages > scaled(100), "{met:?}");
}

#[test]
fn a_message_of_an_undone_attempt_that_is_delivered_is_found() {
    let summary = campaign::<{ Mistake::TAKE_UNDONE }>(2_000);
    assert!(summary.failed > 0, "{:?}", summary.coverage);
}

#[test]
fn a_message_that_comes_too_early_and_is_not_held_is_found() {
    let summary = campaign::<{ Mistake::DO_NOT_HOLD }>(2_000);
    assert!(summary.failed > 0, "{:?}", summary.coverage);
}

#[test]
fn parties_that_never_become_quiescent_are_found() {
    let summary = campaign::<{ Mistake::DO_NOT_REST }>(5);
    let endless = summary.failures.iter().filter(|failure| failure.violation.kind.name() == "Endless");
    assert_eq!((summary.failed, endless.count()), (5, 5));
}

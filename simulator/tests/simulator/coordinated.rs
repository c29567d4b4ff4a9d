//! The coordinated rule under the simulator: right on every schedule, and each planted mistake is found.

use counterfoil_campaign::scaled;
use counterfoil_protocols::coordinated;
use counterfoil_simulator::{self as simulator, Canary, Config, Coordinated, Coverage, Pattern, Schedule, campaign};

/// Checkpoints at any time, bits exchanged before a call.
type AnyTime = Coordinated<true, false>;
/// Checkpoints where the program offers them, bits on the data.
type Offered = Coordinated<false, true>;

/// All programs, and three times those with collective calls.
fn config() -> Config {
    let calls = [Pattern::Calls, Pattern::CallsToRoot, Pattern::CallsToRoot];
    Config {
        patterns: Pattern::ALL.into_iter().chain(calls).collect(),
        ranks: (2, 6),
        rounds: (3, 12),
        faults: (1, 4),
        collections: (2, 12),
        ..Config::default()
    }
}

fn calls() -> Config {
    Config { patterns: vec![Pattern::CallsToRoot], ..config() }
}

#[test]
fn a_job_that_goes_back_to_the_committed_line_loses_nothing() {
    let mut met = Coverage::default();
    for (ranks, share) in [((2, 6), 4), ((7, 16), 1)] {
        let config = Config { ranks, ..config() };
        for summary in [
            campaign::<AnyTime>(0..scaled(600 * share), &config, |_| {}),
            campaign::<Offered>(0..scaled(400 * share), &config, |_| {}),
        ] {
            assert_eq!(summary.failed, 0, "{:#?}", summary.failures);
            met.add(&summary.coverage);
        }
    }
    eprintln!("{met:#?}");
    let least = scaled(300);
    let cases = [met.late, met.early, met.suppressed, met.calls_recorded, met.calls_skipped, met.calls_with_dummies];
    assert!(cases.iter().all(|&count| count > least / 3), "{met:?}");
    assert!(met.calls_straddled > least && met.choices_forced > least / 3, "{met:?}");
    let faults = [met.faults_when_asked, met.faults_when_logging, met.faults_when_ready, met.faults_when_stopped];
    assert!(faults.iter().all(|&count| count > least / 10), "{met:?}");
    assert!(met.coordinator_faults_collecting > least / 3 && met.rollbacks > least, "{met:?}");
}

#[test]
fn every_mistake_of_the_rule_is_found_within_ten_thousand_schedules() {
    let mut missed = Vec::new();
    for canary in coordinated::Canary::ALL {
        let config = Config { canary: Some(Canary::Coordinated(canary)), ..calls() };
        let mut found = None;
        for first in (0..10_000).step_by(100) {
            let summary = campaign::<AnyTime>(first..first + 100, &config, |_| {});
            if let Some(failure) = summary.failures.first() {
                found = Some((failure.seed + 1, failure.violation.kind.name()));
                break;
            }
        }
        match found {
            Some((schedules, oracle)) => eprintln!("| `{canary:?}` | {schedules} | `{oracle}` |"),
            None => missed.push(canary),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Schedules that once failed.
#[test]
fn schedules_that_once_failed_pass() {
    const LINES: [&str; 0] = [];
    for line in LINES {
        let schedule: Schedule = line.parse().unwrap();
        assert_eq!(simulator::run::<AnyTime>(&schedule).violation, None, "{line}");
    }
}

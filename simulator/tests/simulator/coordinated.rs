//! The coordinated rule under the simulator: right on every schedule, and each planted mistake is found.

use counterfoil_campaign::{percent, scaled};
use counterfoil_canaries::Canary as Mistake;
use counterfoil_protocols::api::{Bits, Moment, Rule};
use counterfoil_protocols::coordinated;
use counterfoil_simulator::{self as simulator, Canary, Config, Coverage, Pattern, Schedule, campaign};

/// Checkpoints at any time, bits exchanged before a call.
const ANY_TIME: Rule = coordinated::RULE;
/// Checkpoints at any time, bits on the data.
const PIGGYBACKED: Rule = ANY_TIME.with_bits(Bits::Piggybacked);
/// Checkpoints where the program offers them, bits on the data.
const OFFERED: Rule = PIGGYBACKED.with_moment(Moment::Offered);

/// All programs, and as often those with collective calls.
fn config() -> Config {
    let calls = [Pattern::CallsToRoot; Pattern::ALL.len()];
    Config {
        patterns: Pattern::ALL.into_iter().chain(calls).collect(),
        ranks: (2, 6),
        rounds: (3, 12),
        faults: (1, 4),
        collections: (2, 12),
        overtaking: true,
        ..Config::default()
    }
}

fn calls() -> Config {
    Config { patterns: vec![Pattern::CallsToRoot], ..config() }
}

#[test]
fn a_job_that_goes_back_to_the_committed_line_loses_nothing() {
    let mut met = Coverage::default();
    for (ranks, share, revoked) in [((2, 6), 3, false), ((2, 4), 1, true), ((7, 16), 1, false)] {
        let config = Config { ranks, revoked, ..config() };
        for summary in [
            campaign(&ANY_TIME, 0..scaled(600 * share), &config, |_| {}),
            campaign(&PIGGYBACKED, 0..scaled(300 * share), &config, |_| {}),
            campaign(&OFFERED, 0..scaled(400 * share), &config, |_| {}),
        ] {
            assert_eq!(summary.failed, 0, "{:#?}", summary.failures);
            met.add(&summary.coverage);
        }
    }
    eprintln!("{met:#?}");
    // Early messages are suppressed at their senders.
    assert_eq!(met.duplicates, 0);
    let least = scaled(300);
    let many =
        [met.late, met.early, met.suppressed, met.calls_straddled, met.choices_forced, met.rollbacks, met.overtaken];
    assert!(many.iter().all(|&count| count > least), "{met:?}");
    // Calls straddle a line in every other schedule with calls; a job rarely goes back to this line.
    let rare = [met.calls_recorded, met.calls_skipped, met.calls_with_dummies];
    assert!(percent() < 100 || rare.iter().all(|&count| count > 4), "{met:?}");
    let faults = [met.faults_when_asked, met.faults_when_logging, met.faults_when_ready, met.faults_when_stopped];
    assert!(faults.iter().all(|&count| count > least / 2), "{met:?}");
    assert!(met.coordinator_faults_collecting > least / 2, "{met:?}");
}

#[test]
fn calls_of_four_ranks_are_split_in_every_way() {
    let patterns = vec![Pattern::Calls, Pattern::CallsToRoot];
    let config =
        Config { patterns, ranks: (4, 4), rounds: (4, 12), faults: (2, 4), collections: (2, 6), ..Config::default() };
    let summary = campaign(&ANY_TIME, 0..scaled(10_000), &config, |_| {});
    assert_eq!(summary.failed, 0, "{:#?}", summary.failures);
    let Coverage { splits_at_faults, splits_at_lines, .. } = summary.coverage;
    for splits in [splits_at_faults, splits_at_lines] {
        let missed: Vec<_> = splits.each().filter(|(_, count)| *count == 0).collect();
        assert!(percent() < 100 || missed.is_empty(), "{missed:?}");
    }
}

/// Programs in which outcomes matter, with many messages crossing a line.
fn neighbours() -> Config {
    Config { patterns: vec![Pattern::Stencil], rounds: (4, 16), ..config() }
}

#[test]
fn every_mistake_of_the_rule_is_found_within_ten_thousand_schedules() {
    let mut missed = Vec::new();
    for canary in Mistake::ALL.into_iter().filter(|mistake| mistake.applies_to(ANY_TIME.name)) {
        let of_outcomes = [Mistake::OutcomesNotLogged, Mistake::StaleLogKept].contains(&canary);
        let config = Config { canary: Some(Canary::Rule(canary)), ..if of_outcomes { neighbours() } else { calls() } };
        let mut found = None;
        for first in (0..10_000).step_by(100) {
            let summary = campaign(&ANY_TIME, first..first + 100, &config, |_| {});
            if let Some(failure) = summary.failures.first() {
                let schedule: Schedule = failure.schedule.parse().expect("a schedule");
                let right = Schedule { canary: None, ..schedule };
                assert_eq!(simulator::run(&ANY_TIME, &right).violation, None, "{right}");
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
    const LINES: [&str; 4] = [
        // A rank waiting for a rollback announced its counts in the name of the next attempt.
        "sim1 pattern=ring ranks=5 rounds=3 program=789150205903879112 checkpoints=1 ordered=1 tier=crash-safe mode=uniform \
         seed=13292997646250678389 faults=75:2:17253071073342766635 collections=7 background=1",
        // A rank staying in place kept the counts of the attempt before.
        "sim1 pattern=stencil ranks=4 rounds=9 program=9805000320927924365 checkpoints=1 ordered=1 tier=volatile mode=priorities:6 \
         seed=6856002207901880352 faults=167:3:14940980022443839594,192:0:4245850164508780639,192:4:1352611379345382828,\
         225:4:11520062842720303579:2,253:0:5892831489410144593:0,19:4:5918984574442867881,58:2:10032853435505099459:0,\
         76:1:7035926505983250647 collections=2",
        // A line begun by a lost initiator was never committed by the next.
        "sim1 pattern=calls-to-root ranks=2 rounds=7 program=12746902380913041702 checkpoints=0 ordered=0 tier=crash-safe \
         mode=list:0x20,1,0x11,3,2,1x2,2,0,3,1,0x6,1,2,0x6,1,0,2,3,1,2,0x2,3,2,4,2,1,4,0x2,2 seed=0 faults=61:2:0 collections=3 \
         background=1",
        // A rank with newly made connections executed on an order from before.
        "sim1 pattern=ring ranks=3 rounds=9 program=0 checkpoints=0 ordered=0 tier=crash-safe mode=list:0x30,1x2,2x4,3x2,2,0,2,0,2,0,\
         1x3,2,1x2,2,3x2,0,4,0,2,3,2,3,2,3,4,5x2,3,0,3,1 seed=0 faults=62:1:0 collections=6 revoked=1",
    ];
    for line in LINES {
        let schedule: Schedule = line.parse().unwrap();
        assert_eq!(simulator::run(&ANY_TIME, &schedule).violation, None, "{line}");
    }
}

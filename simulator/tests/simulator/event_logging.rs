//! The event logging rule: right on every schedule, and each planted mistake is found.

use std::ops::Range;

use counterfoil_campaign::scaled;
use counterfoil_protocols::event_logging;
use counterfoil_simulator::{self as simulator, Canary, Config, Coverage, EventLog, Pattern, Schedule, SimRule};

/// All patterns of messages.
fn messages() -> Config {
    Config { rounds: (1, 6), ..Config::default() }
}

/// Programs with collective calls, and many lines.
fn calls() -> Config {
    Config { patterns: vec![Pattern::Calls], rounds: (2, 10), faults: (1, 4), ..Config::default() }
}

/// Programs that leave messages for later, with many lines at once.
fn backlog() -> Config {
    Config { patterns: vec![Pattern::Backlog, Pattern::Graph], rounds: (3, 10), faults: (1, 4), ..Config::default() }
}

/// Programs whose orphans depend on the order in which their senders take messages.
fn orphans() -> Config {
    Config { patterns: vec![Pattern::Stencil], ranks: (3, 6), rounds: (3, 8), ..Config::default() }
}

/// Asserts that no schedule fails, and returns the counters.
fn campaign(seeds: Range<u64>, config: Config) -> Coverage {
    let schedules = seeds.end - seeds.start;
    let summary = simulator::campaign::<EventLog>(seeds, &config, |_| {});
    let (failed, failures, coverage) = (summary.failed, summary.failures, summary.coverage);
    let lines: Vec<String> =
        failures.iter().take(5).map(|f| format!("seed {}: {}\n  {}", f.seed, f.violation, f.schedule)).collect();
    assert!(failed == 0, "{failed} of {schedules}:\n{}", lines.join("\n"));
    coverage
}

#[test]
fn messages_in_transit_are_presented_and_orphans_discarded() {
    let met = campaign(0..scaled(2_000), messages());
    assert!(met.faults > scaled(3_500) && met.coordinator_faults > scaled(500), "{met:?}");
    assert!(met.rollbacks > counterfoil_campaign::met(5_000) && met.faults_during_recovery > scaled(2_000), "{met:?}");
    assert!(met.messages_copied > scaled(5_000) && met.messages_presented > scaled(100), "{met:?}");
    assert!(met.orphans_dropped > scaled(10) && met.dead_messages > scaled(1_000), "{met:?}");
    assert!(met.checkpoints_forced > scaled(20_000) && met.checkpoints_abandoned > scaled(1_000), "{met:?}");
}

#[test]
fn no_line_bisects_a_collective_call() {
    let met = campaign(0..scaled(1_000), calls());
    assert!(met.checkpoints_in_calls > scaled(1_000) && met.calls_again > scaled(500), "{met:?}");
}

#[test]
fn messages_may_take_any_number_of_intervals() {
    let met = campaign(0..scaled(1_000), backlog());
    assert!(met.messages_presented_late > scaled(10), "{met:?}");
}

#[test]
fn outcomes_of_wildcard_receives_are_repeated() {
    let met = campaign(0..scaled(700), orphans());
    assert!(met.choices > scaled(10_000) && met.choices_forced > scaled(1_000), "{met:?}");
    assert!(met.orphans_dropped > scaled(30), "{met:?}");
}

#[test]
fn many_ranks_go_back_to_the_line() {
    campaign(0..scaled(200), Config { ranks: (7, 16), ..messages() });
}

#[test]
fn connections_between_survivors_may_break_and_be_made_again() {
    let met = campaign(0..scaled(300), Config { ranks: (3, 8), revoked: true, ..messages() });
    assert!(met.reconnections > scaled(1_000), "{met:?}");
}

/// Schedules that once ended wrong.
#[test]
fn schedules_that_once_failed_pass() {
    // A rank that had stopped repeated its requests of the undone attempt to a rank that was back at the line.
    let line = "sim1 pattern=calls ranks=3 rounds=8 program=14477257330446655584 checkpoints=1 ordered=1 tier=volatile mode=priorities:6 \
                seed=14557450600514164083 faults=87:1:4433118356046984572";
    assert_eq!(simulator::run::<EventLog>(&line.parse().expect("a schedule")).violation, None);
}

/// Returns the first schedule of a campaign that a canary breaks, the number of schedules up to it, and the name of the violation.
fn find(canary: Canary, schedules: u64, config: &Config) -> Option<(Schedule, u64, &'static str)> {
    let config = Config { canary: Some(canary), ..config.clone() };
    (0..schedules).find_map(|seed| {
        let schedule = config.schedule(seed, true);
        let violation = simulator::run::<EventLog>(&schedule).violation?;
        Some((schedule, seed + 1, violation.kind.name()))
    })
}

/// Prints the table of `docs/event-logging.md`.
#[test]
fn every_mistake_is_found_within_ten_thousand_schedules() {
    let mut missed = Vec::new();
    let all = Config { patterns: [Pattern::ALL.to_vec(), vec![Pattern::Calls; 3]].concat(), ..backlog() };
    for canary in Canary::every().filter(|&canary| EventLog::is_affected_by(canary)) {
        let config = match canary {
            Canary::ForgetChoices | Canary::EventLogging(event_logging::Canary::OutcomesNotForced) => orphans(),
            _ => all.clone(),
        };
        let Some((schedule, after, name)) = find(canary, 10_000, &config) else {
            missed.push(canary);
            continue;
        };
        eprintln!("| `{}` | {after} | `{name}` |", canary.name());
        let again: Schedule = schedule.to_string().parse().expect("a schedule");
        assert_eq!(again, schedule);
        assert_eq!(simulator::run::<EventLog>(&Schedule { canary: None, ..again }).violation, None, "{schedule}");
    }
    assert_eq!(missed, []);
}

/// Planted mistakes about records are harmless: none is replayed.
#[test]
fn mistakes_about_records_make_no_schedule_fail() {
    let others: Vec<Canary> = Canary::ALL.into_iter().filter(|&canary| !EventLog::is_affected_by(canary)).collect();
    assert!(others.contains(&Canary::DropRecord) && others.contains(&Canary::ForgetLog), "{others:?}");
    for canary in others {
        campaign(0..scaled(200), Config { canary: Some(canary), ..messages() });
    }
}

/// Runs a schedule from the environment, if there is one, to look into a failure.
#[test]
fn a_schedule_of_the_environment_does_not_fail() {
    let line = std::env::var("SIM_SCHEDULE").unwrap_or_else(|_| messages().schedule(3, true).to_string());
    let (outcome, story) = simulator::transcript::<EventLog>(&line.parse().expect("a schedule"));
    if outcome.violation.is_some() {
        eprintln!("{}", story.join("\n"));
    }
    assert_eq!(outcome.violation, None, "{:#?}", outcome.coverage);
}

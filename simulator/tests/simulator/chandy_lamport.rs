//! Event logging and message tagging: right on every schedule, and each planted mistake is found.

use std::ops::Range;

use counterfoil_campaign::{percent, scaled};
use counterfoil_canaries::Canary as Mistake;
use counterfoil_protocols::api::Rule;
use counterfoil_simulator::{self as simulator, Canary, Config, Coverage, Pattern, Schedule};

/// All message patterns.
fn messages() -> Config {
    Config { rounds: (1, 6), ..Config::default() }
}

/// Programs with collective calls, and many lines.
fn calls() -> Config {
    Config { patterns: Pattern::OF_CALLS.to_vec(), rounds: (2, 10), faults: (1, 4), ..Config::default() }
}

/// Programs leaving messages for later, with many lines at once.
fn backlog() -> Config {
    Config { patterns: vec![Pattern::Backlog, Pattern::Graph], rounds: (3, 10), faults: (1, 4), ..Config::default() }
}

/// Programs with orphans dependent on the order in which their senders take messages.
fn orphans() -> Config {
    Config { patterns: vec![Pattern::Stencil], ranks: (3, 6), rounds: (3, 8), ..Config::default() }
}

/// Jobs rolled back again and again.
fn restarts() -> Config {
    Config { patterns: vec![Pattern::Backlog], ranks: (2, 4), faults: (2, 8), ..backlog() }
}

/// Asserts the success of all schedules, and returns the counters.
fn campaign(rule: &Rule, seeds: Range<u64>, config: Config) -> Coverage {
    let schedules = seeds.end - seeds.start;
    let summary = simulator::campaign(rule, seeds, &config, |_| {});
    let (failed, failures, coverage) = (summary.failed, summary.failures, summary.coverage);
    let lines: Vec<String> =
        failures.iter().take(5).map(|f| format!("seed {}: {}\n  {}", f.seed, f.violation, f.schedule)).collect();
    assert!(failed == 0, "{failed} of {schedules}:\n{}", lines.join("\n"));
    coverage
}

fn messages_in_transit_are_presented_and_orphans_discarded(rule: &Rule) {
    let met = campaign(rule, 0..scaled(4_000), messages());
    assert!(met.faults > scaled(3_500) && met.coordinator_faults > scaled(500), "{met:?}");
    assert!(met.rollbacks > counterfoil_campaign::met(5_000) && met.faults_during_recovery > scaled(2_000), "{met:?}");
    assert!(met.messages_copied > scaled(5_000) && met.messages_presented > scaled(100), "{met:?}");
    assert!(met.orphans_dropped > scaled(10) && met.dead_messages > scaled(1_000), "{met:?}");
    assert!(met.checkpoints_forced > scaled(20_000) && met.checkpoints_abandoned > scaled(1_000), "{met:?}");
}

fn no_line_bisects_a_collective_call(rule: &Rule) {
    let met = campaign(rule, 0..scaled(1_000), calls());
    assert!(met.checkpoints_in_calls > scaled(1_000) && met.calls_again > scaled(500), "{met:?}");
}

/// Programs giving their state only where they offer a checkpoint, in half the schedules.
fn checkpoints_by_clocks_make_lines_and_may_be_refused_in_calls(rule: &Rule) {
    let mut met = campaign(rule, 0..scaled(1_500), Config { clocks: true, ..calls() });
    met.add(&campaign(rule, 0..scaled(1_500), Config { clocks: true, ..messages() }));
    assert!(met.checkpoints_refused > scaled(1_000) && met.restarts_from_checkpoint > scaled(500), "{met:?}");
    let of_clocks = (0..scaled(1_500)).map(|seed| Config { clocks: true, ..calls() }.schedule(seed, true).clocks);
    assert!(of_clocks.filter(|clocks| *clocks).count() as u64 > scaled(500));
}

fn calls_of_four_ranks_are_split_in_every_way(rule: &Rule) {
    let met = campaign(rule, 0..scaled(3_000), Config { ranks: (4, 4), rounds: (4, 12), faults: (2, 4), ..calls() });
    for splits in [met.splits_at_faults, met.splits_at_lines] {
        let missed = splits.each().filter(|(_, count)| *count == 0);
        assert!(percent() < 100 || missed.count() == 0, "{splits:?}");
    }
}

fn messages_may_take_any_number_of_intervals(rule: &Rule) {
    let met = campaign(rule, 0..scaled(1_000), backlog());
    assert!(met.messages_presented_late > scaled(10), "{met:?}");
}

fn outcomes_of_wildcard_receives_are_repeated(rule: &Rule) {
    let met = campaign(rule, 0..scaled(700), orphans());
    assert!(met.choices > scaled(10_000) && met.choices_forced > scaled(1_000), "{met:?}");
    assert!(met.orphans_dropped > scaled(30), "{met:?}");
}

fn many_ranks_go_back_to_the_line(rule: &Rule) {
    campaign(rule, 0..scaled(200), Config { ranks: (7, 16), ..messages() });
}

fn connections_between_survivors_may_break_and_be_made_again(rule: &Rule) {
    let met = campaign(rule, 0..scaled(300), Config { ranks: (3, 8), revoked: true, ..messages() });
    assert!(met.reconnections > scaled(1_000), "{met:?}");
}

/// With a line for each offer by each rank, the requests from all others alone exceeded the bound on events.
fn a_checkpoint_that_all_ranks_offer_makes_one_line(rule: &Rule) {
    let config = Config { ranks: (15, 15), rounds: (2, 2), faults: (0, 0), ..messages() };
    let met = campaign(rule, 2_156_133_813..2_156_133_814, config);
    // From 15 ranks, for the start and each line.
    assert!(met.checkpoints <= 15 * 10, "{met:?}");
}

/// Returns a campaign's first schedule broken by a canary, the number of schedules up to it, and the violation's name.
fn find(rule: &Rule, canary: Canary, schedules: u64, config: &Config) -> Option<(Schedule, u64, &'static str)> {
    let config = Config { canary: Some(canary), ..config.clone() };
    (0..schedules).find_map(|seed| {
        let schedule = config.schedule(seed, true);
        let violation = simulator::run(rule, &schedule).violation?;
        Some((schedule, seed + 1, violation.kind.name()))
    })
}

/// Prints the table in `docs/lab/errata.md`.
fn every_mistake_is_found_within_ten_thousand_schedules(rule: &Rule) {
    let mut missed = Vec::new();
    let all = Config { patterns: [Pattern::ALL.to_vec(), vec![Pattern::Calls; 3]].concat(), ..backlog() };
    for canary in Canary::every().filter(|&canary| canary.applies_to(rule)) {
        let config = match canary {
            Canary::ForgetChoices | Canary::Rule(Mistake::OutcomesNotForced) => orphans(),
            Canary::Rule(Mistake::UndoneRequests) => restarts(),
            _ => all.clone(),
        };
        let Some((schedule, after, name)) = find(rule, canary, 10_000, &config) else {
            missed.push(canary);
            continue;
        };
        eprintln!("| `{}` | {after} | `{name}` |", canary.name());
        let again: Schedule = schedule.to_string().parse().expect("a schedule");
        assert_eq!(again, schedule);
        assert_eq!(simulator::run(rule, &Schedule { canary: None, ..again }).violation, None, "{schedule}");
    }
    assert_eq!(missed, []);
}

/// Planted mistakes about records are harmless: none is replayed.
fn mistakes_about_records_make_no_schedule_fail(rule: &Rule) {
    let others: Vec<Canary> = Canary::ALL.into_iter().filter(|&canary| !canary.applies_to(rule)).collect();
    assert!(others.contains(&Canary::DropRecord) && others.contains(&Canary::ForgetLog), "{others:?}");
    for canary in others {
        campaign(rule, 0..scaled(200), Config { canary: Some(canary), ..messages() });
    }
}

/// Makes a rule's tests.
macro_rules! tests {
    ($module:ident: $($test:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(&counterfoil_protocols::$module::RULE);
                }
            )*
        }
    };
    ($module:ident) => {
        tests! {
            $module:
            messages_in_transit_are_presented_and_orphans_discarded
            no_line_bisects_a_collective_call
            checkpoints_by_clocks_make_lines_and_may_be_refused_in_calls
            calls_of_four_ranks_are_split_in_every_way
            messages_may_take_any_number_of_intervals
            outcomes_of_wildcard_receives_are_repeated
            many_ranks_go_back_to_the_line
            connections_between_survivors_may_break_and_be_made_again
            a_checkpoint_that_all_ranks_offer_makes_one_line
            every_mistake_is_found_within_ten_thousand_schedules
            mistakes_about_records_make_no_schedule_fail
        }
    };
}

tests!(event_logging);
tests!(message_tagging);

/// Schedules with a wrong end in the past.
#[test]
fn schedules_that_once_failed_pass() {
    // A stopped rank repeated its requests from the undone attempt to a rank back at the line.
    let line = "sim1 pattern=calls ranks=3 rounds=8 program=14477257330446655584 checkpoints=1 ordered=1 tier=volatile mode=priorities:6 \
                seed=14557450600514164083 faults=87:1:4433118356046984572";
    assert_eq!(
        simulator::run(&counterfoil_protocols::event_logging::RULE, &line.parse().expect("a schedule")).violation,
        None
    );
}

/// Runs a schedule from the environment, if there is one, to look into a failure.
#[test]
fn a_schedule_of_the_environment_does_not_fail() {
    let line = std::env::var("SIM_SCHEDULE").unwrap_or_else(|_| messages().schedule(3, true).to_string());
    let (outcome, story) =
        simulator::transcript(&counterfoil_protocols::event_logging::RULE, &line.parse().expect("a schedule"));
    if outcome.violation.is_some() {
        eprintln!("{}", story.join("\n"));
    }
    assert_eq!(outcome.violation, None, "{:#?}", outcome.coverage);
}

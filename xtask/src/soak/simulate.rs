//! `cargo xtask soak simulate`: runs `counterfoil simulate` for all protocols and a range of job sizes and failures.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::Command;

use clap::Args;
use serde_json::{Value, json};

use super::random::SplitMix64;
use super::{clear_progress, seed_from_clock};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace, command_line};

/// Values of `--protocol`.
const PROTOCOLS: [&str; 3] = ["send-deterministic", "plain", "pessimistic"];
/// Ranks, rounds and faults. Large jobs have fewer rounds: the effects of many ranks show in the first ones.
const SHAPES: [[&str; 3]; 5] = [
    ["2..3", "1..8", "1..4"],
    ["2..6", "1..4", "1..1"],
    ["2..6", "1..4", "2..4"],
    ["7..10", "1..3", "1..4"],
    ["11..16", "1..2", "1..4"],
];
/// Schedules per process. One process takes a minute at most.
const SCHEDULES_PER_SLICE: u64 = 50_000;
/// Counters shown in the table, with their headings.
const COLUMNS: [(&str, &str); 6] = [
    ("faults", "faults"),
    ("faults_during_recovery", "in recovery"),
    ("in_flight_lost", "lost in flight"),
    ("replayed", "replayed"),
    ("duplicates", "duplicates dropped"),
    ("violations", "violations"),
];

/// Options of `cargo xtask soak simulate`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of schedules over all protocols and shapes
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    schedules: u64,
    /// Seed of all schedules [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// The slices of one protocol and shape.
struct Group {
    protocol: &'static str,
    shape: [&'static str; 3],
    schedules: u64,
    /// Sum of each counter over the slices.
    counters: BTreeMap<String, u64>,
}

/// A failed slice.
struct Failure {
    /// Command that repeats the slice.
    command: String,
    /// The violation and the command that replays the smallest failing schedule, or the program's output.
    details: String,
}

/// Runs the soak test. Returns `true` if no slice failed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let program = workspace.build_release()?;
    let mut random = SplitMix64::new(seed);
    let mut groups = Vec::new();
    let mut failures = Vec::new();
    let mut done = 0;
    let combinations = PROTOCOLS.into_iter().flat_map(|protocol| SHAPES.map(|shape| (protocol, shape)));
    let combinations_total = (PROTOCOLS.len() * SHAPES.len()) as u64;
    for (index, (protocol, shape)) in (0..).zip(combinations) {
        // Rounded so that the groups add up to exactly the requested number.
        let wanted =
            options.schedules * (index + 1) / combinations_total - options.schedules * index / combinations_total;
        let mut group = Group { protocol, shape, schedules: 0, counters: BTreeMap::new() };
        while group.schedules < wanted {
            let schedules = SCHEDULES_PER_SLICE.min(wanted - group.schedules);
            // 32 bits keep the seed short enough to type.
            let command = slice_command(&program, &group, schedules, random.next_u64() >> 32);
            group.schedules += schedules;
            failures.extend(run_slice(command, &mut group)?);
            done += schedules;
            report_progress(done, options.schedules, &group, failures.len());
        }
        groups.push(group);
    }
    print_report(options, seed, &groups, &failures);
    Ok(failures.is_empty())
}

fn slice_command(program: &Path, group: &Group, schedules: u64, seed: u64) -> Command {
    let [ranks, rounds, faults] = group.shape;
    let mut command = Command::new(program);
    command.args(["simulate", "--protocol", group.protocol, "--ranks", ranks, "--rounds", rounds, "--faults", faults]);
    command.args(["--schedules", &schedules.to_string(), "--seed", &seed.to_string(), "--json"]);
    command
}

/// Runs a slice and adds its counters to the group. Returns the failure, if any.
fn run_slice(mut command: Command, group: &mut Group) -> Result<Option<Failure>, TaskError> {
    let line = command_line(&command);
    let output = command.output().map_err(|source| TaskError::Start { program: line.clone(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).unwrap_or_default();
    add_counters(&mut group.counters, &report);
    if output.status.success() && report["violations"] == 0 {
        return Ok(None);
    }
    let violation = &report["failure"];
    let details = match violation["replay"].as_str() {
        Some(replay) => {
            let words = [&violation["shrunk"], violation].map(|found| found["violation"]["words"].as_str());
            format!("{}\n  {replay}", words.into_iter().flatten().next().unwrap_or("a violation"))
        }
        None => format!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr)),
    };
    clear_progress();
    eprintln!("FAILED: {line}\n  {details}");
    Ok(Some(Failure { command: line, details }))
}

/// Adds the numbers of a report, except those that are not counts.
fn add_counters(counters: &mut BTreeMap<String, u64>, report: &Value) {
    for (name, value) in report.as_object().into_iter().flatten() {
        if let (Some(count), false) = (value.as_u64(), matches!(name.as_str(), "seed" | "schedules_wanted")) {
            *counters.entry(name.clone()).or_default() += count;
        }
    }
}

fn report_progress(done: u64, total: u64, group: &Group, failed: usize) {
    let line = format!("{done} of {total} schedules, {failed} slices failed; last: {group}");
    if io::stderr().is_terminal() {
        clear_progress();
        eprint!("{line}");
        // A failure to print progress must not end the soak test.
        let _ = io::stderr().flush();
        if done == total {
            eprintln!();
        }
    } else {
        eprintln!("{line}");
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [ranks, rounds, faults] = self.shape;
        write!(f, "{}, {ranks} ranks, {rounds} rounds, {faults} faults", self.protocol)
    }
}

/// Prints the table or the JSON object.
fn print_report(options: &Options, seed: u64, groups: &[Group], failures: &[Failure]) {
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in groups.iter().flat_map(|group| &group.counters) {
        *total.entry(name.clone()).or_default() += count;
    }
    if options.json {
        let groups = groups.iter().map(|group| {
            let [ranks, rounds, faults] = group.shape;
            json!({
                "protocol": group.protocol, "ranks": ranks, "rounds": rounds, "faults": faults, "counters": group.counters,
            })
        });
        let failures_json =
            failures.iter().map(|failure| json!({ "command": failure.command, "what": failure.details }));
        println!(
            "{}",
            json!({
                "seed": seed,
                "passed": failures.is_empty(),
                "counters": total,
                "groups": groups.collect::<Vec<_>>(),
                "wrong": failures_json.collect::<Vec<_>>(),
            })
        );
        return;
    }
    let heading = ["protocol", "ranks", "rounds", "faults per schedule", "schedules"];
    let mut table = Table::new(heading.into_iter().chain(COLUMNS.map(|(_, heading)| heading)));
    for group in groups {
        let [ranks, rounds, faults] = group.shape;
        let counts = COLUMNS.map(|(name, _)| group.counters.get(name).copied().unwrap_or(0).to_string());
        let words = [group.protocol, ranks, rounds, faults].map(str::to_owned);
        table.row(words.into_iter().chain([group.schedules.to_string()]).chain(counts));
    }
    println!("\n{table}");
    for (name, count) in &total {
        println!("{name:<26}{count:>16}");
    }
    let result = if failures.is_empty() { "passed" } else { "FAILED" };
    println!("{} schedules, {} slices failed, seed {seed}: {result}", options.schedules, failures.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_are_added() {
        let mut counters = BTreeMap::new();
        let report =
            json!({ "seed": 7, "schedules_wanted": 9, "schedules": 4, "faults": 5, "protocol": "plain", "lost": 0 });
        add_counters(&mut counters, &report);
        add_counters(&mut counters, &report);
        let expected = [("faults", 10), ("lost", 0), ("schedules", 8)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counters, BTreeMap::from(expected));
    }

    #[test]
    fn a_failed_program_and_a_violation_are_failures() {
        let mut group = Group { protocol: "plain", shape: SHAPES[0], schedules: 0, counters: BTreeMap::new() };
        let failure = run_slice(Command::new("false"), &mut group).expect("it starts").expect("it fails");
        assert!(failure.details.contains("exit status: 1"), "{}", failure.details);
        let mut violation = Command::new("echo");
        violation.arg(r#"{"violations": 1, "failure": {"replay": "again", "violation": {"words": "bad"}}}"#);
        let failure = run_slice(violation, &mut group).expect("it starts").expect("it fails");
        assert_eq!(failure.details, "bad\n  again");
        let mut good = Command::new("echo");
        good.arg(r#"{"violations": 0, "schedules": 3}"#);
        assert!(run_slice(good, &mut group).expect("it starts").is_none());
        assert_eq!(group.counters.get("schedules"), Some(&3));
    }
}

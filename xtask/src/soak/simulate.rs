//! `cargo xtask soak simulate`: very many schedules of `counterfoil simulate`, over all protocols, sizes of jobs and numbers of
//! failures.

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

/// The protocols, as the program names them.
const PROTOCOLS: [&str; 3] = ["send-deterministic", "plain", "pessimistic"];
/// Ranks, rounds and faults. Large jobs have fewer rounds: what many ranks add, they add in the first.
const SHAPES: [[&str; 3]; 5] = [
    ["2..3", "1..8", "1..4"],
    ["2..6", "1..4", "1..1"],
    ["2..6", "1..4", "2..4"],
    ["7..10", "1..3", "1..4"],
    ["11..16", "1..2", "1..4"],
];
/// Schedules in one run of the program: a minute at most.
const SLICE: u64 = 50_000;
/// What is printed of the counters, and under which heading.
const COLUMNS: [(&str, &str); 6] = [
    ("faults", "faults"),
    ("faults_during_recovery", "in recovery"),
    ("in_flight_lost", "lost in flight"),
    ("replayed", "replayed"),
    ("duplicates", "duplicates dropped"),
    ("violations", "violations"),
];

/// How many schedules, and from which seed.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many schedules are run, over all protocols and shapes
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    schedules: u64,
    /// Draws the seeds of all slices [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// All slices of a protocol in one shape.
struct Group {
    protocol: &'static str,
    shape: [&'static str; 3],
    schedules: u64,
    /// Every counter of the program's object, added up.
    counters: BTreeMap<String, u64>,
}

/// A slice that was wrong.
struct Wrong {
    /// To repeat the slice.
    command: String,
    /// To repeat the smallest schedule that failed, and what is wrong with it; or what the program said.
    what: String,
}

/// Runs the soak; true if nothing was wrong.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let program = workspace.build_release()?;
    let mut random = SplitMix64::new(seed);
    let mut groups = Vec::new();
    let mut wrong = Vec::new();
    let mut done = 0;
    let each = PROTOCOLS.into_iter().flat_map(|protocol| SHAPES.map(|shape| (protocol, shape)));
    let of = (PROTOCOLS.len() * SHAPES.len()) as u64;
    for (place, (protocol, shape)) in (0..).zip(each) {
        // Together, all groups have exactly as many as were asked for.
        let wanted = options.schedules * (place + 1) / of - options.schedules * place / of;
        let mut group = Group { protocol, shape, schedules: 0, counters: BTreeMap::new() };
        while group.schedules < wanted {
            let schedules = SLICE.min(wanted - group.schedules);
            // Short enough to be typed again.
            let command = slice(&program, &group, schedules, random.next_u64() >> 32);
            group.schedules += schedules;
            wrong.extend(run_slice(command, &mut group)?);
            done += schedules;
            report_progress(done, options.schedules, &group, wrong.len());
        }
        groups.push(group);
    }
    conclude(options, seed, &groups, &wrong);
    Ok(wrong.is_empty())
}

fn slice(program: &Path, group: &Group, schedules: u64, seed: u64) -> Command {
    let [ranks, rounds, faults] = group.shape;
    let mut command = Command::new(program);
    command.args(["simulate", "--protocol", group.protocol, "--ranks", ranks, "--rounds", rounds, "--faults", faults]);
    command.args(["--schedules", &schedules.to_string(), "--seed", &seed.to_string(), "--json"]);
    command
}

/// Runs a slice, adds its counters, and says what was wrong.
fn run_slice(mut command: Command, group: &mut Group) -> Result<Option<Wrong>, TaskError> {
    let line = command_line(&command);
    let output = command.output().map_err(|source| TaskError::Start { program: line.clone(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).unwrap_or_default();
    add_counters(&mut group.counters, &report);
    if output.status.success() && report["violations"] == 0 {
        return Ok(None);
    }
    let failure = &report["failure"];
    let what = match failure["replay"].as_str() {
        Some(replay) => {
            let words = [&failure["shrunk"], failure].map(|found| found["violation"]["words"].as_str());
            format!("{}\n  {replay}", words.into_iter().flatten().next().unwrap_or("a violation"))
        }
        None => format!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr)),
    };
    clear_progress();
    eprintln!("WRONG: {line}\n  {what}");
    Ok(Some(Wrong { command: line, what }))
}

/// Adds all numbers of an object but those that are no counts.
fn add_counters(counters: &mut BTreeMap<String, u64>, report: &Value) {
    for (name, value) in report.as_object().into_iter().flatten() {
        if let (Some(count), false) = (value.as_u64(), matches!(name.as_str(), "seed" | "schedules_wanted")) {
            *counters.entry(name.clone()).or_default() += count;
        }
    }
}

fn report_progress(done: u64, of: u64, group: &Group, wrong: usize) {
    let line = format!("{done} of {of} schedules, {wrong} slices wrong; last: {group}");
    if io::stderr().is_terminal() {
        clear_progress();
        eprint!("{line}");
        // Progress is a courtesy: a stream that refuses it must not end the soak.
        let _ = io::stderr().flush();
        if done == of {
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

fn conclude(options: &Options, seed: u64, groups: &[Group], wrong: &[Wrong]) {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in groups.iter().flat_map(|group| &group.counters) {
        *all.entry(name.clone()).or_default() += count;
    }
    if options.json {
        let groups = groups.iter().map(|group| {
            let [ranks, rounds, faults] = group.shape;
            json!({
                "protocol": group.protocol, "ranks": ranks, "rounds": rounds, "faults": faults, "counters": group.counters,
            })
        });
        let wrong_list = wrong.iter().map(|wrong| json!({ "command": wrong.command, "what": wrong.what }));
        println!(
            "{}",
            json!({
                "seed": seed,
                "passed": wrong.is_empty(),
                "counters": all,
                "groups": groups.collect::<Vec<_>>(),
                "wrong": wrong_list.collect::<Vec<_>>(),
            })
        );
        return;
    }
    let heading = ["protocol", "ranks", "rounds", "faults each", "schedules"];
    let mut table = Table::new(heading.into_iter().chain(COLUMNS.map(|(_, heading)| heading)));
    for group in groups {
        let [ranks, rounds, faults] = group.shape;
        let counts = COLUMNS.map(|(name, _)| group.counters.get(name).copied().unwrap_or(0).to_string());
        let words = [group.protocol, ranks, rounds, faults].map(str::to_owned);
        table.row(words.into_iter().chain([group.schedules.to_string()]).chain(counts));
    }
    println!("\n{table}");
    for (name, count) in &all {
        println!("{name:<26}{count:>16}");
    }
    let passed = if wrong.is_empty() { "passed" } else { "FAILED" };
    println!("{} schedules, {} slices wrong, seed {seed}: {passed}", options.schedules, wrong.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_are_added_up() {
        let mut counters = BTreeMap::new();
        let report =
            json!({ "seed": 7, "schedules_wanted": 9, "schedules": 4, "faults": 5, "protocol": "plain", "lost": 0 });
        add_counters(&mut counters, &report);
        add_counters(&mut counters, &report);
        let expected = [("faults", 10), ("lost", 0), ("schedules", 8)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counters, BTreeMap::from(expected));
    }

    #[test]
    fn a_program_that_fails_is_wrong() {
        let mut group = Group { protocol: "plain", shape: SHAPES[0], schedules: 0, counters: BTreeMap::new() };
        let wrong = run_slice(Command::new("false"), &mut group).expect("it starts").expect("it fails");
        assert!(wrong.what.contains("exit status: 1"), "{}", wrong.what);
        let mut violation = Command::new("echo");
        violation.arg(r#"{"violations": 1, "failure": {"replay": "again", "violation": {"words": "bad"}}}"#);
        let wrong = run_slice(violation, &mut group).expect("it starts").expect("it fails");
        assert_eq!(wrong.what, "bad\n  again");
        let mut good = Command::new("echo");
        good.arg(r#"{"violations": 0, "schedules": 3}"#);
        assert!(run_slice(good, &mut group).expect("it starts").is_none());
        assert_eq!(group.counters.get("schedules"), Some(&3));
    }
}

//! `cargo xtask soak mutants`: changes one thing at a time in a crate, and counts the changes that its tests find.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::table::Table;
use crate::workspace::{TaskError, Workspace, command_line};

/// Share of the changes that has to be found.
const CAUGHT_MIN: f64 = 0.95;

/// A crate, with the packages whose tests it is judged by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mutated {
    Protocols,
    AckPiggyback,
    Gc,
    LogIo,
    LogCore,
}

impl Mutated {
    fn package(self) -> &'static str {
        self.tests()[0]
    }

    fn tests(self) -> &'static [&'static str] {
        match self {
            Mutated::Protocols => &["counterfoil-protocols", "counterfoil-simulator"],
            Mutated::AckPiggyback => &["counterfoil-ack-piggyback", "counterfoil-protocols"],
            Mutated::Gc => &["counterfoil-gc", "counterfoil"],
            Mutated::LogIo => &["counterfoil-log-io", "counterfoil"],
            Mutated::LogCore => &["counterfoil-log-core", "counterfoil"],
        }
    }
}

/// Options of `cargo xtask soak mutants`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Crate to change
    #[arg(short, long, value_enum)]
    package: Mutated,
    /// Part K of N of the changes, from 0: `0/8`
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Numbers of changes, and those that no test found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    caught: usize,
    /// The tests didn't end.
    timed_out: usize,
    /// The change doesn't compile.
    unviable: usize,
    survivors: Vec<String>,
}

impl Outcome {
    /// Reads `outcomes.json` of cargo-mutants.
    fn parse(outcomes: &Value) -> Option<Outcome> {
        let mut all = Outcome::default();
        for outcome in outcomes["outcomes"].as_array()? {
            // The first is the run without a change.
            let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
            match outcome["summary"].as_str()? {
                "CaughtMutant" => all.caught += 1,
                "Timeout" => all.timed_out += 1,
                "Unviable" => all.unviable += 1,
                _ => all.survivors.push(name.to_owned()),
            }
        }
        Some(all)
    }

    /// Returns the share of the changes that compile and are found.
    fn share(&self) -> f64 {
        let found = self.caught + self.timed_out;
        let all = found + self.survivors.len();
        if all == 0 { 0.0 } else { found as f64 / all as f64 }
    }
}

/// Runs cargo-mutants. Returns `true` if enough changes were found.
///
/// # Errors
/// [`TaskError::Missing`] without cargo-mutants.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let has_mutants = workspace.cargo(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has_mutants.is_ok_and(|status| status.success()) {
        return Err(TaskError::Missing {
            path: "cargo-mutants".into(),
            advice: "`cargo install cargo-mutants --locked` installs it",
        });
    }
    let output = workspace.target().join("soak").join("mutants").join(options.package.package());
    fs::create_dir_all(&output).map_err(TaskError::file(&output))?;
    let mut command = mutants(workspace, options, &output);
    let line = command_line(&command);
    // Its status tells of changes that no test found, which its files name; it prints its progress.
    let status = command.status().map_err(|source| TaskError::Start { program: line.clone(), source })?;
    let path = output.join("mutants.out").join("outcomes.json");
    let text = fs::read_to_string(&path).map_err(TaskError::file(&path))?;
    let outcome = serde_json::from_str(&text).ok().as_ref().and_then(Outcome::parse);
    let unknown = || TaskError::Output { program: line.clone(), reason: format!("{} has no outcomes", path.display()) };
    let outcome = outcome.ok_or_else(unknown)?;
    if outcome.share() == 0.0 && !status.success() {
        // The tests fail without a change.
        return Err(TaskError::Failed { program: line });
    }
    Ok(print_report(options, &outcome))
}

/// Returns the command `cargo mutants` for the crate.
fn mutants(workspace: &Workspace, options: &Options, output: &Path) -> Command {
    let package = options.package;
    let mut command = workspace.cargo(["mutants", "--package", package.package(), "--no-shuffle"]);
    command.args(["--test-package", &package.tests().join(",")]);
    command.args([OsStr::new("--output"), output.as_os_str()]);
    if let Some(shard) = &options.shard {
        command.args(["--shard", shard]);
    }
    command
}

/// Prints the table or the JSON object. Returns `true` if enough changes were found.
fn print_report(options: &Options, outcome: &Outcome) -> bool {
    let Outcome { caught, timed_out, unviable, survivors } = outcome;
    let passed = outcome.share() >= CAUGHT_MIN;
    if options.json {
        let package = options.package.package();
        println!(
            "{}",
            json!({
                "package": package, "passed": passed, "caught": caught, "timed_out": timed_out, "unviable": unviable,
                "survivors": survivors,
            })
        );
        return passed;
    }
    let mut table = Table::new(["package", "found", "timeouts", "not found", "don't compile", "share"]);
    table.row([
        options.package.package().to_owned(),
        caught.to_string(),
        timed_out.to_string(),
        survivors.len().to_string(),
        unviable.to_string(),
        format!("{:.1} %", 100.0 * outcome.share()),
    ]);
    println!("\n{table}");
    survivors.iter().for_each(|name| println!("not found: {name}"));
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_and_survivors_named() {
        let of = |name: &str, summary: &str| json!({ "scenario": { "Mutant": { "name": name } }, "summary": summary });
        let baseline = json!({ "scenario": "Baseline", "summary": "Success" });
        let outcomes = [
            baseline,
            of("a", "CaughtMutant"),
            of("b", "Timeout"),
            of("c", "Unviable"),
            of("d", "MissedMutant"),
            of("e", "CaughtMutant"),
        ];
        let outcome = Outcome::parse(&json!({ "outcomes": outcomes })).unwrap();
        let survivors = vec!["d".to_owned()];
        assert_eq!(outcome, Outcome { caught: 2, timed_out: 1, unviable: 1, survivors });
        assert!((outcome.share() - 0.75).abs() < 1e-9);
        assert_eq!(Outcome::parse(&json!({})), None);
    }
}

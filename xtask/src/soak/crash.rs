//! `cargo xtask soak crash`: cuts simulated disks' power at every operation of random histories and compares the
//! remaining data with a model, for stores alone and for whole spilling logs.

use std::process::Command;

use clap::Args;
use serde_json::json;

use super::random::SplitMix64;
use super::{clear_progress, seed_from_clock, show_progress};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace, command_line, run_checked};

/// Power cuts per process, all from one seed.
///
/// Few enough to repeat a failure in seconds.
const CRASHES_PER_PROCESS: u64 = 5_000;
/// Levels to test, with the divisor of `--crashes`: a log's power cut takes several times as long as a store's.
const LEVELS: [(&str, u64); 2] = [("store", 1), ("log", 5)];

/// Options for `cargo xtask soak crash`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of power cuts of stores; logs get a fifth of it
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    crashes: u64,
    /// Seed for all histories [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Progress and failures of one level.
struct Level {
    name: &'static str,
    crashes: u64,
    failures: Vec<Failure>,
}

/// A failed process.
struct Failure {
    /// Command that repeats it.
    command: String,
    /// Its stdout and stderr.
    output: String,
}

/// Runs the soak test.
///
/// Returns `true` if no power cut led to a mismatch.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let example = ["--release", "--package", "counterfoil-fuzz", "--example", "cut_power"];
    run_checked(&mut workspace.cargo(["build"].into_iter().chain(example)))?;
    let program = workspace.target().join("release/examples/cut_power");
    let mut random = SplitMix64::new(seed);
    let mut levels = Vec::new();
    for (name, divisor) in LEVELS {
        let wanted = options.crashes.div_ceil(divisor);
        let mut level = Level { name, crashes: 0, failures: Vec::new() };
        while level.crashes < wanted {
            let crashes = CRASHES_PER_PROCESS.min(wanted - level.crashes);
            let mut command = Command::new(&program);
            // 32 bits keep the seed short enough to type.
            command.args([name, &crashes.to_string(), &(random.next_u64() >> 32).to_string()]);
            let failed = |source| TaskError::Start { program: command_line(&command), source };
            let output = Command::new(command.get_program()).args(command.get_args()).output().map_err(failed)?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            match (output.status.success(), text.parse::<u64>()) {
                (true, Ok(done)) => level.crashes += done,
                _ => {
                    level.crashes += crashes;
                    let output = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
                    clear_progress();
                    eprintln!("FAILED: {}\n{output}", command_line(&command));
                    level.failures.push(Failure { command: command_line(&command), output });
                }
            }
            report_progress(&level, wanted);
        }
        levels.push(level);
    }
    Ok(print_report(options, seed, &levels))
}

fn report_progress(level: &Level, wanted: u64) {
    let Level { name, crashes, failures } = level;
    let line = format!("{name}: {crashes} of {wanted} power cuts, {} failures", failures.len());
    show_progress(&line, *crashes >= wanted, crashes % (20 * CRASHES_PER_PROCESS) < CRASHES_PER_PROCESS);
}

/// Prints the table or the JSON object.
///
/// Returns `true` if there is no failure.
fn print_report(options: &Options, seed: u64, levels: &[Level]) -> bool {
    let passed = levels.iter().all(|level| level.failures.is_empty());
    if options.json {
        let levels = levels.iter().map(|level| {
            let failures: Vec<_> =
                level.failures.iter().map(|failure| json!([failure.command, failure.output])).collect();
            json!({ "of": level.name, "power_cuts": level.crashes, "wrong": failures })
        });
        println!("{}", json!({ "seed": seed, "passed": passed, "levels": levels.collect::<Vec<_>>() }));
        return passed;
    }
    let mut table = Table::new(["level", "power cuts", "failures"]);
    for level in levels {
        table.row([level.name.to_owned(), level.crashes.to_string(), level.failures.len().to_string()]);
    }
    println!("\n{table}");
    let total: u64 = levels.iter().map(|level| level.crashes).sum();
    println!("{total} power cuts, seed {seed}: {}", if passed { "passed" } else { "FAILED" });
    passed
}

//! `cargo xtask soak crash`: the power of simulated disks is cut at every operation of random histories, and what is left is
//! compared with a model; of stores alone, and of whole logs that spill all the time.

use std::io::{self, IsTerminal, Write};
use std::process::Command;

use clap::Args;
use serde_json::json;

use super::random::SplitMix64;
use super::{clear_progress, seed_from_clock};
use crate::table::Table;
use crate::workspace::{TaskError, Workspace, command_line, run_to_end};

/// Power cuts in one run of the program, of one seed: a failure is repeated in seconds.
const CRASHES_EACH: u64 = 5_000;
/// What is explored. A cut of a log costs several times one of a store, so there are fewer.
const LEVELS: [(&str, u64); 2] = [("store", 1), ("log", 5)];

/// How many power cuts, and from which seed.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often the power of stores is cut; that of logs a fifth as often
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    crashes: u64,
    /// Draws all histories [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

struct Level {
    name: &'static str,
    crashes: u64,
    /// What was wrong, and how to repeat it.
    wrong: Vec<(String, String)>,
}

/// Runs the soak; true if nothing was wrong.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let example = ["--release", "--package", "counterfoil-fuzz", "--example", "cut_power"];
    run_to_end(&mut workspace.cargo(["build"].into_iter().chain(example)))?;
    let program = workspace.target().join("release/examples/cut_power");
    let mut random = SplitMix64::new(seed);
    let mut levels = Vec::new();
    for (name, divisor) in LEVELS {
        let wanted = options.crashes.div_ceil(divisor);
        let mut level = Level { name, crashes: 0, wrong: Vec::new() };
        while level.crashes < wanted {
            let crashes = CRASHES_EACH.min(wanted - level.crashes);
            let mut command = Command::new(&program);
            // Short enough to be typed again.
            command.args([name, &crashes.to_string(), &(random.next_u64() >> 32).to_string()]);
            let failed = |source| TaskError::Start { program: command_line(&command), source };
            let output = Command::new(command.get_program()).args(command.get_args()).output().map_err(failed)?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            match (output.status.success(), text.parse::<u64>()) {
                (true, Ok(done)) => level.crashes += done,
                _ => {
                    level.crashes += crashes;
                    let what = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
                    clear_progress();
                    eprintln!("WRONG: {}\n{what}", command_line(&command));
                    level.wrong.push((command_line(&command), what));
                }
            }
            report_progress(&level, wanted);
        }
        levels.push(level);
    }
    Ok(conclude(options, seed, &levels))
}

fn report_progress(level: &Level, wanted: u64) {
    let Level { name, crashes, wrong } = level;
    let line = format!("{name}: {crashes} of {wanted} power cuts, {} wrong", wrong.len());
    if io::stderr().is_terminal() {
        clear_progress();
        eprint!("{line}");
        // Progress is a courtesy: a stream that refuses it must not end the soak.
        let _ = io::stderr().flush();
        if *crashes >= wanted {
            eprintln!();
        }
    } else if *crashes >= wanted || crashes % (20 * CRASHES_EACH) < CRASHES_EACH {
        eprintln!("{line}");
    }
}

fn conclude(options: &Options, seed: u64, levels: &[Level]) -> bool {
    let passed = levels.iter().all(|level| level.wrong.is_empty());
    if options.json {
        let levels = levels.iter().map(|level| {
            let wrong: Vec<_> = level.wrong.iter().map(|(command, what)| json!([command, what])).collect();
            json!({ "of": level.name, "power_cuts": level.crashes, "wrong": wrong })
        });
        println!("{}", json!({ "seed": seed, "passed": passed, "levels": levels.collect::<Vec<_>>() }));
        return passed;
    }
    let mut table = Table::new(["of", "power cuts", "wrong"]);
    for level in levels {
        table.row([level.name.to_owned(), level.crashes.to_string(), level.wrong.len().to_string()]);
    }
    println!("\n{table}");
    let all: u64 = levels.iter().map(|level| level.crashes).sum();
    println!("{all} power cuts, seed {seed}: {}", if passed { "passed" } else { "FAILED" });
    passed
}

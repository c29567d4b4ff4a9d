//! `counterfoil bench`: log costs on this machine.

mod report;
mod rules;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use counterfoil::{OpenError, StoreError};
use counterfoil_benches::disk::{self, DiskError, DiskOptions};
use counterfoil_benches::instructions::{Stretch, Subject, count};
use counterfoil_benches::{RunOptions, append, release, replay};
use counterfoil_workloads::Class;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Failure, print};
use report::report;

/// Benchmark the log against a plain memory copy, or plain disk I/O, measured in the same run.
///
/// Rounds of the log and the baseline (the floor) alternate, so a change in machine speed affects both. Each figure is
/// the median over all rounds.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// Benchmark to run
    #[arg(value_enum)]
    benchmark: Benchmark,
    /// Rounds, each for log and floor [default: 32, or 16 with --quick; disk benchmarks: 15; rules: 11, or 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// Use short rounds: a rough answer in a few seconds
    #[arg(long)]
    quick: bool,
    /// Directory on the disk to measure, for spill, recover, disk-replay and spilling [default: /var/tmp]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// For append: also count the instructions per message with valgrind, if installed (takes half a minute)
    #[arg(long)]
    instructions: bool,
    /// Print a JSON array with one object per measurement
    #[arg(long)]
    pub(crate) json: bool,
    /// Send the given messages and print nothing; run under valgrind by --instructions
    #[arg(long, hide = true, value_name = "LOOP")]
    exactly: Option<Stretch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// Claim, write, commit and release a message, against copying the same bytes into a ring
    Append,
    /// Read records back in order, against copying them
    Replay,
    /// Acknowledge records, and free what a checkpoint covers, with few and with many records per chunk
    Release,
    /// Write blocks and sync them, against plain io_uring writes
    Spill,
    /// Open a store and verify every checksum, against plain reads of its files
    Recover,
    /// Read a lane back from disk, record by record, against plain reads of its files
    DiskReplay,
    /// Append while the store is being written, against appending while the other core copies memory
    Spilling,
    /// Run CG, FT and Laplace as local processes under each rule, against the same without a log. Takes ten minutes
    Rules,
}

impl Benchmark {
    fn uses_disk(self) -> bool {
        matches!(self, Benchmark::Spill | Benchmark::Recover | Benchmark::DiskReplay | Benchmark::Spilling)
    }
}

pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    if let Some(stretch) = &arguments.exactly {
        stretch.run().map_err(Failure::failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.instructions && arguments.benchmark != Benchmark::Append {
        return Err(Failure::usage("--instructions is only available for append"));
    }
    if arguments.dir.is_some() && !arguments.benchmark.uses_disk() {
        return Err(Failure::usage("--dir is only available for spill, recover, disk-replay and spilling"));
    }
    let rows = measure(arguments)?;
    if arguments.instructions && rows.iter().all(|row| row["instructions"].is_null()) {
        eprintln!("note: no instructions counted: valgrind is missing or can't run this program");
    }
    if arguments.json {
        print(&Value::Array(rows).to_string())?;
    } else {
        print(&report(arguments.benchmark, &rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &BenchArguments) -> Result<Vec<Value>, Failure> {
    let options = run_options(arguments);
    let on_disk = disk_options(arguments);
    // Drawn on stderr, only on a terminal, and rarely: the benchmark threads need the processors.
    let progress = ProgressBar::new_spinner().with_message("measuring");
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(500));
    let rows = match arguments.benchmark {
        Benchmark::Append => append::run(&options).map_err(Failure::failed).and_then(as_values).map(|mut rows| {
            count_instructions(&mut rows, arguments.instructions, &progress);
            rows
        }),
        Benchmark::Replay => replay::run(&options).map_err(Failure::failed).and_then(as_values),
        Benchmark::Release => release::run(&options).map_err(Failure::failed).and_then(as_values),
        Benchmark::Spill => disk::spill::run(&on_disk).map_err(disk_failure).and_then(as_values),
        Benchmark::Recover => disk::recover::run(&on_disk).map_err(disk_failure).and_then(as_values),
        Benchmark::DiskReplay => disk::replay::run(&on_disk).map_err(disk_failure).and_then(as_values),
        Benchmark::Spilling => disk::spilling::run(&on_disk).map_err(disk_failure).and_then(as_values),
        Benchmark::Rules => rules::run(rule_options(arguments), &progress).and_then(as_values),
    };
    progress.finish_and_clear();
    rows
}

/// Converts a disk benchmark's error; names `--dir` if the directory is the cause.
fn disk_failure(error: DiskError) -> Failure {
    Failure::failed(match error {
        // The store's directory is created below `--dir`, so the error itself names a path unknown to the user.
        DiskError::Open(OpenError::Dir(error)) => format!("--dir: {error}"),
        DiskError::Store(StoreError::DiskFull { .. }) => format!("{error} (--dir)"),
        error => error.to_string(),
    })
}

fn run_options(arguments: &BenchArguments) -> RunOptions {
    let mut options = RunOptions::default();
    if arguments.quick {
        options = RunOptions { rounds: 16, turn: Duration::from_millis(1) };
    }
    if let Some(rounds) = arguments.rounds {
        options.rounds = rounds as usize;
    }
    options
}

fn disk_options(arguments: &BenchArguments) -> DiskOptions {
    let mut options = DiskOptions::default();
    if arguments.quick {
        options.turn_bytes = 32 << 20;
    }
    if let Some(rounds) = arguments.rounds {
        options.rounds = rounds as usize;
    }
    if let Some(dir) = &arguments.dir {
        options.dir.clone_from(dir);
    }
    options
}

fn rule_options(arguments: &BenchArguments) -> rules::Options {
    let (rounds, class) = if arguments.quick { (5, Class::S) } else { (11, Class::A) };
    rules::Options { rounds: arguments.rounds.unwrap_or(rounds), class }
}

fn as_values<T: Serialize>(rows: Vec<T>) -> Result<Vec<Value>, Failure> {
    rows.iter().map(serde_json::to_value).collect::<Result<_, _>>().map_err(Failure::failed)
}

/// Fills in the fields `instructions` and `floor_instructions`.
///
/// They are null if not requested, if valgrind is missing, and in rows with several writers.
fn count_instructions(rows: &mut [Value], wanted: bool, progress: &ProgressBar) {
    let program = std::env::current_exe().ok().filter(|_| wanted);
    let mut floors = BTreeMap::new();
    for row in rows {
        let (mut log, mut floor) = (None, None);
        if let (Some(program), Some(1)) = (&program, row["writers"].as_u64()) {
            let size = row["size"].as_u64().unwrap_or(0) as usize;
            let arguments = ["bench", "append", "--exactly"];
            progress.set_message(format!("counting the instructions of {size} bytes"));
            let subject = Subject::of_row(row["tier"].as_str().unwrap_or(""), row["keep"].as_str().unwrap_or(""));
            log = subject.and_then(|subject| count(program, &arguments, subject, size));
            floor = *floors.entry(size).or_insert_with(|| count(program, &arguments, Subject::Floor, size));
        }
        row["instructions"] = json!(log);
        row["floor_instructions"] = json!(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_null_unless_requested() {
        let mut rows = [json!({ "size": 64, "tier": "volatile", "writers": 1, "keep": "acked" })];
        count_instructions(&mut rows, false, &ProgressBar::hidden());
        assert!(rows[0]["instructions"].is_null() && rows[0]["floor_instructions"].is_null());
        assert!(rows[0].as_object().is_some_and(|fields| fields.contains_key("instructions")));
    }
}

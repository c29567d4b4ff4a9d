//! `counterfoil bench`: what the log costs on this machine.

mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use counterfoil::OpenError;
use counterfoil::store::StoreError;
use counterfoil_benches::disk::{self, DiskError, DiskOptions};
use counterfoil_benches::instructions::{Stretch, Subject, count};
use counterfoil_benches::{RunOptions, append, release, replay};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Failure, print};
use report::report;

/// Measure the log, as ratios to a naked copy or to the naked disk within one run.
///
/// Floor and log take turns, so that a machine that gets slower or faster meanwhile does so to both; every figure is
/// the median over all turns.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// What to measure
    #[arg(value_enum)]
    what: What,
    /// How many turns each of log and floor takes [default: 32, with --quick 16; on the disk 15]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// Short turns: a rough answer in a few seconds
    #[arg(long)]
    quick: bool,
    /// For spill, recover, disk-replay and spilling: a directory on the disk to be measured [default: /var/tmp]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// For append: count the instructions of one message as well, where valgrind is installed (takes half a minute)
    #[arg(long)]
    instructions: bool,
    /// Print one JSON array, with an object for each measurement
    #[arg(long)]
    pub(crate) json: bool,
    /// Send so many messages and print nothing: what valgrind counts
    #[arg(long, hide = true, value_name = "LOOP")]
    exactly: Option<Stretch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Claim, write, commit and release, against copying the same bytes into a ring
    Append,
    /// Reading records back in order, against copying them
    Replay,
    /// Acknowledging, and freeing what a checkpoint covers, with few and with many records in the same memory
    Release,
    /// Writing blocks and making them durable, against naked writes of io_uring
    Spill,
    /// Opening a store, every checksum verified, against naked reads of its files
    Recover,
    /// Reading a lane back from disk, record by record, against naked reads of its files
    DiskReplay,
    /// Appending while the store is being written, against appending while the other core copies memory
    Spilling,
}

impl What {
    fn is_of_disk(self) -> bool {
        matches!(self, What::Spill | What::Recover | What::DiskReplay | What::Spilling)
    }
}

pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    if let Some(stretch) = &arguments.exactly {
        stretch.run().map_err(Failure::failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.instructions && arguments.what != What::Append {
        return Err(Failure::usage("--instructions goes with append only"));
    }
    if arguments.dir.is_some() && !arguments.what.is_of_disk() {
        return Err(Failure::usage("--dir goes with spill, recover, disk-replay and spilling only"));
    }
    let rows = measure(arguments)?;
    if arguments.instructions && rows.iter().all(|row| row["instructions"].is_null()) {
        eprintln!("note: no instructions were counted: valgrind is missing, or can't run this program");
    }
    if arguments.json {
        print(&Value::Array(rows).to_string())?;
    } else {
        print(&report(arguments.what, &rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &BenchArguments) -> Result<Vec<Value>, Failure> {
    let options = run_options(arguments);
    let on_disk = disk_options(arguments);
    // Drawn on stderr, and only on a terminal; seldom, because the measured threads want the processors.
    let progress = ProgressBar::new_spinner().with_message("measuring");
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(500));
    let rows = match arguments.what {
        What::Append => append::run(&options).map_err(Failure::failed).and_then(as_values).map(|mut rows| {
            count_instructions(&mut rows, arguments.instructions, &progress);
            rows
        }),
        What::Replay => replay::run(&options).map_err(Failure::failed).and_then(as_values),
        What::Release => release::run(&options).map_err(Failure::failed).and_then(as_values),
        What::Spill => disk::spill::run(&on_disk).map_err(of_disk).and_then(as_values),
        What::Recover => disk::recover::run(&on_disk).map_err(of_disk).and_then(as_values),
        What::DiskReplay => disk::replay::run(&on_disk).map_err(of_disk).and_then(as_values),
        What::Spilling => disk::spilling::run(&on_disk).map_err(of_disk).and_then(as_values),
    };
    progress.finish_and_clear();
    rows
}

/// What is wrong on the disk that was to be measured, and which option that is about.
fn of_disk(error: DiskError) -> Failure {
    Failure::failed(match error {
        // Its files are made in a directory of its own, as others are in shared memory.
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

fn as_values<T: Serialize>(rows: Vec<T>) -> Result<Vec<Value>, Failure> {
    rows.iter().map(serde_json::to_value).collect::<Result<_, _>>().map_err(Failure::failed)
}

/// Fills in the fields `instructions` and `floor_instructions`: null where they were not asked for, where valgrind is
/// missing, and in rows of several writers.
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
    fn instructions_that_were_not_asked_for_are_null() {
        let mut rows = [json!({ "size": 64, "tier": "volatile", "writers": 1, "keep": "acked" })];
        count_instructions(&mut rows, false, &ProgressBar::hidden());
        assert!(rows[0]["instructions"].is_null() && rows[0]["floor_instructions"].is_null());
        assert!(rows[0].as_object().is_some_and(|fields| fields.contains_key("instructions")));
    }
}

//! `counterfoil bench`: what the log costs on this machine.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::Failure;

/// Measure the log, as ratios to a naked copy within one run.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// What to measure
    #[arg(value_enum)]
    what: What,
    /// Print one JSON array with a row for each measurement
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Claim, write, commit and release, against copying the same bytes into a ring
    Append,
    /// Reading records back in order, against copying them
    Replay,
    /// Freeing what a checkpoint covers, with few and with many records in the same memory
    Release,
}

pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode, Failure> {
    let _ = arguments.json;
    Err(Failure::failed(format!("bench {:?} is not there yet", arguments.what)))
}

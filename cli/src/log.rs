//! `counterfoil log`: inspection, verification and repair of stores on disk.

mod dump;
mod expected;
mod inspect;
mod lanes;
mod loss;
mod output;
mod repair;
mod stats;
mod stores;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::Failure;

/// Inspect ranks' stores on disk, and repair damaged ones.
///
/// A store is one rank's private directory: segments with records, checkpoints, and a manifest naming the valid
/// checkpoints. All subcommands but `repair` only read; they work on full disks, read-only file systems, damaged
/// stores, and stores being written by a running process. A rank opening a store for writing waits up to 30 seconds for
/// them to finish.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    Inspect(inspect::InspectArguments),
    Verify(verify::VerifyArguments),
    Dump(dump::DumpArguments),
    Stats(stats::StatsArguments),
    Repair(repair::RepairArguments),
}

/// Arguments shared by all subcommands.
#[derive(Debug, Args)]
struct StoreArguments {
    /// A rank's store, or a job's directory of stores: rank-0, rank-1 and so on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print a JSON object, or for a job's directory an array with one object per rank
    #[arg(long)]
    json: bool,
}

impl LogArguments {
    /// Returns `true` if errors are also printed as JSON.
    ///
    /// Not for `dump`, whose output may have begun.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            LogCommand::Inspect(arguments) => arguments.store.json,
            LogCommand::Verify(arguments) => arguments.store.json,
            LogCommand::Stats(arguments) => arguments.store.json,
            LogCommand::Repair(arguments) => arguments.store.json,
            LogCommand::Dump(_) => false,
        }
    }
}

pub(crate) fn run(arguments: &LogArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        LogCommand::Inspect(arguments) => inspect::run(arguments),
        LogCommand::Verify(arguments) => verify::run(arguments),
        LogCommand::Dump(arguments) => dump::run(arguments),
        LogCommand::Stats(arguments) => stats::run(arguments),
        LogCommand::Repair(arguments) => repair::run(arguments),
    }
}

//! `counterfoil log`: what a store on disk has, whether it is sound, and making it so again.

mod beside;
mod dump;
mod given_up;
mod inspect;
mod lanes;
mod out;
mod repair;
mod stats;
mod stores;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::Failure;

/// Look at the stores that ranks keep on disk, and repair damaged ones.
///
/// A store is the private directory of one rank: segments of records, checkpoints, and a manifest that says which of them
/// count. Everything but `repair` only reads, and works on a full disk, on a read-only file system, on damaged stores, and
/// on a store that a living process is writing. Where nobody has a store open, a rank that opens it for writing waits until
/// it was read, half a minute at the most.
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

/// Which stores, and for whom.
#[derive(Debug, Args)]
struct Place {
    /// A rank's store, or the directory that has those of a job: rank-0, rank-1 and so on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print one JSON object; for a job's directory an array, with one for each rank
    #[arg(long)]
    json: bool,
}

impl LogArguments {
    /// Whether a failure is to be an object, too. What `dump` prints may have begun by then.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            LogCommand::Inspect(arguments) => arguments.place.json,
            LogCommand::Verify(arguments) => arguments.place.json,
            LogCommand::Stats(arguments) => arguments.place.json,
            LogCommand::Repair(arguments) => arguments.place.json,
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

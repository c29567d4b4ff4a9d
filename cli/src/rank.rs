//! `counterfoil internal-rank`: one rank of a job. Started by a launcher only.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use counterfoil_runtime::local::{JoinOptions, join};
use counterfoil_workloads::Program;

use crate::Failure;
use crate::advice::with_advice;

/// Name of the subcommand; unlikely to be typed by mistake.
pub(crate) const NAME: &str = "internal-rank";

/// Run one rank of a job (started by `counterfoil demo`).
#[derive(Debug, Args)]
pub(crate) struct RankArguments {
    /// Job directory
    #[arg(long)]
    job: PathBuf,
    /// Rank number
    #[arg(long)]
    rank: u32,
    /// Incarnation: how often the rank has been replaced
    #[arg(long)]
    incarnation: u32,
    /// Process id of the launcher
    #[arg(long)]
    launcher: u32,
}

pub(crate) fn run(arguments: &RankArguments) -> Result<ExitCode, Failure> {
    let RankArguments { job, rank, incarnation, launcher } = arguments;
    let options = JoinOptions { job: job.clone(), rank: *rank, incarnation: *incarnation, launcher: *launcher };
    let (mut endpoint, program) = join(&options).map_err(|error| Failure::failed(with_advice(&error)))?;
    let outcome = Program::run(&program, &mut endpoint);
    let result: Result<(), Box<dyn std::error::Error>> = match outcome {
        Ok(outcome) => endpoint.finish(outcome).map_err(Into::into),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The launcher knows and starts a process that continues from the checkpoint.
        Err(_) if endpoint.is_rolling_back() => Ok(ExitCode::SUCCESS),
        Err(error) => {
            endpoint.fail(with_advice(&*error));
            Ok(ExitCode::from(1))
        }
    }
}

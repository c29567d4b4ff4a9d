//! `counterfoil internal-rank`: one rank of a job.
//!
//! Started only by a launcher.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use counterfoil_runtime::local::{JobOptions, JoinOptions, join};
use counterfoil_workloads::{Program, Workload};

use crate::Failure;
use crate::advice::with_advice;

/// Subcommand name; unlikely to be typed by mistake.
pub(crate) const NAME: &str = "internal-rank";

/// Returns a job in which `ranks` processes of this program run `workload`, otherwise with defaults.
pub(crate) fn job(workload: &dyn Workload, ranks: u32, checkpoint_every: Option<u64>) -> Result<JobOptions, Failure> {
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let mut job = JobOptions::new(vec![program.into(), NAME.into()], ranks);
    job.program = Program::new(workload, checkpoint_every).encode().map_err(Failure::failed)?;
    Ok(job)
}

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
    /// The launcher's process id
    #[arg(long)]
    launcher: u32,
}

pub(crate) fn run(arguments: &RankArguments) -> Result<ExitCode, Failure> {
    let RankArguments { job, rank, incarnation, launcher } = arguments;
    let options = JoinOptions { job: job.clone(), rank: *rank, incarnation: *incarnation, launcher: *launcher };
    let (mut endpoint, program) = join(&options).map_err(|error| Failure::failed(with_advice(&error)))?;
    match Program::run(&program, &mut endpoint) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The launcher knows, and starts a process continuing from the checkpoint.
        Err(_) if endpoint.is_rolling_back() => Ok(ExitCode::SUCCESS),
        Err(error) => {
            endpoint.fail(with_advice(&error));
            Ok(ExitCode::from(1))
        }
    }
}

//! `counterfoil doctor`: what this machine offers, and what to do about what it lacks.

mod disk;
mod findings;
mod judge;
mod look;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::{Failure, print};
use look::Machine;

/// Say what this machine offers to a log, and what to do about what it lacks.
///
/// Looks at the MPI libraries and whether the library that logs is built for them, at their fault tolerance (ULFM), io_uring, the limit of
/// locked memory, shared memory, and the rate of a disk. Nothing is left behind. The exit code is 1 where nothing of an MPI was
/// found, or the directory can't be written.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Where to try out io_uring and the disk [default: where temporary files go]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let dir = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let findings = judge::all(&Machine::look(&dir));
    let is_sound = judge::is_sound(&findings);
    if arguments.json {
        print(&json!({ "findings": findings, "sound": is_sound }).to_string())?;
    } else {
        for finding in &findings {
            print(&finding.to_string())?;
        }
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

//! `counterfoil doctor`: checks what this machine offers, and advises on what is missing.

mod assess;
mod disk;
mod finding;
mod probe;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::{Failure, print};
use probe::Machine;

/// Check what this machine offers for logging, and advise on what is missing.
///
/// Checks the MPI installations, whether the logging library is built for them, their fault tolerance (ULFM) and
/// Fortran bindings, io_uring, the limit of locked memory, shared memory, and the speed of a disk. Leaves no files
/// behind. The exit code is 1 if no MPI was found or the directory isn't writable.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Directory in which to test io_uring and the disk [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let dir = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let findings = assess::all(&Machine::probe(&dir));
    let is_usable = assess::is_usable(&findings);
    if arguments.json {
        print(&json!({ "findings": findings, "sound": is_usable }).to_string())?;
    } else {
        for finding in &findings {
            print(&finding.to_string())?;
        }
    }
    Ok(if is_usable { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

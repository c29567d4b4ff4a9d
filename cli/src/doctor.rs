//! `counterfoil doctor`: checks the machine's logging support, and advises on missing parts.

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

/// Check this machine's support for logging, and advise on missing parts.
///
/// Checks the MPI installations, the logging library built for them, their fault tolerance (ULFM) and Fortran bindings,
/// io_uring, the locked memory limit, shared memory, and disk speed. Leaves no files. The exit code is 1 if no MPI was
/// found or the directory isn't writable.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Directory for the io_uring and disk tests [default: the directory for temporary files]
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

//! `counterfoil internal-mpirun`: becomes mpirun, which receives SIGTERM when `counterfoil run` dies.
//!
//! Started only by `counterfoil run`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::Failure;

/// Subcommand name; unlikely to be typed by mistake.
pub(crate) const NAME: &str = "internal-mpirun";

/// Options of an mpirun for jobs that outlive failures.
///
/// The second one leaves out a fence in MPI_Finalize that waits for the dead.
pub(crate) const OUTLIVES_FAILURES: [&str; 5] = ["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1"];

/// Option of Open MPI's mpirun to leave the other processes alone when one dies; MPI doesn't notify them.
pub(crate) const LIVES_ON: &str = "--enable-recovery";

/// Become mpirun (started by `counterfoil run`).
#[derive(Debug, Args)]
pub(crate) struct MpirunArguments {
    /// `counterfoil run`'s process id
    #[arg(long)]
    launcher: u32,
    /// mpirun and its arguments
    #[arg(last = true, required = true)]
    line: Vec<OsString>,
}

/// Returns a command that becomes mpirun and, when this process dies, receives SIGTERM, on which it ends its ranks.
///
/// The caller appends mpirun's arguments.
///
/// # Errors
/// The path of this executable is unknown.
pub(crate) fn bound_to_parent(mpirun: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([NAME, "--launcher", &std::process::id().to_string(), "--"]).arg(mpirun);
    Ok(command)
}

pub(crate) fn run(arguments: &MpirunArguments) -> Result<ExitCode, Failure> {
    let (mpirun, words) = arguments.line.split_first().ok_or_else(|| Failure::usage("mpirun's path is missing"))?;
    // The setting survives the exec below. mpirun ends its ranks on SIGTERM; after SIGKILL they would notice late or
    // never.
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|errno| Failure::failed(format!("cannot request a signal for the launcher's death: {errno}")))?;
    // The launcher may have died before the request.
    if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(arguments.launcher) {
        return Err(Failure::failed("the launcher has already ended"));
    }
    // Returns only on failure.
    let source = Command::new(mpirun).args(words).exec();
    Err(Failure::failed(format!("cannot start {}: {source}", Path::new(mpirun).display())))
}

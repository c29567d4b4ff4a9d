//! `counterfoil internal-mpirun`: becomes mpirun, which is ended where `counterfoil run` dies. Started by that and not by people.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::Failure;

/// As the command line has it. Nothing that people type is similar.
pub(crate) const NAME: &str = "internal-mpirun";

/// Become mpirun (started by `counterfoil run`).
#[derive(Debug, Args)]
pub(crate) struct MpirunArguments {
    /// The process id of who waits for it
    #[arg(long)]
    launcher: u32,
    /// mpirun and its arguments
    #[arg(last = true, required = true)]
    line: Vec<OsString>,
}

/// A command that is mpirun, and is asked to end when this process dies: it ends its ranks then. It takes mpirun's arguments.
///
/// # Errors
/// The file of this program isn't known.
pub(crate) fn bound_to_this_process(mpirun: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([NAME, "--launcher", &std::process::id().to_string(), "--"]).arg(mpirun);
    Ok(command)
}

pub(crate) fn run(arguments: &MpirunArguments) -> Result<ExitCode, Failure> {
    let (mpirun, words) = arguments.line.split_first().ok_or_else(|| Failure::usage("no mpirun is named"))?;
    // What is asked for here holds for the program that this process becomes. mpirun ends its ranks on SIGTERM; of SIGKILL they would
    // learn later, or never.
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|errno| Failure::failed(format!("cannot ask for a signal at the launcher's death: {errno}")))?;
    // It may have died before that.
    if getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()) != Some(arguments.launcher) {
        return Err(Failure::failed("who was to wait for mpirun has ended"));
    }
    // This returns only where it fails.
    let source = Command::new(mpirun).args(words).exec();
    Err(Failure::failed(format!("cannot start {}: {source}", Path::new(mpirun).display())))
}

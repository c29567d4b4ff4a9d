//! Logging library benchmarks.

pub(crate) mod applications;
mod floor;
mod interval;
pub(crate) mod netpipe;
pub(crate) mod operations;
pub(crate) mod ping_pong;
mod rounds;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::Mpi;
use crate::workspace::{TaskError, command_line};

/// Reads a rank's summary from its job's summary directory.
///
/// Fails if logging stopped before the program ended.
fn read_summary(folder: &Path, rank: u32) -> Result<Value, String> {
    let path = folder.join(format!("rank-{rank}.json"));
    let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let summary: Value = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    if !summary["gave_up"].is_null() || summary["logging_stopped"] != json!(false) {
        return Err(format!("logging stopped before the program ended: {}", summary["gave_up"]));
    }
    Ok(summary)
}

/// Returns an `mpirun` command for two ranks, each bound to a core, with these BTL components.
fn mpirun_two_ranks(mpi: &Mpi, btl: &str) -> Command {
    let mut command = mpi.mpirun(2);
    command.args(["--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl", btl]);
    command
}

/// Returns a `counterfoil run --recover` command for two ranks, each bound to a core, without a spare process.
///
/// The ranks use shared memory and keep all messages. The caller appends further options and the program.
fn recover_two_ranks(mpi: &Mpi, counterfoil: &Path) -> Command {
    let mut command = Command::new(counterfoil);
    mpi.set_environment(&mut command);
    command.args([
        "run",
        "--no-progress",
        "--json",
        "--recover",
        "--spares",
        "0",
        "--budget",
        "4GiB",
        "-n",
        "2",
        "--mpi",
    ]);
    command.arg(mpi.selector());
    command.args(["--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl", mpi.transports()[0].1]);
    command
}

/// Preloads the library into the ranks, but not into the launcher, and sets its variables.
fn preload_library(command: &mut Command, library: &Path, variables: &[(&str, &str)]) {
    for (name, value) in variables {
        command.env(name, value).args(["-x", name]);
    }
    command.arg("-x").arg(format!("LD_PRELOAD={}", library.display()));
}

/// Runs a program under `command`, an `mpirun`.
///
/// `LD_LIBRARY_PATH` selects the measured MPI for programs without a run path.
fn run_program(command: &mut Command, mpi: &Mpi, program: &Path, arguments: &[&str]) -> Result<Output, TaskError> {
    command.env("LD_LIBRARY_PATH", &mpi.library_dir).args(["-x", "LD_LIBRARY_PATH"]);
    run(command.arg(program).args(arguments))
}

/// Runs a command without input.
///
/// Its stderr is shown if it fails.
fn run(command: &mut Command) -> Result<Output, TaskError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| TaskError::Start { program: command_line(command), source })?;
    if output.status.success() {
        return Ok(output);
    }
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    Err(TaskError::Failed { program: command_line(command) })
}

//! Runs of mpirun.

use std::process::{Command, Output};

/// Exit code of an mpirun unable to start its own server ("The PMIx server's listener thread failed to start"), seen
/// once in some hundred to a thousand Open MPI 5 launches, with and without the library.
const NOT_LAUNCHED: i32 = 213;

/// Runs a job, again if mpirun has ended before it started a process.
pub(crate) fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    if output.status.code() == Some(NOT_LAUNCHED) && output.stdout.is_empty() {
        eprintln!("mpirun ended before it started a process; starting it again");
        return command.output().unwrap();
    }
    output
}

//! What the library between a program and its MPI costs.

pub(crate) mod applications;
mod interval;
pub(crate) mod ping_pong;

use std::path::Path;
use std::process::Command;

use super::Mpi;

/// Two ranks, each bound to a core, and the layers that their bytes go by.
fn two_ranks(mpi: &Mpi, layers: &str) -> Command {
    let mut command = mpi.mpirun(2);
    command.args(["--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl", layers]);
    command
}

/// Loads the library into the ranks, not into the launcher, and tells it something.
fn with_library(command: &mut Command, library: &Path, variables: &[(&str, &str)]) {
    for (name, value) in variables {
        command.env(name, value).args(["-x", name]);
    }
    command.arg("-x").arg(format!("LD_PRELOAD={}", library.display()));
}

//! `cargo xtask preload`: the library that stands between an unmodified program and its MPI.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use super::{Choice, Toolkit};
use crate::workspace::{TaskError, Workspace, run_to_end};

/// The library's file.
const FILE: &str = "libcounterfoil_mpi.so";

/// For which MPI.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
}

/// Builds the library and puts it where `counterfoil run` looks for it; true if it is there.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let toolkit = Toolkit::ready(workspace, &options.choice)?;
    println!("MPI: {}", toolkit.mpi);
    println!("{}", build(workspace, &toolkit)?.display());
    Ok(true)
}

/// The same for an MPI that is ready; gives the library's place.
pub(crate) fn build(workspace: &Workspace, toolkit: &Toolkit) -> Result<PathBuf, TaskError> {
    let built = workspace.target().join("mpi").join(format!("preload-{}", toolkit.mpi.name));
    let mut command = toolkit.cargo(workspace);
    // Without a path to its MPI: it takes the one that the program takes.
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("CARGO_TARGET_DIR", &built);
    run_to_end(command.args(["build", "--release", "--package", "counterfoil-mpi-preload", "--lib"]))?;
    let file = place(workspace, &toolkit.mpi.name);
    let folder = file.parent().unwrap_or(workspace.target());
    let failed = |path: PathBuf| move |source| TaskError::File { path, source };
    fs::create_dir_all(folder).map_err(failed(folder.to_owned()))?;
    // Programs that run with the old one keep it.
    let new = folder.join("new");
    fs::copy(built.join("release").join(FILE), &new).map_err(failed(new.clone()))?;
    fs::rename(&new, &file).map_err(failed(file.clone()))?;
    Ok(file)
}

/// Where the library for an MPI is.
fn place(workspace: &Workspace, mpi: &str) -> PathBuf {
    workspace.target().join("preload").join(mpi).join(FILE)
}

//! `cargo xtask preload`: builds the logging library, which is preloaded into unmodified MPI programs.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use super::{Choice, Toolkit};
use crate::workspace::{TaskError, Workspace, run_checked};

/// File name of the library.
const FILE: &str = "libcounterfoil_mpi.so";

/// Options of `cargo xtask preload`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
}

/// Builds the library and prints its path. Returns `true`, since a failed build is an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let toolkit = Toolkit::find_or_install(workspace, &options.choice)?;
    println!("MPI: {}", toolkit.mpi);
    println!("{}", build(workspace, &toolkit)?.display());
    Ok(true)
}

/// Builds the library, installs it in the directory that `counterfoil run` searches, and returns its path.
pub(crate) fn build(workspace: &Workspace, toolkit: &Toolkit) -> Result<PathBuf, TaskError> {
    let built = workspace.target().join("mpi").join(format!("preload-{}", toolkit.mpi.name));
    let arguments = ["build", "--release", "--package", "counterfoil-mpi-preload", "--lib"];
    let mut command = toolkit.cargo(workspace, arguments);
    // Without a run path, the library uses the MPI that the program has loaded.
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("CARGO_TARGET_DIR", &built);
    run_checked(&mut command)?;
    let file = library_path(workspace, &toolkit.mpi.name);
    let folder = file.parent().unwrap_or(workspace.target());
    let failed = |path: PathBuf| move |source| TaskError::File { path, source };
    fs::create_dir_all(folder).map_err(failed(folder.to_owned()))?;
    // The rename leaves the old file to programs that have it loaded.
    let new = folder.join("new");
    fs::copy(built.join("release").join(FILE), &new).map_err(failed(new.clone()))?;
    fs::rename(&new, &file).map_err(failed(file.clone()))?;
    Ok(file)
}

/// Returns the path of the library for an MPI.
fn library_path(workspace: &Workspace, mpi: &str) -> PathBuf {
    workspace.target().join("preload").join(mpi).join(FILE)
}

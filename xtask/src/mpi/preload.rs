//! `cargo xtask preload`: builds the libraries preloaded into unmodified MPI programs.

use std::env;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use counterfoil_mpi_discovery::Implementation;
use counterfoil_mpi_discovery::layout::{self, LIBRARY, RECOVERY_LIBRARY};

use super::{Choice, Toolkit};
use crate::workspace::{TaskError, Workspace, run_checked};

/// Options for `cargo xtask preload`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
}

/// Builds the libraries and prints the logging library's path, and the MPI's directory if it isn't in `PATH`.
///
/// Returns `true`, since a failed build is an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let toolkit = Toolkit::find_or_install_any(workspace, &options.choice)?;
    println!("MPI: {}", toolkit.mpi);
    println!("{}", build(workspace, &toolkit)?.display());
    let path = env::var_os("PATH").unwrap_or_default();
    if let Some(bin) = toolkit.mpi.mpicc.parent()
        && !env::split_paths(&path).any(|dir| dir == bin)
    {
        println!("For mpicc and mpirun of this MPI: export PATH=\"{}:$PATH\"", bin.display());
    }
    Ok(true)
}

/// Builds the libraries and installs them in the directory searched by `counterfoil run`.
///
/// Returns the path of the first one: the logging library, which MPICH doesn't have.
pub(crate) fn build(workspace: &Workspace, toolkit: &Toolkit) -> Result<PathBuf, TaskError> {
    let built = layout::installations(workspace.target()).join(format!("preload-{}", toolkit.mpi.name));
    let libraries = [("counterfoil-mpi-preload", LIBRARY), ("counterfoil-mpi-recover", RECOVERY_LIBRARY)];
    let libraries = match toolkit.mpi.implementation {
        Implementation::OpenMpi => &libraries[..],
        Implementation::Mpich => &libraries[1..],
    };
    let mut command = toolkit.cargo(workspace, ["build", "--release", "--lib"]);
    command.args(libraries.iter().flat_map(|(package, _)| ["--package", package]));
    command.env("CARGO_TARGET_DIR", &built);
    run_checked(&mut command)?;
    let folder = layout::preload(workspace.target(), &toolkit.mpi.name);
    let failed = |path: PathBuf| move |source| TaskError::File { path, source };
    fs::create_dir_all(&folder).map_err(failed(folder.clone()))?;
    for (_, library) in libraries {
        // The rename leaves the old file to programs that have it loaded.
        let (new, file) = (folder.join("new"), folder.join(library));
        fs::copy(built.join("release").join(library), &new).map_err(failed(new.clone()))?;
        fs::rename(&new, &file).map_err(failed(file.clone()))?;
    }
    Ok(folder.join(libraries[0].1))
}

//! `cargo xtask mpi`: finds an MPI or installs one, and builds what needs one, `mpi/`, which is a workspace of its own.
//!
//! Nothing else of the project knows MPI: the root workspace builds on a machine without one. There is one target folder for
//! each MPI, below the root's, because the bindings to one are not those to another.

pub(crate) mod bench;
pub(crate) mod error;
mod find;
mod libclang;
pub(crate) mod preload;
mod pypi;
mod scratch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use serde_json::json;

use crate::workspace::{TaskError, Workspace, cargo, run_to_end};
pub(crate) use error::MpiError;
pub(crate) use find::Mpi;

/// Which MPI, and what to do with it.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// What cargo is to do in mpi/ [default: build --release]
    #[arg(last = true, value_name = "CARGO ARGUMENTS")]
    arguments: Vec<String>,
}

/// Which MPI.
#[derive(Debug, Default, Args)]
pub(crate) struct Choice {
    /// `wheel` (Open MPI from PyPI, installed into cargo's target folder), `debian`, or the folder in which an Open MPI is
    /// installed [default: what COUNTERFOIL_MPI says, else the mpicc in PATH, else wheel]
    #[arg(long, value_name = "wheel|debian|PREFIX")]
    mpi: Option<String>,
}

/// Runs cargo in `mpi/`; true if it did what it was to do.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let toolkit = Toolkit::ready(workspace, &options.choice)?;
    println!("MPI: {}", toolkit.mpi);
    let mut command = toolkit.cargo(workspace);
    if options.arguments.is_empty() {
        command.args(["build", "--release"]);
    } else {
        command.args(&options.arguments);
    }
    run_to_end(&mut command)?;
    toolkit.describe()?;
    println!("built in {}", toolkit.target.display());
    Ok(true)
}

/// An MPI, and all that a build against it needs.
#[derive(Debug)]
pub(crate) struct Toolkit {
    pub(crate) mpi: Mpi,
    /// The target folder of builds against this MPI.
    pub(crate) target: PathBuf,
    libclang: libclang::Libclang,
}

impl Toolkit {
    /// Finds or installs what is needed.
    pub(crate) fn ready(workspace: &Workspace, choice: &Choice) -> Result<Self, MpiError> {
        let folder = workspace.target().join("mpi");
        let mpi = Mpi::find(choice.mpi.as_deref(), &folder)?;
        let libclang = libclang::Libclang::find(&folder)?;
        let target = folder.join(format!("build-{}", mpi.name));
        Ok(Self { mpi, target, libclang })
    }

    /// Leaves a note in the target folder, by which `counterfoil demo --mpi` finds the launcher that fits.
    fn describe(&self) -> Result<(), MpiError> {
        let path = self.target.join("mpi.json");
        let note = json!({ "version": format!("Open MPI {}", self.mpi.version), "mpirun": self.mpi.mpirun });
        std::fs::write(&path, note.to_string()).map_err(MpiError::file(&path))
    }

    /// Builds a program of `mpi/`, optimised, and gives its place.
    pub(crate) fn program(&self, workspace: &Workspace, name: &str) -> Result<PathBuf, TaskError> {
        run_to_end(self.cargo(workspace).args(["build", "--quiet", "--release", "--bin", name]))?;
        Ok(self.target.join("release").join(name))
    }

    /// A cargo command in `mpi/`, to be given its arguments.
    pub(crate) fn cargo(&self, workspace: &Workspace) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(workspace.root().join("mpi"));
        command.env("CARGO_TARGET_DIR", &self.target);
        command.env("MPICC", &self.mpi.mpicc);
        // Programs that are started without mpirun find their MPI, too.
        let mut flags = OsString::from("-Clink-arg=-Wl,-rpath,");
        flags.push(&self.mpi.libraries);
        command.env("CARGO_ENCODED_RUSTFLAGS", flags);
        self.mpi.environment(&mut command);
        self.libclang.environment(&mut command);
        command
    }
}

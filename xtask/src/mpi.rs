//! `cargo xtask mpi`: finds or installs an MPI and builds the workspace `mpi/`.
//!
//! The root workspace builds on a machine without MPI. Builds for different MPIs have separate target directories, since the
//! bindings to one MPI do not work with another.

pub(crate) mod bench;
pub(crate) mod error;
mod find;
mod libclang;
pub(crate) mod preload;
mod pypi;
pub(crate) mod scratch;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use serde_json::json;

use crate::workspace::{TaskError, Workspace, cargo, run_checked};
pub(crate) use error::MpiError;
use find::Implementation;
pub(crate) use find::Mpi;

/// Options of `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Arguments of cargo, run in mpi/ [default: build --release]
    #[arg(last = true, value_name = "CARGO ARGUMENTS")]
    arguments: Vec<String>,
}

/// Selection of an MPI.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Choice {
    /// `wheel` (Open MPI from PyPI, installed into cargo's target directory), `debian`, `mpich` (from PyPI, for the demo's ranks
    /// only), or the installation prefix of an Open MPI or MPICH [default: COUNTERFOIL_MPI, or else the mpicc in PATH, or else wheel]
    #[arg(long, value_name = "wheel|debian|mpich|PREFIX")]
    mpi: Option<String>,
}

/// Runs cargo in `mpi/`. Returns `true`, since a failed command is an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let toolkit = Toolkit::find_or_install_any(workspace, &options.choice)?;
    println!("MPI: {}", toolkit.mpi);
    let default = ["build", "--release"].map(str::to_owned);
    let arguments = if options.arguments.is_empty() { &default[..] } else { &options.arguments };
    run_checked(&mut toolkit.cargo(workspace, arguments))?;
    toolkit.write_description()?;
    println!("built in {}", toolkit.target.display());
    Ok(true)
}

/// An MPI and the tools to build against it.
#[derive(Debug)]
pub(crate) struct Toolkit {
    pub(crate) mpi: Mpi,
    /// Target directory of builds against this MPI.
    pub(crate) target: PathBuf,
    libclang: libclang::Libclang,
}

impl Toolkit {
    /// Finds or installs the selected Open MPI and libclang.
    pub(crate) fn find_or_install(workspace: &Workspace, choice: &Choice) -> Result<Self, MpiError> {
        let toolkit = Self::find_or_install_any(workspace, choice)?;
        match toolkit.mpi.implementation {
            Implementation::OpenMpi => Ok(toolkit),
            Implementation::Mpich => Err(MpiError::NeedsOpenMpi { found: toolkit.mpi.to_string() }),
        }
    }

    /// Finds or installs the selected MPI, of any implementation, and libclang.
    pub(crate) fn find_or_install_any(workspace: &Workspace, choice: &Choice) -> Result<Self, MpiError> {
        let folder = workspace.target().join("mpi");
        let mpi = Mpi::find(choice.mpi.as_deref(), &folder)?;
        let libclang = libclang::Libclang::find(&folder)?;
        let target = folder.join(format!("build-{}", mpi.name));
        Ok(Self { mpi, target, libclang })
    }

    /// Writes `mpi.json` into the target directory. `counterfoil demo --mpi` reads the path of the launcher from it.
    fn write_description(&self) -> Result<(), MpiError> {
        let path = self.target.join("mpi.json");
        let description = json!({
            "version": format!("{} {}", self.mpi.implementation, self.mpi.version),
            "mpirun": self.mpi.mpirun,
            "ulfm": self.mpi.has_ulfm(),
        });
        std::fs::write(&path, description.to_string()).map_err(MpiError::file(&path))
    }

    /// Builds the program that `counterfoil demo --mpi` starts.
    pub(crate) fn build_demo(&self, workspace: &Workspace) -> Result<(), TaskError> {
        self.build_program(workspace, "counterfoil-mpi-demo")?;
        Ok(self.write_description()?)
    }

    /// Builds a program of `mpi/` in release mode and returns its path.
    pub(crate) fn build_program(&self, workspace: &Workspace, name: &str) -> Result<PathBuf, TaskError> {
        run_checked(&mut self.cargo(workspace, ["build", "--quiet", "--release", "--bin", name]))?;
        Ok(self.target.join("release").join(name))
    }

    /// Returns the command `cargo ARGUMENTS` in `mpi/`.
    pub(crate) fn cargo<I>(&self, workspace: &Workspace, arguments: I) -> Command
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut command = Command::new(cargo());
        command.args(arguments).current_dir(workspace.root().join("mpi"));
        command.env("CARGO_TARGET_DIR", &self.target);
        command.env("MPICC", &self.mpi.mpicc);
        // The run path lets programs find their MPI without mpirun.
        let mut flags = OsString::from("-Clink-arg=-Wl,-rpath,");
        flags.push(&self.mpi.library_dir);
        command.env("CARGO_ENCODED_RUSTFLAGS", flags);
        self.mpi.set_environment(&mut command);
        self.libclang.set_environment(&mut command);
        command
    }
}

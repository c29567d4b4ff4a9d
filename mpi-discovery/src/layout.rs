//! Directories for MPIs and their builds, below cargo's target directory.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// File name of the logging library.
pub const LIBRARY: &str = "libcounterfoil_mpi.so";
/// File name of the recovery library.
pub const RECOVERY_LIBRARY: &str = "libcounterfoil_recover.so";
/// File in a build directory with the build's [`Description`].
pub const DESCRIPTION: &str = "mpi.json";
/// Prefix of a build directory's name, followed by the MPI's name.
pub const BUILD_PREFIX: &str = "build-";

/// Description of a build.
#[derive(Debug, Deserialize, Serialize)]
pub struct Description {
    /// Implementation and version, such as `Open MPI 5.0.11`.
    pub version: String,
    /// Path of the launcher.
    pub mpirun: PathBuf,
    /// True if the MPI has User-Level Failure Mitigation.
    #[serde(default)]
    pub ulfm: bool,
}

/// Returns the directory for builds and for MPIs from PyPI.
pub fn installations(target: &Path) -> PathBuf {
    target.join("mpi")
}

/// Returns the build directory for the MPI with this name.
pub fn build(target: &Path, name: &str) -> PathBuf {
    installations(target).join(format!("{BUILD_PREFIX}{name}"))
}

/// Returns the directory with the interposition libraries for the MPI with this name.
pub fn preload(target: &Path, name: &str) -> PathBuf {
    target.join("preload").join(name)
}

//! Version and fault tolerance of the MPI under test.

use std::process::Command;
use std::sync::OnceLock;

use super::mpirun::mpirun;

/// Returns the first output line of `mpirun --version`.
pub(crate) fn version() -> &'static str {
    static LINE: OnceLock<String> = OnceLock::new();
    LINE.get_or_init(|| {
        let output = Command::new(mpirun()).arg("--version").output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap().to_owned()
    })
}

/// Returns `true` if this MPI's processes survive another one's failure: Open MPI 5.
pub(crate) fn outlives_failures() -> bool {
    version().contains(" 5.")
}

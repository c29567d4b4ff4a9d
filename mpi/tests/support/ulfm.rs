//! Version of the MPI under test, and whether its processes outlive the failure of another one.

use std::process::Command;
use std::sync::OnceLock;

use super::mpirun::mpirun;

/// Returns the first line of what `mpirun --version` prints.
pub(crate) fn version() -> &'static str {
    static LINE: OnceLock<String> = OnceLock::new();
    LINE.get_or_init(|| {
        let output = Command::new(mpirun()).arg("--version").output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap().to_owned()
    })
}

/// Returns `true` if processes of this MPI outlive the failure of another one: Open MPI 5.
pub(crate) fn outlives_failures() -> bool {
    version().contains(" 5.")
}

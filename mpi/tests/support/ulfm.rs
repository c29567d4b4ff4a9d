//! Whether processes of the MPI under test outlive the failure of another one.

use std::process::Command;
use std::sync::OnceLock;

use super::mpirun::mpirun;

/// Returns `true` if processes of this MPI outlive the failure of another one: Open MPI 5.
pub(crate) fn outlives_failures() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let output = Command::new(mpirun()).arg("--version").output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap().contains(" 5.")
    })
}

//! A test that is run in a process of its own.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::path::Path;
use std::process::{Command, Output};

/// What a child is told: it does nothing but what this says.
pub(crate) const TOLD: &str = "COUNTERFOIL_TEST_CHILD";

/// Arguments of this test program that run one ignored test alone.
pub(crate) fn arguments(test: &str) -> [&str; 5] {
    ["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]
}

/// Runs the ignored test `test` of this program, which finds `told` in its environment.
pub(crate) fn run(test: &str, told: &str) {
    passed(
        &Command::new(std::env::current_exe().unwrap()).args(arguments(test)).env(TOLD, told).output().unwrap(),
        told,
    );
}

/// Fails with all that the child said where it did not pass.
pub(crate) fn passed(output: &Output, told: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    // No test of that name is a success, too.
    if !output.status.success() || !said.contains("1 passed") {
        panic!("{told}: {}\n{said}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
}

/// What this child was told.
pub(crate) fn told() -> String {
    std::env::var(TOLD).unwrap_or_else(|_| panic!("this test is run by others of this program, which set {TOLD}"))
}

/// A small disk of memory is put over `$0` in a name space of the child's own, so that it is gone with the child.
const MOUNT: &str = "mount -t tmpfs -o size=20m,mode=0700 tmpfs \"$0\" && exec \"$@\"";

/// Runs the ignored test `test` of this program with a disk of 20 MB, which it is told the place of.
///
/// A user name space lets everybody mount, where the system permits it; without one, only root may. Where neither can, that
/// is a failure.
pub(crate) fn run_on_a_small_disk(test: &str) {
    let keep = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut refusals = String::new();
    for space in ["-Urm", "-m"] {
        let mounted = |program: &Path| {
            let mut command = Command::new("unshare");
            command.args([space, "sh", "-c", MOUNT]).arg(keep.path()).arg(program);
            command
        };
        let tried = mounted(Path::new("true")).output().unwrap();
        if tried.status.success() {
            let mut command = mounted(&std::env::current_exe().unwrap());
            passed(&command.args(arguments(test)).env(TOLD, keep.path()).output().unwrap(), space);
            return;
        }
        refusals += &format!("`unshare {space}`: {}\n", String::from_utf8_lossy(&tried.stderr));
    }
    panic!("no small disk can be mounted here, neither with a user name space nor as root:\n{refusals}");
}

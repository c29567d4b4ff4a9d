//! Tests in a child process: an ignored test in the same test program, started by another test.

use std::path::Path;
use std::process::{Command, Output};

/// Environment variable with the child's argument.
pub const ARGUMENT: &str = "COUNTERFOIL_TEST_CHILD";

/// Returns the command line arguments for a test program to run one ignored test alone, given with its module.
pub fn arguments(test: &str) -> [&str; 5] {
    ["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]
}

/// Runs the ignored test `test` in this program with `argument`.
///
/// # Panics
/// The test fails, or doesn't exist.
pub fn run(test: &str, argument: &str) {
    let mut command = Command::new(this_program());
    assert_passed(&output(command.args(arguments(test)).env(ARGUMENT, argument)), argument);
}

/// Asserts that a child's test passed.
///
/// # Panics
/// With the child's output, if the test failed or didn't exist.
pub fn assert_passed(output: &Output, argument: &str) {
    let printed = String::from_utf8_lossy(&output.stdout);
    // A test program succeeds without a test by this name, too.
    if !output.status.success() || !printed.contains("1 passed") {
        panic!("{argument}: {}\n{printed}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
}

/// Returns this child's argument.
///
/// # Panics
/// The process isn't such a child.
pub fn argument() -> String {
    std::env::var(ARGUMENT).unwrap_or_else(|_| panic!("other tests of this program run this test, and set {ARGUMENT}"))
}

/// Mounts a small in-memory disk over `$0`, in a mount namespace for the child, so that it ends with the child.
const MOUNT: &str = "mount -t tmpfs -o size=20m,mode=0700 tmpfs \"$0\" && exec \"$@\"";

/// Runs the ignored test `test` in this program with a 20 MB disk, mounted in `dir`.
///
/// Its path is the child's argument.
///
/// In a user namespace every user may mount, if the system permits such namespaces; without one, only root may.
///
/// # Panics
/// The test fails, or nothing can be mounted.
pub fn run_on_a_small_disk(test: &str, dir: &Path) {
    let keep = tempfile::tempdir_in(dir).expect("a temporary directory");
    let mut refusals = String::new();
    for namespace in ["-Urm", "-m"] {
        let mounted = |program: &Path| {
            let mut command = Command::new("unshare");
            command.args([namespace, "sh", "-c", MOUNT]).arg(keep.path()).arg(program);
            command
        };
        let trial = output(&mut mounted(Path::new("true")));
        if trial.status.success() {
            let mut command = mounted(&this_program());
            assert_passed(&output(command.args(arguments(test)).env(ARGUMENT, keep.path())), namespace);
            return;
        }
        refusals += &format!("`unshare {namespace}`: {}\n", String::from_utf8_lossy(&trial.stderr));
    }
    panic!("no small disk can be mounted here, neither in a user namespace nor as root:\n{refusals}");
}

fn this_program() -> std::path::PathBuf {
    std::env::current_exe().expect("the path of this program")
}

fn output(command: &mut Command) -> Output {
    command.output().expect("a child process")
}

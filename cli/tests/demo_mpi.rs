//! `counterfoil demo --mpi` where mpirun is missing, fails, or has to be ended. With a real one: `mpi/tests/demo.rs`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "all of this is tests, the parts that they share included")]

mod script;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A folder as `cargo xtask mpi` leaves it, but with a script in place of mpirun.
fn build(lines: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let mpirun = folder.path().join("mpirun");
    script::write(&mpirun, lines);
    let note = serde_json::json!({ "version": "Open MPI 0", "mpirun": mpirun });
    fs::write(folder.path().join("mpi.json"), note.to_string()).unwrap();
    fs::create_dir(folder.path().join("release")).unwrap();
    fs::write(folder.path().join("release/counterfoil-mpi-demo"), "").unwrap();
    folder
}

fn demo(build: &Path, place: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args([
        "--foreground",
        "-s",
        "KILL",
        "100",
        env!("CARGO_BIN_EXE_counterfoil"),
        "demo",
        "--mpi",
        "--workload",
        "ring",
    ]);
    command.args(["--ranks", "2"]).args(more).arg("--shm-dir").arg(place).arg("--checkpoint-dir").arg(place);
    command.env("COUNTERFOIL_MPI_BUILD", build);
    command
}

/// Runs it; checks that nothing is left.
fn run(build: &Path, more: &[&str]) -> Output {
    let place = tempfile::Builder::new().prefix("cfm").tempdir_in("/tmp").unwrap();
    let output = demo(build, place.path(), more).output().unwrap();
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    output
}

fn refused(output: &Output, code: i32, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{said}");
}

#[test]
fn a_folder_without_a_build_and_kills_over_mpi_are_refused() {
    refused(&run(Path::new("/nonexistent"), &[]), 1, "is not a build of `cargo xtask mpi`");
    refused(&run(Path::new("/nonexistent"), &["--kill", "1@2"]), 2, "cannot be used with");
}

#[test]
fn a_launcher_that_fails_or_leaves_no_result_fails_the_demo() {
    let fails = build("exit 3");
    refused(&run(fails.path(), &[]), 1, "mpirun failed (exit status: 3)");
    let leaves_nothing = build("exit 0");
    refused(&run(leaves_nothing.path(), &["--json"]), 1, "mpi-result.json");
}

#[test]
fn the_launcher_ends_with_the_demo_when_a_signal_asks_for_it() {
    let place = tempfile::Builder::new().prefix("cfm").tempdir_in("/tmp").unwrap();
    let sleeps = build("echo $$ > \"$(dirname \"$0\")/pid\"\nexec sleep 90");
    let mut command = demo(sleeps.path(), place.path(), &[]);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let note = sleeps.path().join("pid");
    let began = Instant::now();
    while !fs::read_to_string(&note).is_ok_and(|pid| pid.ends_with('\n')) {
        assert!(began.elapsed() < Duration::from_secs(60), "mpirun was not started");
        std::thread::sleep(Duration::from_millis(5));
    }
    // `timeout` hands the signal on, in the foreground to its child only: what ends the launcher is the demo.
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    refused(&output, 1, "interrupted by a signal");
    let pid = fs::read_to_string(&note).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the launcher lives");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

//! Tests of `counterfoil demo --mpi` and `counterfoil reproduce` with an mpirun that is missing, fails or must be
//! stopped.
//!
//! For a real one, see `mpi/tests/{demo,costs}.rs`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::script;

/// Creates a build folder, as `cargo xtask mpi` does, with scripts in place of mpirun and a rank's program.
fn build(lines: &str) -> TempDir {
    build_of(counterfoil_workloads::BUILD, lines)
}

fn build_of(version: &str, lines: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let mpirun = folder.path().join("mpirun");
    script::write(&mpirun, lines);
    let description = serde_json::json!({ "version": "Open MPI 0", "mpirun": mpirun });
    fs::write(folder.path().join("mpi.json"), description.to_string()).unwrap();
    fs::create_dir(folder.path().join("release")).unwrap();
    let program = folder.path().join("release/counterfoil-mpi-demo");
    script::write(&program, &format!("echo 'counterfoil-mpi-demo {version}'"));
    folder
}

fn demo(build: &Path, directory: &Path, more: &[&str]) -> Command {
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
    command.args(["--ranks", "2"]).args(more).arg("--shm-dir").arg(directory).arg("--checkpoint-dir").arg(directory);
    command.env("COUNTERFOIL_MPI_BUILD", build);
    command
}

/// Runs the demo and checks that it leaves no files.
fn run(build: &Path, more: &[&str]) -> Output {
    let directory = tempfile::Builder::new().prefix("cfm").tempdir_in("/tmp").unwrap();
    let output = demo(build, directory.path(), more).output().unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    output
}

fn assert_failure(output: &Output, code: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(words), "{stderr}");
}

#[test]
fn a_folder_without_a_build_and_an_mpi_without_one_are_refused() {
    assert_failure(&run(Path::new("/nonexistent"), &[]), 1, "is not a build of `cargo xtask mpi`");
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let output = command.args(["demo", "--mpi=/nonexistent"]).output().unwrap();
    assert_failure(&output, 1, "`cargo xtask mpi --mpi /nonexistent` makes one");
}

#[test]
fn a_program_of_other_sources_is_refused() {
    let other = build_of("0.0.1 (sources 0)", "echo it was started >&2; exit 3");
    for output in [run(other.path(), &[]), figure_7(other.path(), &[])] {
        assert_failure(&output, 1, "is of another build, `0.0.1 (sources 0)`, than this program");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("it was started"));
    }
    fs::remove_file(other.path().join("release/counterfoil-mpi-demo")).unwrap();
    std::os::unix::fs::symlink("/proc/version", other.path().join("release/counterfoil-mpi-demo")).unwrap();
    assert_failure(&run(other.path(), &[]), 1, "cannot start");
}

#[test]
fn an_mpirun_that_ends_before_the_job_fails_the_demo() {
    let fails = build("echo no such host >&2; exit 3");
    let output = run(fails.path(), &[]);
    assert_failure(&output, 1, "ended too early, with exit status: 3; 2 of 2 ranks were not done");
    assert_failure(&output, 1, "; it wrote: no such host");
    let does_nothing = build("exit 0");
    assert_failure(&run(does_nothing.path(), &["--json"]), 1, "ended too early, with exit status: 0");
}

fn reproduce(build: &Path, name: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(["reproduce", name, "--ranks", "2", "--rounds", "1"]).args(more);
    command.env("COUNTERFOIL_MPI_BUILD", build).output().unwrap()
}

fn figure_7(build: &Path, more: &[&str]) -> Output {
    reproduce(build, "figure-7", more)
}

/// Returns an output line of a job that has measured `subjects` programs in `modes` modes each, with the ratios 1.01,
/// 1.02, ...
fn measured(subjects: usize, modes: u32) -> String {
    let logged = serde_json::json!({"messages": 0, "message_bytes": 0, "entries": 0, "entry_bytes": 0});
    let of_mode = |n: u32| {
        let (n, ratio) = (f64::from(n), 1.0 + f64::from(n) / 100.0);
        serde_json::json!({"mode": null, "seconds": [n], "ratios": [ratio], "logged": logged})
    };
    let of_subject: Vec<_> = (1..=modes).map(of_mode).collect();
    serde_json::json!({ "measured": vec![of_subject; subjects] }).to_string()
}

#[test]
fn figure_7_prints_what_the_job_has_measured_over_each_transport() {
    let job = build(&format!("echo '{{\"round\":0}}'\necho a word of mpirun\necho '{}'", measured(1, 5)));
    let svg = job.path().join("figure.svg");
    let output = figure_7(job.path(), &["--json", "--svg", svg.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 2 * 5);
    assert_eq!((&rows[0]["ratio"], &rows[0]["paper"]), (&1.01.into(), &"1.00".into()));
    assert_eq!((&rows[9]["transport"], &rows[9]["seconds"]), (&"TCP".into(), &5.0.into()));
    assert!(fs::read_to_string(svg).unwrap().contains("shared memory"));
}

#[test]
fn every_measurement_prints_a_row_for_each_program_and_mode() {
    for (name, subjects, modes, rows) in
        [("libelc", 5, 2, 10), ("c3-bits", 24, 3, 72), ("ulml-figures", 2, 4, 8), ("ulml-table-1", 2, 2, 2)]
    {
        let job = build(&format!("echo '{}'", measured(subjects, modes)));
        let output = reproduce(job.path(), name, &["--json"]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let printed: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed.len(), rows, "{name}");
        assert!(printed.iter().all(|row| row["ratio"].as_f64().unwrap() >= 1.01), "{name}");
        let text = reproduce(job.path(), name, &[]);
        assert!(
            String::from_utf8_lossy(&text.stdout).contains("Time by that on plain MPI, medians of 1 runs"),
            "{name}"
        );
    }
}

#[test]
fn figure_7_of_a_job_that_fails_says_why() {
    let fails = build("echo no such host >&2; exit 3");
    assert_failure(&figure_7(fails.path(), &[]), 1, "the job failed (exit status: 3): no such host");
    assert_failure(&figure_7(Path::new("/nonexistent"), &[]), 1, "is not a build of `cargo xtask mpi`");
}

#[test]
fn the_demo_stops_the_launcher_on_a_signal() {
    let directory = tempfile::Builder::new().prefix("cfm").tempdir_in("/tmp").unwrap();
    let sleeps = build("echo $$ > \"$(dirname \"$0\")/pid\"\nexec sleep 90");
    let mut command = demo(sleeps.path(), directory.path(), &[]);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let pid_file = sleeps.path().join("pid");
    let began = Instant::now();
    while !fs::read_to_string(&pid_file).is_ok_and(|pid| pid.ends_with('\n')) {
        assert!(began.elapsed() < Duration::from_secs(60), "mpirun was not started");
        std::thread::sleep(Duration::from_millis(5));
    }
    // In the foreground, `timeout` forwards the signal only to its child; so the demo stops the launcher.
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_failure(&output, 1, "interrupted by a signal");
    let pid = fs::read_to_string(&pid_file).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the launcher is still running");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

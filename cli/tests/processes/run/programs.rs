//! Programs with normal and abnormal ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use counterfoil_test_support::note_untested;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::ring::sandbox;
use super::sandbox::Sandbox;
use crate::output::ProgramOutput;

fn sum(summary: &Value, name: &str) -> u64 {
    summary["ranks"].as_array().unwrap().iter().map(|rank| rank[name].as_u64().unwrap()).sum()
}

/// Checks that no job directory is left.
#[track_caller]
fn assert_clean(sandbox: &Sandbox) {
    assert_eq!(sandbox.remaining_jobs(), Vec::<PathBuf>::new());
}

#[test]
fn messages_are_counted_and_standard_output_is_the_programs() {
    let Some(sandbox) = sandbox() else { return };
    let mut command = sandbox.command(&["run", "-n", "3", "--summary", "s.json", "--json", "--", "./ring", "echo"]);
    fs::write(sandbox.path().join("line"), "a line\n").unwrap();
    command.stdin(fs::File::open(sandbox.path().join("line")).unwrap());
    let output = ProgramOutput::from(command.output().unwrap());
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "read a line\n"), "{}", output.stderr);
    assert!(output.stderr.contains("to standard error\n"), "{}", output.stderr);
    let summary = output.summary();
    assert_eq!(summary["protocol"], "sender-based");
    assert!(summary["mpi"].as_str().unwrap().starts_with("Open MPI "), "{summary}");
    assert!(summary["wall_s"].as_f64().unwrap() > 0.0);
    assert_eq!(summary["ranks"].as_array().unwrap().len(), 3);
    for rank in summary["ranks"].as_array().unwrap() {
        for (name, right) in
            [("messages_logged", 10), ("bytes_logged", 10_000), ("messages_received", 10), ("collectives", 1)]
        {
            assert_eq!(rank[name], right, "{name}: {rank}");
        }
        assert_eq!(rank["complete"], true);
        assert!(rank["memory_peak_bytes"].as_u64().unwrap() > 0 && rank["spilled_bytes"] == 0, "{rank}");
    }
    let written: Value = serde_json::from_slice(&fs::read(sandbox.path().join("s.json")).unwrap()).unwrap();
    assert_eq!(written, summary);
    assert_clean(&sandbox);
}

#[test]
fn the_table_has_a_line_per_rank() {
    let Some(sandbox) = sandbox() else { return };
    let output = sandbox.counterfoil(&["run", "-n", "2", "--", "./ring"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""), "{}", output.stderr);
    let lines: Vec<&str> = output.stderr.lines().collect();
    let of = |rank: &str| lines.iter().filter(|line| line.split_whitespace().next() == Some(rank)).count();
    assert_eq!((of("0"), of("1"), of("2")), (1, 1, 0), "{}", output.stderr);
    assert!(output.stderr.contains("20 messages logged (19.53 KiB)"), "{}", output.stderr);
}

#[test]
fn unknown_options_are_passed_to_mpirun() {
    let Some(sandbox) = sandbox() else { return };
    let output = sandbox.counterfoil(&[
        "run",
        "-np",
        "2",
        "--json",
        "--mca",
        "btl",
        "self,tcp",
        "-x",
        "A=b",
        "--",
        "sh",
        "-c",
        "echo $A; ./ring",
    ]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "b\nb\n"), "{}", output.stderr);
    assert_eq!(sum(&output.summary(), "messages_logged"), 20);
}

#[test]
fn kept_logs_are_sound() {
    let Some(sandbox) = sandbox() else { return };
    let output = sandbox.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./ring"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let verified = sandbox.counterfoil(&["log", "verify", "logs"]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    let dump = sandbox.counterfoil(&["log", "dump", "logs/rank-0", "--peer", "1", "--json"]);
    assert_eq!(dump.code, Some(0), "{}", dump.stderr);
    let dump: Value = serde_json::from_str(&dump.stdout).unwrap();
    let records = dump["records"].as_array().unwrap();
    assert_eq!(records.len(), 10, "{dump}");
    assert!(records.iter().all(|record| record["payload_bytes"] == 1000), "{dump}");
    sandbox.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./ring"]).assert_exit(2, "logs of another job");
    assert_clean(&sandbox);
}

#[test]
fn records_beyond_the_budget_are_spilled_and_removed_at_the_end() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.compile_known("point_to_point");
    let output = sandbox.counterfoil(&[
        "run",
        "-n",
        "2",
        "--keep",
        "all",
        "--budget",
        "2MiB",
        "--json",
        "--",
        "./point_to_point",
    ]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(sum(&output.summary(), "spilled_bytes") > 0, "{}", output.stderr);
    assert_clean(&sandbox);
}

#[test]
fn shared_memory_is_used_and_freed() {
    let Some(sandbox) = sandbox() else { return };
    let output = sandbox.counterfoil(&["run", "-n", "2", "--tier", "process-crash-safe", "--json", "--", "./ring"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(sum(&output.summary(), "messages_logged"), 20);
    assert!(output.summary()["ranks"][0]["gave_up"].is_null(), "{}", output.stderr);
    assert_clean(&sandbox);
}

#[test]
fn logging_can_be_off() {
    let Some(sandbox) = sandbox() else { return };
    let output = sandbox.counterfoil(&["run", "-n", "2", "--logging", "off", "--json", "--", "./ring"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(output.summary()["ranks"].as_array().unwrap().len(), 0);
    assert!(!output.stderr.contains("nothing was logged"), "{}", output.stderr);
}

#[test]
fn exit_codes_are_the_programs_own() {
    let Some(sandbox) = sandbox() else { return };
    let run = |what: &str| sandbox.counterfoil(&["run", "-n", "2", "--json", "--", "./ring", what]);
    assert_eq!(run("code").code, Some(5));
    let aborts = run("abort");
    aborts.assert_exit(7, "rank 1 called MPI_Abort");
    assert_eq!(aborts.summary()["ranks"][1]["messages_logged"], 10, "the aborting rank writes its own summary");
    let silent = run("_exit");
    silent.assert_exit(9, "ended without MPI_Finalize");
    let summary = silent.summary();
    assert_eq!(
        ["messages_logged", "bytes_logged", "collectives"].map(|name| sum(&summary, name)),
        [20, 20_000, 2],
        "figures up to the last call: {summary}"
    );
    let long = run("long");
    assert_eq!(long.code, Some(9), "{}", long.stderr);
    let summary = long.summary();
    assert!(sum(&summary, "messages_logged") > 20, "figures up to the last update: {summary}");
    assert!(summary["ranks"].as_array().unwrap().iter().all(|rank| rank["complete"] == false), "{summary}");
    let forks = run("fork");
    assert_eq!(forks.code, Some(0), "{}", forks.stderr);
    assert_eq!(sum(&forks.summary(), "messages_logged"), 20);
    assert!(!forks.stderr.contains("without MPI_Finalize"), "{}", forks.stderr);
    assert_clean(&sandbox);
}

#[test]
fn a_program_without_mpi_is_reported() {
    let Some(sandbox) = sandbox() else { return };
    let output = sandbox.counterfoil(&["run", "-n", "2", "--", "echo", "hello"]);
    assert_eq!(output.stdout, "hello\nhello\n");
    output.assert_exit(0, "nothing was logged: no rank of echo started logging over Open MPI");
    sandbox.counterfoil(&["run", "-n", "1", "--", "sh", "-c", "exit 3"]).assert_exit(3, "nothing was logged");
}

/// Starts a program that waits forever, on two ranks, with its output in files.
///
/// Returns the `timeout` process and its descendants; the first of these is `counterfoil`.
fn start_waiting(sandbox: &Sandbox, options: &[&str]) -> (Child, Vec<u32>) {
    let file = |name: &str| fs::File::create(sandbox.path().join(name)).unwrap();
    let mut command = sandbox.command(&[&["run", "-n", "2", "--json"], options, &["--", "./ring", "wait"]].concat());
    let child = command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().unwrap();
    let all = await_ranks(sandbox, child.id());
    (child, all)
}

fn await_ranks(sandbox: &Sandbox, pid: u32) -> Vec<u32> {
    let began = Instant::now();
    loop {
        let all = descendants(pid);
        if read(sandbox, "out").lines().count() == 2 && all.len() >= 4 {
            return all;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the program doesn't start: {}", read(sandbox, "err"));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path().join(name)).unwrap()
}

/// Returns the kernel's status lines for running processes.
fn alive(pids: &[u32]) -> Vec<String> {
    let lives = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_alive = stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']));
        is_alive.then_some(stat)
    };
    pids.iter().filter_map(lives).collect()
}

#[test]
fn an_interrupt_stops_the_ranks_and_removes_the_files() {
    let Some(sandbox) = sandbox() else { return };
    for signal in [Signal::INT, Signal::TERM] {
        let (mut child, all) = start_waiting(&sandbox, &[]);
        kill_process(Pid::from_raw(all[0].try_into().unwrap()).unwrap(), signal).unwrap();
        let status = child.wait().unwrap();
        let stderr = read(&sandbox, "err");
        assert_ne!(status.code(), Some(0), "{stderr}");
        assert!(stderr.contains("interrupted"), "{stderr}");
        let alive = alive(&all);
        assert!(alive.is_empty(), "of {all:?}, {alive:?} are still running: {stderr}");
        assert_clean(&sandbox);
    }
}

#[test]
fn ranks_end_with_a_killed_command_and_clean_removes_its_files() {
    let Some(sandbox) = sandbox() else { return };
    let (mut child, all) = start_waiting(&sandbox, &["--keep", "all", "--summary", "s.json"]);
    let mut directories = all.iter().filter_map(|pid| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let directory =
            variables.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(b"COUNTERFOIL_SUMMARY_DIR="));
        directory.map(|directory| PathBuf::from(String::from_utf8(directory.to_vec()).unwrap()))
    });
    let directory = directories.next_back().unwrap();
    assert!(directory.exists());
    kill_process(Pid::from_raw(all[0].try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    child.wait().unwrap();
    let began = Instant::now();
    while !alive(&all).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "of {all:?}, {:?} are still running", alive(&all));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!sandbox.path().join("s.json").exists(), "no empty summary is left");
    let cleaned = sandbox.counterfoil(&["clean"]);
    assert_eq!(cleaned.code, Some(0), "{}{}", cleaned.stdout, cleaned.stderr);
    assert!(!directory.exists(), "{}", cleaned.stdout);
    assert_clean(&sandbox);
}

#[test]
fn all_programs_of_an_mpmd_job_are_logged() {
    let Some(sandbox) = sandbox() else { return };
    let line = ["run", "-n", "1", "--json", "--", "./ring", ":", "-n", "2", "./ring", "", ":", "-n", "1", "./ring"];
    let output = sandbox.counterfoil(&line);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let summary = output.summary();
    assert_eq!(summary["ranks"].as_array().unwrap().len(), 4, "{summary}");
    assert_eq!(sum(&summary, "messages_logged"), 40, "{summary}");
}

#[test]
fn the_progress_line_is_shown_on_a_terminal_unless_disabled() {
    let Some(sandbox) = sandbox() else { return };
    // Part of util-linux: runs a command on a pseudo-terminal.
    if Command::new("script").arg("--version").output().is_err() {
        note_untested("the progress line on a terminal: there is no `script`");
        return;
    }
    let on_a_terminal = |option: &str| {
        let line = format!("{} run -n 2 {option} -- ./ring long", env!("CARGO_BIN_EXE_counterfoil"));
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "120", "script", "-qec", &line, "/dev/null"]).env("TERM", "xterm");
        let output = command.current_dir(sandbox.path()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(9));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let with = on_a_terminal("");
    assert!(with.contains(" unacked, mem "), "{with}");
    let without = on_a_terminal("--no-progress");
    assert!(!without.contains("unacked") && without.contains("messages logged"), "{without}");
}

/// Returns the process ids of all descendants, parents first.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()).collect::<Vec<_>>());
        }
        at += 1;
    }
    all.split_off(1)
}

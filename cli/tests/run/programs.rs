//! Programs that behave, and programs that don't.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::place::Place;
use super::ring::place;
use crate::ended::Ended;

fn sum(account: &Value, name: &str) -> u64 {
    account["ranks"].as_array().unwrap().iter().map(|rank| rank[name].as_u64().unwrap()).sum()
}

/// Nothing is left in shared memory, where jobs have their directories, of the one that said this.
#[track_caller]
fn is_clean(place: &Place) {
    assert_eq!(place.left_behind(), Vec::<PathBuf>::new());
}

#[test]
fn every_message_is_counted_and_standard_output_is_the_programs() {
    let Some(place) = place() else { return };
    let mut command = place.command(&["run", "-n", "3", "--summary", "s.json", "--json", "--", "./ring", "echo"]);
    fs::write(place.path().join("line"), "a line\n").unwrap();
    command.stdin(fs::File::open(place.path().join("line")).unwrap());
    let ended = Ended::from(command.output().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "read a line\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("to standard error\n"), "{}", ended.stderr);
    let account = ended.account();
    assert_eq!(account["protocol"], "sender-based");
    assert!(account["mpi"].as_str().unwrap().starts_with("Open MPI "), "{account}");
    assert!(account["wall_s"].as_f64().unwrap() > 0.0);
    assert_eq!(account["ranks"].as_array().unwrap().len(), 3);
    for rank in account["ranks"].as_array().unwrap() {
        for (name, right) in
            [("messages_logged", 10), ("bytes_logged", 10_000), ("messages_received", 10), ("collectives", 1)]
        {
            assert_eq!(rank[name], right, "{name}: {rank}");
        }
        assert_eq!(rank["complete"], true);
        assert!(rank["memory_peak_bytes"].as_u64().unwrap() > 0 && rank["spilled_bytes"] == 0, "{rank}");
    }
    let summary: Value = serde_json::from_slice(&fs::read(place.path().join("s.json")).unwrap()).unwrap();
    assert_eq!(summary, account);
    is_clean(&place);
}

#[test]
fn a_table_has_a_line_for_each_rank() {
    let Some(place) = place() else { return };
    let ended = place.counterfoil(&["run", "-n", "2", "--", "./ring"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    let of = |rank: &str| lines.iter().filter(|line| line.split_whitespace().next() == Some(rank)).count();
    assert_eq!((of("0"), of("1"), of("2")), (1, 1, 0), "{}", ended.stderr);
    assert!(ended.stderr.contains("20 messages logged (19.53 KiB)"), "{}", ended.stderr);
}

#[test]
fn options_that_are_not_known_are_mpiruns() {
    let Some(place) = place() else { return };
    let ended = place.counterfoil(&[
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
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "b\nb\n"), "{}", ended.stderr);
    assert_eq!(sum(&ended.account(), "messages_logged"), 20);
}

#[test]
fn logs_are_there_afterwards_and_sound() {
    let Some(place) = place() else { return };
    let ended = place.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./ring"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let verified = place.counterfoil(&["log", "verify", "logs"]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    let dump = place.counterfoil(&["log", "dump", "logs/rank-0", "--peer", "1", "--json"]);
    assert_eq!(dump.code, Some(0), "{}", dump.stderr);
    let dump: Value = serde_json::from_str(&dump.stdout).unwrap();
    let records = dump["records"].as_array().unwrap();
    assert_eq!(records.len(), 10, "{dump}");
    assert!(records.iter().all(|record| record["payload_bytes"] == 1000), "{dump}");
    place.counterfoil(&["run", "-n", "2", "--log-dir", "logs", "--", "./ring"]).says(2, "logs of another job");
    is_clean(&place);
}

#[test]
fn what_is_kept_beyond_the_budget_goes_to_disk_and_is_removed() {
    let Some(place) = place() else { return };
    place.compile_known("point_to_point");
    let ended =
        place.counterfoil(&["run", "-n", "2", "--keep", "all", "--budget", "2MiB", "--json", "--", "./point_to_point"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(sum(&ended.account(), "spilled_bytes") > 0, "{}", ended.stderr);
    is_clean(&place);
}

#[test]
fn shared_memory_is_used_and_given_back() {
    let Some(place) = place() else { return };
    let ended = place.counterfoil(&["run", "-n", "2", "--tier", "process-crash-safe", "--json", "--", "./ring"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(sum(&ended.account(), "messages_logged"), 20);
    assert!(ended.account()["ranks"][0]["gave_up"].is_null(), "{}", ended.stderr);
    is_clean(&place);
}

#[test]
fn logging_can_be_off() {
    let Some(place) = place() else { return };
    let ended = place.counterfoil(&["run", "-n", "2", "--logging", "off", "--json", "--", "./ring"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.account()["ranks"].as_array().unwrap().len(), 0);
    assert!(!ended.stderr.contains("nothing was logged"), "{}", ended.stderr);
}

#[test]
fn exit_codes_are_the_programs_own() {
    let Some(place) = place() else { return };
    let code = |what: &str| place.counterfoil(&["run", "-n", "2", "--json", "--", "./ring", what]);
    assert_eq!(code("code").code, Some(5));
    let aborts = code("abort");
    aborts.says(7, "rank 1 called MPI_Abort");
    assert_eq!(aborts.account()["ranks"][1]["messages_logged"], 10, "the account of who aborts is its own");
    let silent = code("_exit");
    silent.says(9, "ended without MPI_Finalize");
    let account = silent.account();
    assert_eq!(
        ["messages_logged", "bytes_logged", "collectives"].map(|name| sum(&account, name)),
        [20, 20_000, 2],
        "what was done up to the last call is told: {account}"
    );
    let long = code("long");
    assert_eq!(long.code, Some(9), "{}", long.stderr);
    let account = long.account();
    assert!(sum(&account, "messages_logged") > 20, "what was seen last is told: {account}");
    assert!(account["ranks"].as_array().unwrap().iter().all(|rank| rank["complete"] == false), "{account}");
    let forks = code("fork");
    assert_eq!(forks.code, Some(0), "{}", forks.stderr);
    assert_eq!(sum(&forks.account(), "messages_logged"), 20);
    assert!(!forks.stderr.contains("without MPI_Finalize"), "{}", forks.stderr);
    is_clean(&place);
}

#[test]
fn a_program_that_is_not_mpi_is_told_so() {
    let Some(place) = place() else { return };
    let ended = place.counterfoil(&["run", "-n", "2", "--", "echo", "hello"]);
    assert_eq!(ended.stdout, "hello\nhello\n");
    ended.says(0, "nothing was logged: no rank of echo began to log over Open MPI");
    place.counterfoil(&["run", "-n", "1", "--", "sh", "-c", "exit 3"]).says(3, "nothing was logged");
}

/// Starts the program, which waits for ever, on two ranks; what is said goes to files. Gives `timeout`, and the processes below it: the
/// first is the command.
fn start_waiting(place: &Place, options: &[&str]) -> (Child, Vec<u32>) {
    let output = |name: &str| fs::File::create(place.path().join(name)).unwrap();
    let mut command = place.command(&[&["run", "-n", "2", "--json"], options, &["--", "./ring", "wait"]].concat());
    let child = command.stdin(Stdio::null()).stdout(output("out")).stderr(output("err")).spawn().unwrap();
    let all = await_ranks(place, child.id());
    (child, all)
}

fn await_ranks(place: &Place, pid: u32) -> Vec<u32> {
    let began = Instant::now();
    loop {
        let all = below(pid);
        if said(place, "out").lines().count() == 2 && all.len() >= 4 {
            return all;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it doesn't start: {}", said(place, "err"));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn said(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path().join(name)).unwrap()
}

/// What the kernel says of those that live.
fn alive(pids: &[u32]) -> Vec<String> {
    let lives = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_alive = stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']));
        is_alive.then_some(stat)
    };
    pids.iter().filter_map(lives).collect()
}

#[test]
fn an_interrupt_ends_the_ranks_and_removes_the_files() {
    let Some(place) = place() else { return };
    for signal in [Signal::INT, Signal::TERM] {
        let (mut child, all) = start_waiting(&place, &[]);
        kill_process(Pid::from_raw(all[0].try_into().unwrap()).unwrap(), signal).unwrap();
        let status = child.wait().unwrap();
        let said = said(&place, "err");
        assert_ne!(status.code(), Some(0), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        let alive = alive(&all);
        assert!(alive.is_empty(), "of {all:?}, {alive:?} live on: {said}");
        is_clean(&place);
    }
}

#[test]
fn when_the_command_is_killed_its_ranks_end_and_clean_removes_the_files() {
    let Some(place) = place() else { return };
    let (mut child, all) = start_waiting(&place, &["--keep", "all", "--summary", "s.json"]);
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
        assert!(began.elapsed() < Duration::from_secs(60), "of {all:?}, {:?} live on", alive(&all));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!place.path().join("s.json").exists(), "no summary is left that says nothing");
    let cleaned = place.counterfoil(&["clean"]);
    assert_eq!(cleaned.code, Some(0), "{}{}", cleaned.stdout, cleaned.stderr);
    assert!(!directory.exists(), "{}", cleaned.stdout);
    is_clean(&place);
}

#[test]
fn all_programs_of_a_job_are_logged() {
    let Some(place) = place() else { return };
    let line = ["run", "-n", "1", "--json", "--", "./ring", ":", "-n", "2", "./ring", "", ":", "-n", "1", "./ring"];
    let ended = place.counterfoil(&line);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let account = ended.account();
    assert_eq!(account["ranks"].as_array().unwrap().len(), 4, "{account}");
    assert_eq!(sum(&account, "messages_logged"), 40, "{account}");
}

#[test]
fn a_line_says_on_a_terminal_how_the_job_is_doing_unless_it_is_turned_off() {
    let Some(place) = place() else { return };
    // Of util-linux: a command on a terminal of its own.
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("NOT TESTED: there is no `script`");
        return;
    }
    let on_a_terminal = |option: &str| {
        let line = format!("{} run -n 2 {option} -- ./ring long", env!("CARGO_BIN_EXE_counterfoil"));
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "120", "script", "-qec", &line, "/dev/null"]).env("TERM", "xterm");
        let output = command.current_dir(place.path()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(9));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let with = on_a_terminal("");
    assert!(with.contains(" unacknowledged, memory "), "{with}");
    let without = on_a_terminal("--no-progress");
    assert!(!without.contains("unacknowledged") && without.contains("messages logged"), "{without}");
}

/// Processes below one, parents first.
pub(crate) fn below(pid: u32) -> Vec<u32> {
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

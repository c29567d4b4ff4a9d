//! Full logs and long streams.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use super::programs::descendants;
use super::sandbox::{Sandbox, mpi_available};
use crate::output::ProgramOutput;

/// Exceeds a 1 MiB log; all messages are in flight at once because the receiver sleeps first.
const OVERFLOW: [&str; 4] = ["./stream", "50000", "1000", "isend"];
const ALL: &str = "stream: 50000 of 50000 received, 0 wrong\n";

fn sandbox() -> Option<Sandbox> {
    mpi_available().then(|| {
        let sandbox = Sandbox::new();
        sandbox.compile_known("stream");
        sandbox
    })
}

/// Runs a program with 1 MiB logs.
fn run(sandbox: &Sandbox, options: &[&str], program: &[&str]) -> ProgramOutput {
    sandbox.counterfoil(&[&["run", "-n", "2", "--budget", "1MiB", "--json"], options, &["--"], program].concat())
}

#[test]
fn block_waits_until_the_receiver_has_received() {
    let Some(sandbox) = sandbox() else { return };
    let output = run(&sandbox, &["--on-full", "block"], &OVERFLOW);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ALL), "{}", output.stderr);
    let account = output.summary();
    let sender = &account["ranks"][0];
    assert_eq!((&sender["messages_logged"], &sender["gave_up"]), (&50_000.into(), &serde_json::Value::Null));
    assert!(sender["waited_s"].as_f64().unwrap() > 0.3, "{sender}");
    assert!(sender["memory_peak_bytes"].as_u64().unwrap() <= 1 << 20, "{sender}");
}

#[test]
fn stop_logging_continues_without_the_log_and_warns_once() {
    let Some(sandbox) = sandbox() else { return };
    for keep in [&[][..], &["--keep", "all", "--tier", "volatile"]] {
        let output = run(&sandbox, &[&["--on-full", "stop-logging"], keep].concat(), &OVERFLOW);
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), ALL), "{}", output.stderr);
        assert_eq!(output.stderr.matches("not recoverable from here").count(), 1, "{}", output.stderr);
        let account = output.summary();
        let sender = &account["ranks"][0];
        assert_eq!(sender["logging_stopped"], true, "{sender}");
        let logged = sender["messages_logged"].as_u64().unwrap();
        assert!((1000..50_000).contains(&logged), "{sender}");
        assert!(sender["waited_s"].as_f64().unwrap() < 0.3, "{sender}");
    }
}

#[test]
fn fail_makes_the_send_fail_through_the_error_handler() {
    let Some(sandbox) = sandbox() else { return };
    let output = run(&sandbox, &["--on-full", "fail"], &OVERFLOW);
    output.assert_exit(0, "a send fails, as COUNTERFOIL_ON_FULL=fail asks: the log is full");
    let account = output.summary();
    let logged = account["ranks"][0]["messages_logged"].as_u64().unwrap();
    assert!((1000..50_000).contains(&logged), "{account}");
    // Failed messages were not sent.
    assert_eq!(output.stdout, format!("stream: {logged} of 50000 received, 0 wrong\n"));
    let fatal = run(&sandbox, &["--on-full", "fail"], &[&OVERFLOW[..], &["fatal"]].concat());
    // MPI_ERR_OTHER, from MPI_ERRORS_ARE_FATAL.
    fatal.assert_exit(16, "a send fails");
}

/// Performs collective operations with contributions of this size, and exchanges with truncated receives; prints each
/// one's failures.
const OPERATIONS: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, failed = 0, cut = 0, bytes = atoi(argv[1]), operations = atoi(argv[2]), exchanges = atoi(argv[3]);
    char *gives = calloc(1, bytes), *gets = calloc(1, bytes);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < operations; i++)
        if (MPI_Allreduce(gives, gets, bytes, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD)) failed++;
    for (int i = 0; i < exchanges; i++)
        if (MPI_Sendrecv(gives, 8, MPI_CHAR, 1 - rank, 3, gets, 4, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) cut++;
    if (rank == 0) printf("%d failed, %d cut\n", failed, cut);
    return MPI_Finalize();
}
"#;

fn operations() -> Option<Sandbox> {
    mpi_available().then(|| {
        let sandbox = Sandbox::new();
        sandbox.compile("operations", OPERATIONS);
        sandbox
    })
}

#[test]
fn completed_operations_free_space_at_once_without_blocking() {
    let Some(sandbox) = operations() else { return };
    // The log holds two contributions, not three.
    for choice in ["fail", "stop-logging"] {
        let options = ["run", "-n", "2", "--budget", "8MiB", "--json", "--on-full", choice, "--"];
        let output = sandbox.counterfoil(&[&options[..], &["./operations", "3145728", "40", "0"]].concat());
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(0), "0 failed, 0 cut\n"),
            "{choice}: {}",
            output.stderr
        );
        for rank in output.summary()["ranks"].as_array().unwrap() {
            assert_eq!(
                (&rank["logging_stopped"], &rank["collectives"]),
                (&false.into(), &40.into()),
                "{choice}: {rank}"
            );
        }
    }
}

#[test]
fn a_truncated_receive_does_not_affect_the_send_of_the_same_call() {
    let Some(sandbox) = operations() else { return };
    for choice in ["fail", "block"] {
        let output = sandbox.counterfoil(&[
            "run",
            "-n",
            "2",
            "--json",
            "--on-full",
            choice,
            "--",
            "./operations",
            "8",
            "0",
            "50",
        ]);
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(0), "0 failed, 50 cut\n"),
            "{choice}: {}",
            output.stderr
        );
        for rank in output.summary()["ranks"].as_array().unwrap() {
            assert_eq!(rank["messages_logged"], 50, "{choice}: {rank}");
        }
    }
}

#[test]
fn a_wait_that_can_never_succeed_ends_at_once() {
    let Some(sandbox) = sandbox() else { return };
    let output = run(&sandbox, &["--keep", "all", "--tier", "volatile"], &["./stream", "50000"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ALL), "{}", output.stderr);
    output.assert_exit(
        0,
        "everything is kept in memory, and no wait frees space; the program goes on, and nothing more is logged",
    );
    assert!(output.summary()["ranks"][0]["gave_up"].as_str().unwrap().contains("no wait frees space"));
}

#[test]
fn a_used_up_disk_budget_ends_logging() {
    let Some(sandbox) = sandbox() else { return };
    let output = run(&sandbox, &["--keep", "all", "--disk-budget", "17MiB"], &["./stream", "1000000"]);
    output.assert_exit(0, "everything is kept. COUNTERFOIL_DISK_BUDGET gives it more; the program goes on");
    assert_eq!(output.stdout, "stream: 1000000 of 1000000 received, 0 wrong\n");
    assert!(output.summary()["ranks"][0]["gave_up"].as_str().unwrap().contains("disk_bytes_max"));
    let output = run(&sandbox, &["--disk-budget", "1MiB"], &["./stream", "1"]);
    output.assert_exit(2, "--disk-budget is `1MiB`: ");
    output.assert_exit(2, "at least 17825792");
}

/// Returns both ranks' peak memory in KiB, as reported by the kernel.
fn memory_of(sandbox: &Sandbox, messages: &str) -> BTreeMap<String, u64> {
    let output = fs::File::create(sandbox.path().join("out")).unwrap();
    let mut command = sandbox.command(&["run", "-n", "2", "--", "./stream", messages]);
    let mut child = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn().unwrap();
    let mut most = BTreeMap::new();
    while child.try_wait().unwrap().is_none() {
        for pid in descendants(child.id()) {
            let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let variables = read("environ");
            let rank = variables.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(b"OMPI_COMM_WORLD_RANK="));
            let status = String::from_utf8(read("status")).unwrap();
            let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
            if let (Some(rank), Some(kib), b"stream\n") = (rank, kib, &read("comm")[..]) {
                most.insert(String::from_utf8(rank.to_vec()).unwrap(), kib.parse().unwrap());
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(child.wait().unwrap().success());
    let stdout = fs::read_to_string(sandbox.path().join("out")).unwrap();
    assert_eq!(stdout, format!("stream: {messages} of {messages} received, 0 wrong\n"));
    assert_eq!(most.len(), 2, "both ranks were seen");
    most
}

#[test]
fn memory_does_not_grow_with_the_length_of_a_stream() {
    let Some(sandbox) = sandbox() else { return };
    assert_bounded_memory(&sandbox, "1100000");
}

#[test]
#[ignore = "takes a minute; its figures are in docs/lab/mpi-cost.md"]
fn memory_does_not_grow_with_ten_million_messages() {
    let Some(sandbox) = sandbox() else { return };
    assert_bounded_memory(&sandbox, "10000000");
}

#[track_caller]
fn assert_bounded_memory(sandbox: &Sandbox, messages: &str) {
    let short = memory_of(sandbox, "100000");
    let long = memory_of(sandbox, messages);
    for (rank, most) in long {
        // Less than four bytes per message, for a million messages.
        let allowed = short[&rank] + 4_000;
        assert!(most <= allowed, "rank {rank}: {} KiB for a short stream, {most} KiB for a long one", short[&rank]);
    }
}

#[test]
fn contributions_are_released_on_every_communicator() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.compile_known("contributions");
    for what in ["freed", "idle", "bcast"] {
        let logs = format!("logs-{what}");
        let options = ["--keep", "acked", "--tier", "volatile", "--log-dir", &logs];
        let output = run(&sandbox, &options, &["./contributions", what]);
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(0), "contributions: done\n"),
            "{what}: {}",
            output.stderr
        );
        for rank in 0..2 {
            let profile = fs::read(sandbox.path().join(format!("{logs}/rank-{rank}.profile"))).unwrap();
            let profile: serde_json::Value = serde_json::from_slice(&profile).unwrap();
            let last = profile["series"]["samples"].as_array().unwrap().last().unwrap().clone();
            assert_eq!(last[5], 0, "{what}: records of rank {rank} are unacknowledged at the end: {last}");
            assert!(output.summary()["ranks"][rank]["memory_peak_bytes"].as_u64().unwrap() <= 1 << 20, "{what}");
        }
    }
}

/// Rank 0 sends messages of this size and counts failures; rank 1 receives the others.
const REFUSED: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, bytes = atoi(argv[1]), count = atoi(argv[2]), sent = 0, other = 0;
    char *buffer = calloc(bytes, 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; rank == 0 && i < count; i++) {
        MPI_Request request;
        int code = MPI_Isend(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
        if (code) other += code != MPI_ERR_OTHER;
        else sent++, MPI_Request_free(&request);
    }
    MPI_Pcontrol(0);
    MPI_Bcast(&sent, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 1 && i < sent; i++) MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0) printf("%d sent, %d refused with another code\n", sent, other);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn failed_sends_are_reported_once_and_counted() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.compile("refused", REFUSED);
    let options = ["--on-full", "fail", "--keep", "all", "--tier", "volatile"];
    let output = run(&sandbox, &options, &["./refused", "1000", "3000"]);
    let account = output.summary();
    let (logged, refused) = (&account["ranks"][0]["messages_logged"], account["ranks"][0]["sends_refused"].as_u64());
    let refused = refused.unwrap();
    assert!((1000..3000).contains(&refused), "{account}");
    assert_eq!(logged.as_u64().unwrap() + refused, 3000, "{account}");
    assert_eq!(output.stdout, format!("{logged} sent, 0 refused with another code\n"));
    assert_eq!(output.stderr.matches("a send fails").count(), 1, "{}", output.stderr);
    output.assert_exit(0, &format!("rank 0's log was full: {refused} sends failed"));
}

#[test]
fn a_message_larger_than_the_log_is_handled_like_a_full_log() {
    let Some(sandbox) = sandbox() else { return };
    sandbox.compile("refused", REFUSED);
    let fails = run(&sandbox, &["--on-full", "fail"], &["./refused", "5000000", "4"]);
    fails.assert_exit(0, "a send fails, as COUNTERFOIL_ON_FULL=fail asks: a record of 5000160 bytes can never fit");
    assert_eq!(fails.stdout, "0 sent, 0 refused with another code\n");
    let sender = &fails.summary()["ranks"][0];
    assert_eq!((&sender["sends_refused"], &sender["gave_up"]), (&4.into(), &serde_json::Value::Null), "{sender}");
    let stops = run(&sandbox, &["--on-full", "stop-logging"], &["./refused", "5000000", "4"]);
    stops.assert_exit(0, "can never fit: ");
    assert_eq!(stops.stdout, "4 sent, 0 refused with another code\n");
    assert_eq!(stops.stderr.matches("as COUNTERFOIL_ON_FULL=stop-logging asks").count(), 1, "{}", stops.stderr);
    let sender = &stops.summary()["ranks"][0];
    assert_eq!((&sender["logging_stopped"], &sender["gave_up"]), (&true.into(), &serde_json::Value::Null), "{sender}");
}

//! Logs that are full, and streams that are long.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use super::place::{Place, is_there};
use super::programs::below;
use crate::ended::Ended;

/// More than a log of 1 MiB holds, all under way at once: the receiver sleeps at first.
const TOO_MUCH: [&str; 4] = ["./stream", "50000", "1000", "isend"];
const ALL: &str = "stream: 50000 of 50000 received, 0 wrong\n";

fn place() -> Option<Place> {
    is_there().then(|| {
        let place = Place::new();
        place.compile_known("stream");
        place
    })
}

/// Runs the stream with a log of 1 MiB.
fn run(place: &Place, options: &[&str], program: &[&str]) -> Ended {
    place.counterfoil(&[&["run", "-n", "2", "--budget", "1MiB", "--json"], options, &["--"], program].concat())
}

#[test]
fn block_waits_until_the_receiver_has_received() {
    let Some(place) = place() else { return };
    let ended = run(&place, &["--on-full", "block"], &TOO_MUCH);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ALL), "{}", ended.stderr);
    let account = ended.account();
    let sender = &account["ranks"][0];
    assert_eq!((&sender["messages_logged"], &sender["gave_up"]), (&50_000.into(), &serde_json::Value::Null));
    assert!(sender["waited_s"].as_f64().unwrap() > 0.3, "{sender}");
    assert!(sender["memory_peak_bytes"].as_u64().unwrap() <= 1 << 20, "{sender}");
}

#[test]
fn stop_logging_goes_on_without_the_log_and_says_so_once() {
    let Some(place) = place() else { return };
    for keep in [&[][..], &["--keep", "all", "--tier", "volatile"]] {
        let ended = run(&place, &[&["--on-full", "stop-logging"], keep].concat(), &TOO_MUCH);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ALL), "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("not recoverable from here").count(), 1, "{}", ended.stderr);
        let account = ended.account();
        let sender = &account["ranks"][0];
        assert_eq!(sender["logging_stopped"], true, "{sender}");
        let logged = sender["messages_logged"].as_u64().unwrap();
        assert!((1000..50_000).contains(&logged), "{sender}");
        assert!(sender["waited_s"].as_f64().unwrap() < 0.3, "{sender}");
    }
}

#[test]
fn fail_makes_the_send_fail_as_the_error_handler_has_it() {
    let Some(place) = place() else { return };
    let ended = run(&place, &["--on-full", "fail"], &TOO_MUCH);
    ended.says(0, "a send fails, as COUNTERFOIL_ON_FULL=fail asks: the log is full");
    let account = ended.account();
    let logged = account["ranks"][0]["messages_logged"].as_u64().unwrap();
    assert!((1000..50_000).contains(&logged), "{account}");
    // What failed was not sent.
    assert_eq!(ended.stdout, format!("stream: {logged} of 50000 received, 0 wrong\n"));
    let fatal = run(&place, &["--on-full", "fail"], &[&TOO_MUCH[..], &["fatal"]].concat());
    // MPI_ERR_OTHER, of the handler that ends the job.
    fatal.says(16, "a send fails");
}

/// Operations that each give so many bytes, and exchanges whose receives are too short; how many of them fail is said.
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

fn operations() -> Option<Place> {
    is_there().then(|| {
        let place = Place::new();
        place.compile("operations", OPERATIONS);
        place
    })
}

#[test]
fn what_is_over_makes_room_at_once_where_nobody_waits_for_it() {
    let Some(place) = operations() else { return };
    // Two of them fit, and no third.
    for choice in ["fail", "stop-logging"] {
        let options = ["run", "-n", "2", "--budget", "8MiB", "--json", "--on-full", choice, "--"];
        let ended = place.counterfoil(&[&options[..], &["./operations", "3145728", "40", "0"]].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "0 failed, 0 cut\n"), "{choice}: {}", ended.stderr);
        for rank in ended.account()["ranks"].as_array().unwrap() {
            assert_eq!(
                (&rank["logging_stopped"], &rank["collectives"]),
                (&false.into(), &40.into()),
                "{choice}: {rank}"
            );
        }
    }
}

#[test]
fn a_message_that_is_cut_off_says_nothing_against_the_one_that_left_in_the_same_call() {
    let Some(place) = operations() else { return };
    for choice in ["fail", "block"] {
        let ended =
            place.counterfoil(&["run", "-n", "2", "--json", "--on-full", choice, "--", "./operations", "8", "0", "50"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "0 failed, 50 cut\n"), "{choice}: {}", ended.stderr);
        for rank in ended.account()["ranks"].as_array().unwrap() {
            assert_eq!(rank["messages_logged"], 50, "{choice}: {rank}");
        }
    }
}

#[test]
fn where_no_wait_can_help_nobody_waits() {
    let Some(place) = place() else { return };
    let ended = run(&place, &["--keep", "all", "--tier", "volatile"], &["./stream", "50000"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ALL), "{}", ended.stderr);
    ended.says(
        0,
        "everything is kept, and without a disk no wait makes room; the program goes on, and nothing more is logged",
    );
    assert!(ended.account()["ranks"][0]["gave_up"].as_str().unwrap().contains("no wait makes room"));
}

/// The most memory that each of the two ranks took, in KiB, as the kernel says.
fn memory_of(place: &Place, messages: &str) -> BTreeMap<String, u64> {
    let output = fs::File::create(place.path().join("out")).unwrap();
    let mut command = place.command(&["run", "-n", "2", "--", "./stream", messages]);
    let mut child = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn().unwrap();
    let mut most = BTreeMap::new();
    while child.try_wait().unwrap().is_none() {
        for pid in below(child.id()) {
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
    let said = fs::read_to_string(place.path().join("out")).unwrap();
    assert_eq!(said, format!("stream: {messages} of {messages} received, 0 wrong\n"));
    assert_eq!(most.len(), 2, "both ranks were seen");
    most
}

#[test]
fn a_stream_in_one_direction_takes_no_more_memory_the_longer_it_is() {
    let Some(place) = place() else { return };
    is_bounded(&place, "1100000");
}

#[test]
#[ignore = "takes a minute; its figures are in docs/mpi.md"]
fn a_stream_of_ten_million_messages_takes_no_more_memory_than_a_short_one() {
    let Some(place) = place() else { return };
    is_bounded(&place, "10000000");
}

#[track_caller]
fn is_bounded(place: &Place, messages: &str) {
    let short = memory_of(place, "100000");
    let long = memory_of(place, messages);
    for (rank, most) in long {
        // Four bytes for each of the million messages would be this much.
        let allowed = short[&rank] + 4_000;
        assert!(most <= allowed, "rank {rank}: {} KiB for a short stream, {most} KiB for a long one", short[&rank]);
    }
}

#[test]
fn contributions_are_let_go_whatever_communicator_they_were_for() {
    let Some(place) = place() else { return };
    place.compile_known("contributions");
    for what in ["freed", "idle", "bcast"] {
        let logs = format!("logs-{what}");
        let options = ["--keep", "acked", "--tier", "volatile", "--log-dir", &logs];
        let ended = run(&place, &options, &["./contributions", what]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "contributions: done\n"), "{what}: {}", ended.stderr);
        for rank in 0..2 {
            let profile = fs::read(place.path().join(format!("{logs}/rank-{rank}.profile"))).unwrap();
            let profile: serde_json::Value = serde_json::from_slice(&profile).unwrap();
            let last = profile["series"]["samples"].as_array().unwrap().last().unwrap().clone();
            assert_eq!(last[5], 0, "{what}: records of rank {rank} are unacknowledged at the end: {last}");
            assert!(ended.account()["ranks"][rank]["memory_peak_bytes"].as_u64().unwrap() <= 1 << 20, "{what}");
        }
    }
}

/// Rank 0 sends so many messages of so many bytes, and says how many failed; rank 1 receives the others.
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
fn of_many_sends_that_fail_the_first_has_a_line_and_all_are_counted() {
    let Some(place) = place() else { return };
    place.compile("refused", REFUSED);
    let options = ["--on-full", "fail", "--keep", "all", "--tier", "volatile"];
    let ended = run(&place, &options, &["./refused", "1000", "3000"]);
    let account = ended.account();
    let (logged, refused) = (&account["ranks"][0]["messages_logged"], account["ranks"][0]["sends_refused"].as_u64());
    let refused = refused.unwrap();
    assert!((1000..3000).contains(&refused), "{account}");
    assert_eq!(logged.as_u64().unwrap() + refused, 3000, "{account}");
    assert_eq!(ended.stdout, format!("{logged} sent, 0 refused with another code\n"));
    assert_eq!(ended.stderr.matches("a send fails").count(), 1, "{}", ended.stderr);
    ended.says(0, &format!("rank 0's log was full: {refused} sends failed"));
}

#[test]
fn a_message_that_is_longer_than_the_log_is_one_that_finds_no_room() {
    let Some(place) = place() else { return };
    place.compile("refused", REFUSED);
    let fails = run(&place, &["--on-full", "fail"], &["./refused", "5000000", "4"]);
    fails.says(0, "a send fails, as COUNTERFOIL_ON_FULL=fail asks: a record of 5000160 bytes can never fit");
    assert_eq!(fails.stdout, "0 sent, 0 refused with another code\n");
    let sender = &fails.account()["ranks"][0];
    assert_eq!((&sender["sends_refused"], &sender["gave_up"]), (&4.into(), &serde_json::Value::Null), "{sender}");
    let stops = run(&place, &["--on-full", "stop-logging"], &["./refused", "5000000", "4"]);
    stops.says(0, "can never fit: ");
    assert_eq!(stops.stdout, "4 sent, 0 refused with another code\n");
    assert_eq!(stops.stderr.matches("as COUNTERFOIL_ON_FULL=stop-logging asks").count(), 1, "{}", stops.stderr);
    let sender = &stops.account()["ranks"][0];
    assert_eq!((&sender["logging_stopped"], &sender["gave_up"]), (&true.into(), &serde_json::Value::Null), "{sender}");
}

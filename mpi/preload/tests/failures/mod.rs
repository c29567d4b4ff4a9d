//! Communicators of those that live, and processes that fail (`tests/c/shrunk.c`), where the MPI can go on without them: Open MPI 5.

use std::path::Path;

use serde_json::Value;

use super::launch::{Run, compile, sources, wrapped};

/// Messages that each rank sends that lives to the end.
const MESSAGES: u64 = 1110;
/// Messages of rank 0 that rank 1 has not received when it fails.
const LOST: u64 = 200;

/// Whether the MPI can do that; said where it can't.
fn is_there() -> bool {
    let is_there = wrapped().contains("MPIX_Comm_shrink");
    // Of an Open MPI with sessions it is a part.
    assert_eq!(is_there, wrapped().contains("MPI_Session_init"));
    if !is_there {
        eprintln!("NOT TESTED: this MPI has no MPIX_Comm_shrink; cargo xtask mpi --mpi wheel has one");
    }
    is_there
}

/// How often a run is made that MPI doesn't end.
const RUNS_MAX: u32 = 5;

/// Runs it on 4 ranks with a log of 1 MiB each, which doesn't hold what is sent without acknowledgements: the accounts of these ranks, and what
/// was said.
///
/// Behind a failure Open MPI 5.0.11 hangs in MPI_Finalize now and then, also without any library; an alarm ends the program there. The accounts
/// are written before: if they are there, the library has done its part, and the run is made again.
fn run(options: &[&'static str], arguments: &[&'static str], living: &[u32]) -> (Vec<Value>, String) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("shrunk");
    compile(&sources().join("shrunk.c"), &program, &[]);
    let mut run = Run::with_the_library(folder.path(), &[("COUNTERFOIL_BUDGET", "1MiB")]);
    (run.options, run.arguments) = (options.to_vec(), arguments.to_vec());
    for _ in 0..RUNS_MAX {
        let output = run.once(program.to_str().unwrap(), 4);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains(&format!("shrunk: ok on {} ranks\n", living.len())), "{}: {said}", output.status);
        let accounts = living.iter().map(|rank| account(folder.path(), *rank, &said)).collect();
        if output.status.success() {
            return (accounts, said);
        }
        eprintln!("{}: once more", output.status);
        living.iter().for_each(|rank| std::fs::remove_file(folder.path().join(format!("rank-{rank}.json"))).unwrap());
    }
    panic!("MPI hung {RUNS_MAX} times");
}

fn account(folder: &Path, rank: u32, said: &str) -> Value {
    let text =
        std::fs::read(folder.join(format!("rank-{rank}.json"))).unwrap_or_else(|error| panic!("{error}: {said}"));
    serde_json::from_slice(&text).unwrap()
}

#[track_caller]
fn all_is_logged(accounts: &[Value], lost: u64, said: &str) {
    for account in accounts {
        assert_eq!(account["gave_up"], Value::Null, "{said}");
        let lost = if account["rank"] == 0 { lost } else { 0 };
        assert_eq!(account["messages_logged"], MESSAGES + lost, "{account}");
        assert_eq!(account["messages_received"], MESSAGES, "{account}");
    }
}

#[test]
fn what_is_sent_on_a_communicator_of_those_that_live_is_logged() {
    if is_there() {
        for options in [&[][..], &["--with-ft", "ulfm"]] {
            let (accounts, said) = run(options, &[], &[0, 1, 2, 3]);
            all_is_logged(&accounts, 0, &said);
            assert!(!said.contains("counterfoil"), "{said}");
        }
    }
}

#[test]
fn behind_a_failure_those_that_live_go_on_logging_and_acknowledging() {
    if is_there() {
        // What nobody will receive takes four fifths of a log, and makes room for what follows.
        let (accounts, said) = run(&["--with-ft", "ulfm"], &["fails"], &[0, 2, 3]);
        all_is_logged(&accounts, LOST, &said);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("counterfoil")).collect();
        assert!(matches!(lines[..], [line] if line.contains("rank 0: rank 1 has failed")), "{said}");
    }
}

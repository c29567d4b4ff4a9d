//! Communicators of those that live, and processes that fail (`tests/c/shrunk.c`), where the MPI can go on without them: Open MPI 5.

use std::path::Path;

use serde_json::Value;

use super::launch::{Run, compile, sources, wrapped};

/// Messages that each rank sends that lives to the end.
const MESSAGES: u64 = 1110;

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

/// Runs it on 4 ranks with a log of 1 MiB each, which doesn't hold what is sent without acknowledgements: the accounts of these ranks, and what
/// was said.
fn run(options: &[&'static str], arguments: &[&'static str], living: &[u32]) -> (Vec<Value>, String) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("shrunk");
    compile(&sources().join("shrunk.c"), &program, &[]);
    let mut run = Run::with_the_library(folder.path(), &[("COUNTERFOIL_BUDGET", "1MiB")]);
    (run.options, run.arguments) = (options.to_vec(), arguments.to_vec());
    let output = run.once(program.to_str().unwrap(), 4);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("shrunk: ok on {} ranks\n", living.len()), "{said}");
    (living.iter().map(|rank| account(folder.path(), *rank, &said)).collect(), said)
}

fn account(folder: &Path, rank: u32, said: &str) -> Value {
    let text =
        std::fs::read(folder.join(format!("rank-{rank}.json"))).unwrap_or_else(|error| panic!("{error}: {said}"));
    serde_json::from_slice(&text).unwrap()
}

#[track_caller]
fn all_is_logged(accounts: &[Value], said: &str) {
    for account in accounts {
        assert_eq!(account["gave_up"], Value::Null, "{said}");
        assert_eq!(account["messages_logged"], MESSAGES, "{account}");
        assert_eq!(account["messages_received"], MESSAGES, "{account}");
    }
}

#[test]
fn what_is_sent_on_a_communicator_of_those_that_live_is_logged() {
    if is_there() {
        for options in [&[][..], &["--with-ft", "ulfm"]] {
            let (accounts, said) = run(options, &[], &[0, 1, 2, 3]);
            all_is_logged(&accounts, &said);
            assert!(!said.contains("counterfoil"), "{said}");
        }
    }
}

#[test]
fn behind_a_failure_those_that_live_go_on_logging_and_acknowledging() {
    if is_there() {
        let (accounts, said) = run(&["--with-ft", "ulfm"], &["fails"], &[0, 2, 3]);
        all_is_logged(&accounts, &said);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("counterfoil")).collect();
        assert!(matches!(lines[..], [line] if line.contains("rank 0: rank 1 has failed")), "{said}");
    }
}

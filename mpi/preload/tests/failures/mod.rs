//! Process failures, and communicators of the survivors (`tests/c/shrunk.c`), with an MPI that supports them: Open MPI
//! 5.
//!
//! Also revoked communicators (`tests/c/revoked.c`).

use std::path::Path;

use counterfoil_test_support::note_untested;
use serde_json::Value;

use super::accounts;
use super::launch::{Run, wrapped};

/// Messages sent by each surviving rank.
const MESSAGES: u64 = 1110;
/// Messages from rank 0 not received by rank 1 when it fails.
const LOST: u64 = 200;

/// Messages from rank 1 in `tests/c/revoked.c`.
const REVOKED: u64 = 40;

/// Returns `true` if the MPI supports failures; notes untested cases otherwise.
pub(super) fn has_ulfm() -> bool {
    let has_ulfm = wrapped().contains("MPIX_Comm_shrink");
    // Every Open MPI with sessions also has it.
    assert_eq!(has_ulfm, wrapped().contains("MPI_Session_init"));
    if !has_ulfm {
        note_untested("failures: this MPI has no MPIX_Comm_shrink; that of `cargo xtask mpi --mpi wheel` has");
    }
    has_ulfm
}

/// Most repetitions of a run in which MPI hangs.
const RUNS_MAX: u32 = 5;

/// Runs the program on 4 ranks with a log of 1 MiB each, too small for all messages without acknowledgements.
///
/// Returns the accounts of the `living` ranks, and the warnings. After a failure, Open MPI 5.0.11 sometimes hangs in
/// `MPI_Finalize`, even without a library; an alarm ends the program then. The library writes the accounts before: if
/// they exist, it has done its part, and the run is repeated.
fn run(options: &[&'static str], arguments: &[&'static str], living: &[u32]) -> (Vec<Value>, String) {
    run_with_budget("1MiB", options, arguments, living)
}

/// Like [`run`], with logs of `budget` bytes.
fn run_with_budget(
    budget: &str,
    options: &[&'static str],
    arguments: &[&'static str],
    living: &[u32],
) -> (Vec<Value>, String) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut run = Run::with_the_library(folder.path(), &[("COUNTERFOIL_BUDGET", budget)]);
    (run.options, run.arguments) = (options.to_vec(), arguments.to_vec());
    for _ in 0..RUNS_MAX {
        let output = run.once("shrunk", 4);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains(&format!("shrunk: ok on {} ranks\n", living.len())), "{}: {stderr}", output.status);
        let accounts = living.iter().map(|rank| account(folder.path(), *rank, &stderr)).collect();
        if output.status.success() {
            return (accounts, stderr);
        }
        eprintln!("{}: running it again", output.status);
        living.iter().for_each(|rank| std::fs::remove_file(folder.path().join(format!("rank-{rank}.json"))).unwrap());
    }
    panic!("MPI hung {RUNS_MAX} times");
}

fn account(folder: &Path, rank: u32, stderr: &str) -> Value {
    let text =
        std::fs::read(folder.join(format!("rank-{rank}.json"))).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    serde_json::from_slice(&text).unwrap()
}

#[track_caller]
fn expect_all_logged(accounts: &[Value], lost: u64, stderr: &str) {
    for account in accounts {
        assert_eq!(account["gave_up"], Value::Null, "{stderr}");
        let lost = if account["rank"] == 0 { lost } else { 0 };
        assert_eq!(account["messages_logged"], MESSAGES + lost, "{account}");
        assert_eq!(account["messages_received"], MESSAGES, "{account}");
    }
}

#[test]
fn messages_on_a_shrunk_communicator_are_logged() {
    if has_ulfm() {
        for options in [&[][..], &["--with-ft", "ulfm"]] {
            let (accounts, stderr) = run(options, &[], &[0, 1, 2, 3]);
            expect_all_logged(&accounts, 0, &stderr);
            assert!(!stderr.contains("counterfoil"), "{stderr}");
        }
    }
}

#[test]
fn after_a_failure_the_survivors_continue_to_log_and_acknowledge() {
    if has_ulfm() {
        // Messages to the failed rank take four fifths of a log; they are released to make room for later ones.
        let (accounts, stderr) = run(&["--with-ft", "ulfm"], &["fails"], &[0, 2, 3]);
        expect_all_logged(&accounts, LOST, &stderr);
        let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("counterfoil")).collect();
        let [failure, gap] = lines[..] else { panic!("{stderr}") };
        assert!(failure.contains("rank 0: rank 1 has failed"), "{stderr}");
        assert!(gap.contains("rank 0: messages to a failed rank were dropped"), "{stderr}");
        assert_eq!(accounts[0]["gaps"].as_array().unwrap().len(), 1, "{}", accounts[0]);
    }
}

#[test]
fn a_receive_that_a_failure_interrupts_is_counted_when_it_ends() {
    if has_ulfm() {
        let (accounts, stderr) = run(&["--with-ft", "ulfm"], &["interrupted"], &[0, 2, 3]);
        let count = |account: &Value, name: &str| account[name].as_u64().unwrap() - MESSAGES;
        let more =
            accounts.iter().map(|account| (count(account, "messages_logged"), count(account, "messages_received")));
        // Ranks 0 and 2 exchange a message.
        assert_eq!(more.collect::<Vec<_>>(), [(1, 1), (1, 1), (0, 0)], "{stderr}");
        assert!(accounts.iter().all(|account| account["gave_up"] == Value::Null), "{stderr}");
    }
}

#[test]
fn a_blocking_call_that_a_failure_interrupts_leaves_no_receive_pending() {
    if has_ulfm() {
        for threads in [&["blocking"][..], &["blocking", "threads"]] {
            let (accounts, stderr) = run(&["--with-ft", "ulfm"], threads, &[0, 2, 3]);
            let received = |account: &Value| account["messages_received"].as_u64().unwrap() - MESSAGES;
            // Rank 0 receives from rank 2, and ranks 2 and 3 receive from rank 0.
            assert_eq!(accounts.iter().map(received).collect::<Vec<_>>(), [1, 1, 1], "{stderr}");
            assert!(accounts.iter().all(|account| account["gave_up"] == Value::Null), "{stderr}");
        }
    }
}

#[test]
fn a_message_of_which_a_failure_leaves_a_part_is_not_counted() {
    if has_ulfm() {
        // Transports over which the sender moves its message, piece by piece.
        for btl in [&["sm,self", "--mca", "smsc", "^cma"][..], &["tcp,self"]] {
            let mut options = vec!["--with-ft", "ulfm", "--mca", "btl"];
            options.extend(btl);
            let (accounts, stderr) = run_with_budget("40MiB", &options, &["halfway"], &[0, 2, 3]);
            let from_failed = &accounts[0]["received_from"][1];
            // The ring's went to rank 2.
            assert_eq!(from_failed["messages"], 0, "{btl:?}: {}, {stderr}", accounts[0]);
            let received = |account: &Value| account["messages_received"].as_u64().unwrap() - MESSAGES;
            assert_eq!(accounts.iter().map(received).collect::<Vec<_>>(), [11_000, 0, 0], "{btl:?}: {stderr}");
        }
    }
}

#[test]
fn a_revocation_releases_messages_that_are_not_received() {
    if has_ulfm() {
        for revoker in [&[][..], &["receiver"]] {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let mut run = Run::with_the_library(folder.path(), &[("COUNTERFOIL_BUDGET", "1MiB")]);
            (run.options, run.arguments) = (vec!["--with-ft", "ulfm"], revoker.to_vec());
            let output = run.run_successfully("revoked", 2);
            let stderr = String::from_utf8_lossy(&output.stderr);
            let accounts = accounts(folder.path(), 2, &stderr);
            assert!(!stderr.contains("counterfoil"), "{revoker:?}: {stderr}");
            assert_eq!(accounts[1]["messages_logged"], REVOKED, "{revoker:?}");
        }
    }
}

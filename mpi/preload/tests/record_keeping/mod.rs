//! Calls whose records or counts are easily wrong (`tests/c/record_keeping.c`).
//!
//! The test program `agreement` checks the contents of the log afterwards.

use serde_json::{Value, json};

use super::all_accounts;
use super::launch::Run;

/// Runs a case on `ranks` ranks; returns the ranks' accounts and the lines printed by the library.
#[track_caller]
fn run(case: &'static str, ranks: u32) -> (Vec<Value>, Vec<String>) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut run = Run::with_the_library(folder.path(), &[]);
    run.arguments = vec![case];
    let output = run.run_successfully("record_keeping", ranks);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines = stderr.lines().filter(|line| line.contains("counterfoil")).map(str::to_owned).collect();
    (all_accounts(folder.path(), ranks, &stderr), lines)
}

#[test]
fn an_intercommunicator_with_contributions_of_one_group_can_be_freed() {
    let (accounts, lines) = run("one-group", 4);
    assert!(lines.is_empty() && accounts.iter().all(|account| account["gave_up"] == Value::Null), "{lines:?}");
}

#[test]
fn a_receiver_that_counts_more_than_was_logged_ends_logging_with_one_line() {
    let (accounts, lines) = run("unseen", 2);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    // The count showing it depends on when the acknowledgements arrive.
    assert!(line.contains("rank 0: rank 1 has received ") && line.contains(" messages with tag 1 "), "{line}");
    assert!(line.contains("by calls that can't be logged") && line.contains("nothing more is logged"), "{line}");
    assert!(accounts[0]["gave_up"].as_str().unwrap().contains("tag 1"), "{}", accounts[0]);
    assert_eq!(accounts[1]["gave_up"], Value::Null);
}

#[test]
fn logging_that_is_turned_off_leaves_a_gap_in_the_summary() {
    let (accounts, lines) = run("turned-off", 3);
    // One line from each rank.
    assert_eq!(lines.len(), 3, "{lines:?}");
    for account in accounts {
        assert_eq!(account["gaps"], json!(["the program has turned logging off for a while (MPI_Pcontrol)"]));
        // At levels 1, 2 and 3.
        assert_eq!((&account["messages_logged"], &account["messages_received"]), (&json!(3), &json!(4)), "{account}");
    }
}

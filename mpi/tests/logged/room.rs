//! Programs that send more than their logs hold (`examples/room.rs`): who waits for room gets it, or is told that nobody can make any.

use super::{accounts, job};

/// Runs a case on so many ranks with a log of so many KiB each: what the ranks printed.
#[track_caller]
fn run(case: &str, ranks: u32, kib: u32) -> String {
    let output = job("room", ranks, &[case, &kib.to_string()], None);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// All that the program sends is logged, and all that it gives is kept, by all ranks together.
#[track_caller]
fn is_kept(case: &str, ranks: u32, kib: u32, messages: u64) {
    let printed = run(case, ranks, kib);
    let accounts = accounts(&printed, ranks);
    assert_eq!(accounts.values().map(|[sent, _, given, _]| sent + given).sum::<u64>(), messages, "{case}: {printed}");
}

#[test]
fn what_collective_operations_keep_is_let_go_on_any_communicator() {
    for (case, messages) in [
        ("world", 40),
        // One rank of each half, or all but one.
        ("halves", 2 * 40),
        ("dup", 2 * 40),
        ("gather", 2 * 40),
        ("reduce", 2 * 40),
        ("scatter", 2 * 40),
        ("scan", 4 * 40),
        ("overlapping", 4 * 40),
        ("freed", 2 * 16 + 4 * 20),
        ("many", 2 * 40),
        ("immediate", 2 * 40),
        ("at-once", 2 * 40),
    ] {
        is_kept(case, 4, 1024, messages);
    }
    // The log holds one.
    is_kept("world", 4, 256, 40);
    is_kept("world", 8, 1024, 40);
}

#[test]
fn a_rank_that_waits_in_a_call_acknowledges_others() {
    is_kept("messages", 8, 1024, 7 * 40);
    is_kept("messages", 4, 256, 3 * 40);
    is_kept("ring", 4, 256, 4 * 40);
    for (case, messages) in [("receives", 3 * 40), ("sends", 3 * 40), ("exchanges", 4 * 40), ("probes", 3 * 40)] {
        is_kept(case, 4, 512, messages);
    }
}

#[test]
fn what_a_rank_sends_to_itself_holds_nothing_back() {
    is_kept("itself", 4, 1024, 4 * 2 * 40);
}

#[test]
fn a_rank_that_is_done_still_answers() {
    is_kept("done-early", 4, 1024, 44);
}

#[test]
fn who_waits_for_a_rank_that_computes_or_looks_for_messages_goes_on_waiting() {
    is_kept("sleeps", 4, 1024, 8);
    is_kept("polls", 4, 1024, 8);
}

#[test]
fn a_wait_that_nobody_can_end_is_an_error_of_one_rank() {
    for case in ["backwards", "backwards-collective"] {
        let printed = run(case, 4, 1024);
        assert_eq!(printed.matches("nobody will make room: for 10 s").count(), 1, "{case}: {printed}");
    }
}

#[test]
fn who_goes_away_with_an_error_leaves_nobody_waiting_for_ever() {
    let printed = run("gone", 4, 1024);
    assert_eq!(printed.matches("nobody will make room: for 3 s").count(), 3, "{printed}");
}

#[test]
fn nobody_waits_for_himself_alone() {
    is_kept("alone", 4, 1024, 4 * 5);
}

#[test]
fn a_message_that_is_larger_than_the_log_is_an_error() {
    let printed = run("huge", 4, 1024);
    assert_eq!(printed.matches("can never fit").count(), 1, "{printed}");
}

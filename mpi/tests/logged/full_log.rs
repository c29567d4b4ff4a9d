//! Programs sending more than their logs hold (`examples/full_log.rs`): a rank waiting for room gets it, or an error if
//! no rank can make any.

use super::{accounts, job};

/// Runs a case on `ranks` ranks with a `kib` KiB log each; returns the output.
#[track_caller]
fn run(case: &str, ranks: u32, kib: u32) -> String {
    let output = job("full_log", ranks, &[case, &kib.to_string()], None);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {}\n{stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Checks the number of messages and contributions logged by all ranks together.
#[track_caller]
fn expect_logged(case: &str, ranks: u32, kib: u32, messages: u64) {
    let printed = run(case, ranks, kib);
    let accounts = accounts(&printed, ranks);
    assert_eq!(accounts.values().map(|[sent, _, given, _]| sent + given).sum::<u64>(), messages, "{case}: {printed}");
}

#[test]
fn contributions_are_released_on_any_communicator() {
    for (case, messages) in [
        ("world", 40),
        // Contributors: one rank in each half, or all but one.
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
        expect_logged(case, 4, 1024, messages);
    }
    // The log holds one message.
    expect_logged("world", 4, 256, 40);
    expect_logged("world", 8, 1024, 40);
}

#[test]
fn a_rank_acknowledges_while_it_waits_in_a_call() {
    expect_logged("messages", 8, 1024, 7 * 40);
    expect_logged("messages", 4, 256, 3 * 40);
    expect_logged("ring", 4, 256, 4 * 40);
    for (case, messages) in [("receives", 3 * 40), ("sends", 3 * 40), ("exchanges", 4 * 40), ("probes", 3 * 40)] {
        expect_logged(case, 4, 512, messages);
    }
}

#[test]
fn messages_to_self_are_released() {
    expect_logged("itself", 4, 1024, 4 * 2 * 40);
}

#[test]
fn a_rank_answers_after_it_is_done() {
    expect_logged("done-early", 4, 1024, 44);
}

#[test]
fn a_rank_that_computes_or_polls_is_waited_for() {
    expect_logged("sleeps", 4, 1024, 8);
    expect_logged("polls", 4, 1024, 8);
}

#[test]
fn a_deadlock_is_an_error_of_one_rank() {
    for case in ["backwards", "backwards-collective"] {
        let printed = run(case, 4, 1024);
        assert_eq!(printed.matches("no rank will free space: for 10 s").count(), 1, "{case}: {printed}");
    }
}

#[test]
fn ranks_do_not_wait_for_ever_for_a_rank_that_left_with_an_error() {
    let printed = run("gone", 4, 1024);
    assert_eq!(printed.matches("no rank will free space: for 3 s").count(), 3, "{printed}");
}

#[test]
fn a_rank_does_not_wait_for_itself() {
    expect_logged("alone", 4, 1024, 4 * 5);
}

#[test]
fn a_send_without_time_to_wait_fails_with_the_refusal() {
    expect_logged("no-wait", 4, 1024, 4 * 5);
}

#[test]
fn a_message_that_is_larger_than_the_log_is_an_error() {
    let printed = run("huge", 4, 1024);
    assert_eq!(printed.matches("can never fit").count(), 1, "{printed}");
}

//! Programs that send more than their logs hold (`tests/c/room.c`): who waits for room gets it, or says that nobody can make any.

use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use super::all_accounts;
use super::launch::{Run, compile, sources, wrapped};

/// What is said where logging ends.
const ENDS: &str = "the program goes on, and nothing more is logged";
/// Bytes of what a rank sends or gives at once.
const MESSAGE: u64 = 200 << 10;

/// The program, compiled.
fn room() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, std::path::PathBuf)> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("room");
        compile(&sources().join("room.c"), &path, &[]);
        (folder, path)
    });
    &built.1
}

/// Runs a case on so many ranks with a log of so many bytes each: the ranks' accounts, and what was said.
#[track_caller]
fn run(case: &'static str, ranks: u32, budget: &str) -> (Vec<Value>, String) {
    run_with(case, ranks, &[("COUNTERFOIL_BUDGET", budget)])
}

/// The same, with these settings.
#[track_caller]
fn run_with(case: &'static str, ranks: u32, settings: &[(&'static str, &str)]) -> (Vec<Value>, String) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut run = Run::with_the_library(folder.path(), settings);
    run.arguments = vec![case];
    let output = run.once(room().to_str().unwrap(), ranks);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{case}: {}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("room: ok on {ranks} ranks\n"), "{case}: {said}");
    (all_accounts(folder.path(), ranks, &said), said)
}

/// Why ranks gave up logging, those that did.
fn gave_up(accounts: &[Value]) -> Vec<(usize, &str)> {
    accounts.iter().enumerate().filter_map(|(rank, account)| Some((rank, account["gave_up"].as_str()?))).collect()
}

/// Nobody gives up, and as much is kept of collective operations, by all ranks together, as the program gave.
#[track_caller]
fn is_kept(case: &'static str, ranks: u32, budget: &str, messages: u64) {
    let (accounts, said) = run(case, ranks, budget);
    assert_eq!(gave_up(&accounts), [], "{case}: {said}");
    assert!(!said.contains(ENDS), "{case}: {said}");
    let bytes = |account: &Value| {
        account["contributions"]["bytes"].as_u64().unwrap() + account["bytes_logged"].as_u64().unwrap()
    };
    assert_eq!(accounts.iter().map(bytes).sum::<u64>(), messages * MESSAGE, "{case}");
    for account in accounts {
        assert!(account["memory_peak_bytes"].as_u64().unwrap() <= 1 << 20, "{case}: {account}");
    }
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
        ("between", 40),
        ("overlapping", 4 * 40),
        ("freed", 2 * 16 + 4 * 20),
        ("many", 2 * 40),
        ("immediate", 2 * 40),
    ] {
        is_kept(case, 4, "1MiB", messages);
    }
    is_kept("world", 4, "256KiB", 40);
}

#[test]
fn a_rank_that_is_in_mpi_finalize_still_answers() {
    is_kept("done-early", 4, "1MiB", 44);
}

#[test]
fn a_rank_that_waits_for_a_message_acknowledges_others() {
    is_kept("messages", 8, "1MiB", 7 * 40);
    is_kept("messages", 4, "256KiB", 3 * 40);
}

#[test]
fn what_a_rank_sends_to_itself_holds_nothing_back() {
    // A quarter of a message to itself, and a whole one that nobody else gets, on each rank.
    is_kept("itself", 4, "1MiB", 4 * (10 + 40));
}

#[test]
fn a_thread_that_waits_for_room_keeps_no_other_one_from_making_it() {
    is_kept("threads", 4, "1MiB", 4 * 40 + 2 * 40);
}

#[test]
fn a_thread_that_starts_several_requests_keeps_no_other_one_from_making_room() {
    is_kept("startall", 4, "1MiB", 4 * 40);
}

#[test]
fn a_thread_that_exchanges_in_place_keeps_no_other_one_from_making_room() {
    if wrapped().contains("MPI_Isendrecv_replace") {
        is_kept("replace", 4, "1MiB", 4 * 40);
    }
}

#[test]
fn a_thread_that_has_sent_in_parts_keeps_no_other_one_from_making_room() {
    if wrapped().contains("MPI_Psend_init") {
        is_kept("partitioned", 4, "1MiB", 4 * 40);
    }
}

#[test]
fn communicators_that_threads_may_make_beside_others_have_one_number_everywhere() {
    is_kept("numbers", 4, "1MiB", 2 * 40);
}

#[test]
fn who_waits_for_a_rank_that_computes_or_looks_for_messages_goes_on_waiting() {
    for case in ["sleeps", "polls"] {
        let (accounts, said) = run(case, 4, "1MiB");
        assert_eq!(gave_up(&accounts), [], "{case}: {said}");
        assert!(accounts[0]["waited_s"].as_f64().unwrap() > 10.0, "{case}: {}", accounts[0]);
        assert_eq!(said.matches("waits for room in its log").count(), 1, "{case}: {said}");
    }
}

#[test]
fn a_wait_that_nobody_can_end_is_given_up_by_one_rank() {
    for (case, seconds) in [("backwards", None), ("backwards-collective", Some("4"))] {
        let settings = [("COUNTERFOIL_BUDGET", "1MiB"), ("COUNTERFOIL_STANDSTILL", seconds.unwrap_or_default())];
        let (accounts, said) = run_with(case, 4, if seconds.is_some() { &settings } else { &settings[..1] });
        let gave_up = gave_up(&accounts);
        let why = format!("nobody will make room: for {} s", seconds.unwrap_or("10"));
        assert!(matches!(gave_up[..], [(0, said)] if said.contains(&why)), "{case}: {said}");
        assert_eq!(said.matches(ENDS).count(), 1, "{case}: {said}");
    }
}

#[test]
fn nobody_waits_for_himself_alone() {
    let (accounts, said) = run("alone", 4, "1MiB");
    assert_eq!(gave_up(&accounts).len(), 4, "{said}");
    for account in accounts {
        assert!(account["gave_up"].as_str().unwrap().contains("only the program itself could make room"), "{said}");
        assert!(account["waited_s"].as_f64().unwrap() < 1.0, "{account}");
    }
}

#[test]
fn an_operation_that_is_larger_than_the_log_is_named() {
    let (accounts, said) = run("huge", 4, "1MiB");
    assert!(matches!(gave_up(&accounts)[..], [(0, why)] if why.contains("can never fit")), "{said}");
}

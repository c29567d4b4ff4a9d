//! Programs that send more than their logs hold (`tests/c/full_log.c`).
//!
//! A rank waiting for room gets it, or gives up logging if no rank can make any.

use serde_json::Value;

use super::all_accounts;
use super::failures::has_ulfm;
use super::launch::{Run, wrapped};

/// Warning from a rank that gives up logging.
const GIVES_UP: &str = "the program goes on, and nothing more is logged";
/// Bytes in a message or contribution.
const MESSAGE: u64 = 200 << 10;

/// Runs a case on `ranks` ranks with a log of `budget` bytes each; returns the ranks' accounts and the warnings.
#[track_caller]
fn run(case: &'static str, ranks: u32, budget: &str) -> (Vec<Value>, String) {
    run_with(case, ranks, &[("COUNTERFOIL_BUDGET", budget)])
}

/// Runs a case with these settings; returns the ranks' accounts and the warnings.
#[track_caller]
fn run_with(case: &'static str, ranks: u32, settings: &[(&'static str, &str)]) -> (Vec<Value>, String) {
    run_under(&[], case, ranks, settings)
}

/// Runs a case with these `mpirun` options, too.
#[track_caller]
fn run_under(
    options: &[&'static str],
    case: &'static str,
    ranks: u32,
    settings: &[(&'static str, &str)],
) -> (Vec<Value>, String) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut run = Run::with_the_library(folder.path(), settings);
    (run.options, run.arguments) = (options.to_vec(), vec![case]);
    let stderr = String::from_utf8_lossy(&run.run_successfully("full_log", ranks).stderr).into_owned();
    (all_accounts(folder.path(), ranks, &stderr), stderr)
}

/// Returns the ranks that gave up logging, with their reasons.
fn gave_up(accounts: &[Value]) -> Vec<(usize, &str)> {
    accounts.iter().enumerate().filter_map(|(rank, account)| Some((rank, account["gave_up"].as_str()?))).collect()
}

/// Checks that no rank gives up logging, and that all ranks together log all messages and contributions.
#[track_caller]
fn expect_logged(case: &'static str, ranks: u32, budget: &str, messages: u64) {
    expect_logged_under(&[], case, ranks, budget, messages);
}

/// Like [`expect_logged`], with these `mpirun` options.
#[track_caller]
fn expect_logged_under(options: &[&'static str], case: &'static str, ranks: u32, budget: &str, messages: u64) {
    let (accounts, stderr) = run_under(options, case, ranks, &[("COUNTERFOIL_BUDGET", budget)]);
    assert_eq!(gave_up(&accounts), [], "{case}: {stderr}");
    assert!(!stderr.contains(GIVES_UP), "{case}: {stderr}");
    let bytes = |account: &Value| {
        account["contributions"]["bytes"].as_u64().unwrap() + account["bytes_logged"].as_u64().unwrap()
    };
    assert_eq!(accounts.iter().map(bytes).sum::<u64>(), messages * MESSAGE, "{case}");
    for account in accounts {
        assert!(account["memory_peak_bytes"].as_u64().unwrap() <= 1 << 20, "{case}: {account}");
    }
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
        ("between", 40),
        ("overlapping", 4 * 40),
        ("freed", 2 * 16 + 4 * 20),
        ("many", 2 * 40),
        ("immediate", 2 * 40),
    ] {
        expect_logged(case, 4, "1MiB", messages);
    }
    expect_logged("world", 4, "256KiB", 40);
}

#[test]
fn a_rank_answers_in_mpi_finalize() {
    expect_logged("done-early", 4, "1MiB", 44);
}

#[test]
fn a_rank_acknowledges_while_it_waits_for_a_message() {
    expect_logged("messages", 8, "1MiB", 7 * 40);
    expect_logged("messages", 4, "256KiB", 3 * 40);
}

#[test]
fn receives_that_are_waited_for_together_are_acknowledged_one_by_one() {
    // A rank waiting until the deadlock is detected gives up.
    expect_logged("posted-one-way", 2, "1MiB", 40);
    expect_logged("posted-few", 2, "1MiB", 2 * 8);
    for case in [
        "posted-exchange",
        "posted-any-source",
        "posted-persistent",
        "posted-last",
        "posted-barrier",
        "posted-tests",
        "posted-self",
    ] {
        expect_logged(case, 4, "1MiB", 4 * 40);
    }
}

#[test]
fn receives_that_a_thread_waits_for_together_are_acknowledged_one_by_one() {
    expect_logged("threads-posted-one-way", 2, "1MiB", 40);
    for case in [
        "threads-posted-exchange",
        "threads-posted-any-source",
        "threads-posted-persistent",
        "threads-posted-last",
        "threads-posted-barrier",
        "threads-posted-tests",
        "threads-posted-self",
    ] {
        expect_logged(case, 4, "1MiB", 4 * 40);
    }
}

#[test]
fn receives_that_are_waited_for_together_are_acknowledged_where_failures_are_survived() {
    if has_ulfm() {
        let options = ["--with-ft", "ulfm"];
        for case in
            ["posted-exchange", "posted-last", "posted-barrier", "threads-posted-last", "threads-posted-barrier"]
        {
            expect_logged_under(&options, case, 4, "1MiB", 4 * 40);
        }
    }
}

#[test]
fn messages_to_self_are_released() {
    // On each rank: a quarter of a message to itself, and a broadcast to no other rank.
    expect_logged("itself", 4, "1MiB", 4 * (10 + 40));
}

#[test]
fn messages_held_back_by_an_unreceived_one_are_spilled() {
    let log = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(log.path(), private).unwrap();
    let settings = [
        ("COUNTERFOIL_KEEP", "all"),
        ("COUNTERFOIL_TIER", "node-local"),
        ("COUNTERFOIL_BUDGET", "1MiB"),
        ("COUNTERFOIL_LOG_DIR", log.path().to_str().unwrap()),
    ];
    let (accounts, stderr) = run_with("held-back", 2, &settings);
    assert_eq!(gave_up(&accounts), [], "{stderr}");
}

#[test]
fn a_rank_that_gives_up_logging_keeps_what_it_has_logged() {
    let log = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let shared = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |dir: &tempfile::TempDir| -> &'static str {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(dir.path(), private).unwrap();
        dir.path().to_str().unwrap().to_owned().leak()
    };
    let settings = [
        ("COUNTERFOIL_KEEP", "all"),
        ("COUNTERFOIL_TIER", "process-crash-safe"),
        ("COUNTERFOIL_BUDGET", "1MiB"),
        ("COUNTERFOIL_SHM_DIR", path(&shared)),
        ("COUNTERFOIL_LOG_DIR", path(&log)),
    ];
    let (accounts, stderr) = run_with("held-back", 2, &settings);
    let [(rank, why), ..] = gave_up(&accounts)[..] else { panic!("no rank gave up: {stderr}") };
    assert!(why.contains("everything is kept"), "{stderr}");
    assert!(stderr.contains("its log is kept up to here"), "{stderr}");
    assert_eq!((&accounts[rank]["kept"], &accounts[rank]["not_kept"]), (&Value::Bool(true), &Value::Null), "{stderr}");
    let bytes: u64 = segments(&log.path().join(format!("rank-{rank}"))).iter().sum();
    assert!(bytes > 512 << 10, "{bytes} bytes of segments: {stderr}");
}

/// Returns the segment sizes in the directory of a rank's log.
fn segments(dir: &std::path::Path) -> Vec<u64> {
    let files = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let segments = files.filter(|file| file.file_name().to_string_lossy().starts_with("segment"));
    segments.map(|file| file.metadata().unwrap().len()).collect()
}

#[test]
fn a_thread_that_waits_for_room_does_not_keep_others_from_making_it() {
    expect_logged("threads", 4, "1MiB", 4 * 40 + 2 * 40);
}

#[test]
fn a_thread_that_starts_several_requests_does_not_keep_others_from_making_room() {
    expect_logged("startall", 4, "1MiB", 4 * 40);
}

#[test]
fn a_thread_that_exchanges_in_place_does_not_keep_others_from_making_room() {
    if wrapped().contains("MPI_Isendrecv_replace") {
        expect_logged("replace", 4, "1MiB", 4 * 40);
    }
}

#[test]
fn a_partitioned_send_does_not_keep_other_threads_from_making_room() {
    if wrapped().contains("MPI_Psend_init") {
        expect_logged("partitioned", 4, "1MiB", 4 * 40);
    }
}

#[test]
fn communicators_made_by_concurrent_threads_have_the_same_number_on_all_ranks() {
    expect_logged("numbers", 4, "1MiB", 2 * 40);
}

#[test]
fn a_rank_that_computes_or_polls_is_waited_for() {
    for case in ["sleeps", "polls"] {
        let (accounts, stderr) = run(case, 4, "1MiB");
        assert_eq!(gave_up(&accounts), [], "{case}: {stderr}");
        assert!(accounts[0]["waited_s"].as_f64().unwrap() > 10.0, "{case}: {}", accounts[0]);
        assert_eq!(stderr.matches("waits for space in its log").count(), 1, "{case}: {stderr}");
    }
}

#[test]
fn in_a_deadlock_one_rank_gives_up_logging() {
    for (case, seconds) in [("backwards", None), ("backwards-collective", Some("4"))] {
        let settings = [("COUNTERFOIL_BUDGET", "1MiB"), ("COUNTERFOIL_DEADLOCK_AFTER", seconds.unwrap_or_default())];
        let (accounts, stderr) = run_with(case, 4, if seconds.is_some() { &settings } else { &settings[..1] });
        let gave_up = gave_up(&accounts);
        let why = format!("no rank will free space: for {} s", seconds.unwrap_or("10"));
        assert!(matches!(gave_up[..], [(0, reason)] if reason.contains(&why)), "{case}: {stderr}");
        assert_eq!(stderr.matches(GIVES_UP).count(), 1, "{case}: {stderr}");
    }
}

#[test]
fn a_rank_does_not_wait_for_itself() {
    let (accounts, stderr) = run("alone", 4, "1MiB");
    assert_eq!(gave_up(&accounts).len(), 4, "{stderr}");
    for account in accounts {
        assert!(account["gave_up"].as_str().unwrap().contains("only the program itself could free space"), "{stderr}");
        assert!(account["waited_s"].as_f64().unwrap() < 1.0, "{account}");
    }
}

#[test]
fn an_operation_larger_than_the_log_is_reported() {
    let (accounts, stderr) = run("huge", 4, "1MiB");
    assert!(matches!(gave_up(&accounts)[..], [(0, why)] if why.contains("can never fit")), "{stderr}");
}

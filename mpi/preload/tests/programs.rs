//! C programs that make every wrapped call, with and without the library: the same values, and consistent accounts.
//!
//! `cargo xtask mpi -- test` selects the MPI. `timeout` kills hanging processes.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "../../tests/support/as_fortran.rs"]
mod as_fortran;
#[path = "../../tests/support/random.rs"]
mod batch;
#[path = "../../tests/support/build.rs"]
mod build;
#[path = "../../tests/support/compilers.rs"]
mod compilers;
mod contributions;
mod failures;
mod fortran;
mod full_log;
mod launch;
mod logged;
mod logged_twice;
#[path = "../../tests/support/output.rs"]
mod output;
mod random;
mod record_keeping;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use counterfoil_mpi_calls::{Call, Kind};
use counterfoil_test_support::note_untested;
use serde_json::Value;

use launch::{PROGRAMS, Run, compile, library, wrapped};

/// Failing calls in `errors.c`; after each of them each rank sends a message.
const ERRORS: u64 = 22;

/// Programs with determinants.
const NONDETERMINISTIC: [&str; 5] = ["point_to_point", "communicators", "sharing", "streams", "acknowledged"];

/// Calls not made by the programs, because they end the job.
const NOT_REACHED: [&str; 1] = ["MPI_Abort"];

/// Reads the accounts of all ranks in a job, none of which gave up logging; `stderr` is shown on failure.
fn accounts(folder: &Path, ranks: u32, stderr: &str) -> Vec<Value> {
    let accounts = all_accounts(folder, ranks, stderr);
    for account in &accounts {
        assert_eq!(account["gave_up"], Value::Null);
    }
    accounts
}

/// Reads the accounts of all ranks in a job; `stderr` is shown on failure.
fn all_accounts(folder: &Path, ranks: u32, stderr: &str) -> Vec<Value> {
    read_accounts(folder, ranks).unwrap_or_else(|error| panic!("{error}; {stderr}"))
}

/// Reads all ranks' accounts.
///
/// # Errors
/// A rank has none, or an unreadable one.
fn read_accounts(folder: &Path, ranks: u32) -> Result<Vec<Value>, String> {
    let read = |rank| {
        let path = folder.join(format!("rank-{rank}.json"));
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_slice::<Value>(&text).map_err(|error| format!("{}: {error}", path.display()))
    };
    (0..ranks).map(read).collect()
}

/// Creates a folder in shared memory accessible only to this user, as the process-crash-safe tier demands.
fn private_shared_memory() -> tempfile::TempDir {
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir_in("/dev/shm").unwrap()
}

/// Checks that both ends of every channel have counted the same, except for `unlogged` messages on some channels.
fn channels_agree(accounts: &[Value], unlogged: u64) {
    if let Some(difference) = channel_that_differs(accounts, unlogged) {
        panic!("{difference}");
    }
}

/// Returns a channel whose ends have counted differently, except for `unlogged` messages on some channels.
fn channel_that_differs(accounts: &[Value], unlogged: u64) -> Option<String> {
    let channels = (0..accounts.len()).flat_map(|from| (0..accounts.len()).map(move |to| (from, to)));
    channels.into_iter().find_map(|(from, to)| {
        let (sent, received) = (&accounts[from]["sent_to"][to], &accounts[to]["received_from"][from]);
        let difference = received["messages"].as_u64()?.checked_sub(sent["messages"].as_u64()?);
        let agrees = difference == Some(0) || difference == Some(unlogged);
        (!agrees).then(|| format!("{from} to {to}: {sent} logged, {received} received"))
    })
}

#[test]
fn programs_behave_the_same_with_and_without_the_library() {
    let settings: [&[(&str, &str)]; 3] = [
        &[],
        &[("COUNTERFOIL_TIER", "process-crash-safe"), ("COUNTERFOIL_BUDGET", "16MiB")],
        &[("COUNTERFOIL_KEEP", "all"), ("COUNTERFOIL_BUDGET", "256MiB")],
    ];
    for (program, ranks) in PROGRAMS {
        Run::default().run_successfully(program, ranks);
        for settings in settings {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let mut run = Run::with_the_library(folder.path(), settings);
            let shm = private_shared_memory();
            run.variables.push(("COUNTERFOIL_SHM_DIR", shm.path().to_str().unwrap().to_owned()));
            let stderr = run.run_successfully(program, ranks).stderr;
            let stderr = format!("{program} {settings:?}: {}", String::from_utf8_lossy(&stderr));
            let accounts = accounts(folder.path(), ranks, &stderr);
            // The first program sends one message on each channel while it has switched logging off.
            channels_agree(&accounts, u64::from(program == "point_to_point"));
            let is_all = settings.contains(&("COUNTERFOIL_KEEP", "all"));
            let determinants: u64 = accounts.iter().map(|account| account["determinants"].as_u64().unwrap()).sum();
            assert_eq!(determinants > 0, is_all && NONDETERMINISTIC.contains(&program), "{program}");
        }
    }
}

#[test]
fn error_handlers_may_jump_and_throw_with_several_threads_too() {
    let thrown = Path::new(env!("CARGO_TARGET_TMPDIR")).join("thrown");
    let has_cpp = launch::has_cpp();
    if has_cpp {
        let source = launch::sources().join("thrown.cpp");
        compile(&source, &thrown, &[]);
    } else {
        note_untested("error handlers that throw: there is no g++");
    }
    for arguments in [&[][..], &["multiple"]] {
        for (name, program) in [("errors", "errors"), ("thrown", thrown.to_str().unwrap())] {
            if name == "thrown" && !has_cpp {
                continue;
            }
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let mut run = Run::with_the_library(folder.path(), &[]);
            run.arguments = arguments.to_vec();
            let output = run.once(program, 2);
            let stderr = String::from_utf8_lossy(&output.stderr);
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && said == format!("{name}: ok on 2 ranks\n"),
                "{arguments:?}: {said}{stderr}"
            );
            let accounts = accounts(folder.path(), 2, &stderr);
            channels_agree(&accounts, 0);
            if name == "errors" {
                // A message after each error, also one whose handler has jumped out of the call.
                let logged = accounts[0]["messages_logged"].as_u64().unwrap();
                assert!(logged >= ERRORS, "{arguments:?}: {logged} messages logged");
            }
        }
    }
}

#[test]
fn ranks_of_two_thread_levels_agree_on_communicators() {
    for ways in [&[][..], &[("COUNTERFOIL_KEEP", "all")]] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut run = Run::with_the_library(folder.path(), ways);
        run.arguments = vec!["mixed"];
        let output = run.run_successfully("communicators", 4);
        channels_agree(&accounts(folder.path(), 4, &String::from_utf8_lossy(&output.stderr)), 0);
    }
}

/// A session has its own level, unknown to ranks without a session.
#[test]
fn a_session_may_let_more_threads_in_than_mpi_init() {
    if !wrapped().contains("MPI_Session_init") {
        note_untested("threads of a session: this MPI has none; that of `cargo xtask mpi --mpi wheel` has");
        return;
    }
    for how in ["after", "before", "alone"] {
        for settings in [&[][..], &[("COUNTERFOIL_KEEP", "all")]] {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let mut run = Run::with_the_library(folder.path(), settings);
            run.arguments = vec![how];
            let output = run.run_successfully("session_threads", 2);
            channels_agree(&accounts(folder.path(), 2, &String::from_utf8_lossy(&output.stderr)), 0);
        }
    }
}

#[test]
fn an_error_before_there_is_a_communicator_is_for_the_handler_that_the_call_is_given() {
    if !wrapped().contains("MPI_Session_init") {
        note_untested("communicators of groups alone: this MPI has none; that of `cargo xtask mpi --mpi wheel` has");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).run_successfully("group_errors", 2);
    let accounts = accounts(folder.path(), 2, &String::from_utf8_lossy(&output.stderr));
    channels_agree(&accounts, 0);
    assert_eq!(accounts[0]["messages_logged"], 4);
}

/// Open MPI 5.0.11 makes the communicator; other versions may find the error.
#[test]
fn members_from_outside_are_not_waited_for() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).run_successfully("strangers", 4);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let accounts = accounts(folder.path(), 4, &stderr);
    channels_agree(&accounts, 0);
    let warnings: Vec<&str> = stderr.lines().filter(|line| line.contains("counterfoil")).collect();
    assert!(warnings.len() <= 1 && warnings.iter().all(|line| line.contains("group with rank 2")), "{stderr}");
}

/// In each of a hundred turns four `MPI_Comm_idup` calls are pending, between logged sends.
#[test]
fn no_progress_is_made_while_communicators_are() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).run_successfully("pending_copies", 4);
    channels_agree(&accounts(folder.path(), 4, &String::from_utf8_lossy(&output.stderr)), 0);
}

#[test]
fn each_call_that_is_not_logged_has_one_warning() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).run_successfully("others", 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    for call in
        ["MPI_Win_create", "MPI_Win_allocate", "MPI_Win_allocate_shared", "MPI_Win_create_dynamic", "MPI_File_open"]
    {
        assert_eq!(stderr.matches(&format!("{call} was called")).count(), 1, "{call}: {stderr}");
    }
}

#[test]
fn a_job_of_sessions_alone_is_told_what_it_is() {
    if !wrapped().contains("MPI_Session_init") {
        note_untested("a job of sessions: this MPI has none; that of `cargo xtask mpi --mpi wheel` has");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).run_successfully("sessions", 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("MPI_Session_init was called").count(), 1, "{stderr}");
    for rank in 0..2 {
        let why = fs::read_to_string(folder.path().join(format!("rank-{rank}.refused"))).unwrap();
        assert!(why.contains("sessions without MPI_Init"), "{why}");
    }
    // Sessions before MPI_Init: the rest is logged.
    let mut run = Run::with_the_library(folder.path(), &[]);
    run.arguments = vec!["both"];
    let stderr = run.run_successfully("sessions", 2).stderr;
    channels_agree(&accounts(folder.path(), 2, &String::from_utf8_lossy(&stderr)), 0);
    assert!(!folder.path().join("rank-0.refused").exists());
}

#[test]
fn no_message_is_acknowledged_before_a_pending_receive_of_its_stream() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).run_successfully("acknowledged", 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let number = |name: &str| {
        let line = stderr.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} {stderr}"));
        line.trim().parse::<u32>().unwrap()
    };
    for way in ["named", "wildcard", "matched"] {
        // The first of 641 receives is pending, and no later message may be released; batches have 256 messages.
        assert!(number(&format!("{way}, before:")) >= 641, "{stderr}");
        assert!(number(&format!("{way}, after:")) < 320, "{stderr}");
    }
    assert!(number("huge, before:") >= 441, "{stderr}");
    assert!(number("waiting, after:") < 2000, "{stderr}");
}

/// With one barrier, Open MPI 4.1 never hangs without the library; with none or three it always does, with two every
/// other time.
#[test]
fn the_library_makes_no_nonblocking_collective_on_the_world() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = Run { arguments: vec!["1"], ..Run::with_the_library(folder.path(), &[]) };
    let output = run.run_successfully("graphs", 5);
    assert_eq!(accounts(folder.path(), 5, &String::from_utf8_lossy(&output.stderr)).len(), 5);
}

#[test]
fn processes_outside_the_world_cause_one_warning_for_each_caller() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).run_successfully("elsewhere", 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // Both ranks join; for the collective calls, one rank warns.
    for (call, count) in [("spawn", 1), ("spawn_multiple", 1), ("accept", 1), ("connect", 1), ("join", 2)] {
        assert_eq!(stderr.matches(&format!("MPI_Comm_{call} was called: ")).count(), count, "{call}: {stderr}");
    }
    assert_eq!(stderr.matches("counterfoil").count(), 6, "{stderr}");
    // Messages between the ranks themselves are logged, and the spawned processes have overwritten no account.
    let accounts = accounts(folder.path(), 2, &stderr);
    channels_agree(&accounts, 0);
    assert!(accounts.iter().all(|account| account["ranks"] == 2 && account["messages_logged"].as_u64().unwrap() > 0));
}

#[test]
fn an_invalid_setting_is_reported_and_the_program_runs_unlogged() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output =
        Run::with_the_library(folder.path(), &[("COUNTERFOIL_KEEP", "most")]).run_successfully("collectives", 2);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("COUNTERFOIL_KEEP is `most`").count(), 1, "{stderr}");
    assert!(!folder.path().join("rank-0.json").exists());
}

/// Generates a second, independent library in C to record the wrapped calls made.
fn recorder_source(calls: &[Call]) -> String {
    let mut text = String::from("#include <mpi.h>\n#include <stdio.h>\n#include <stdlib.h>\n");
    if calls.iter().any(Call::is_extension) {
        text.push_str("#include <mpi-ext.h>\n");
    }
    text.push_str("static const char *names[] = {\n");
    for call in calls {
        writeln!(text, "\"{}\",", call.symbol()).unwrap();
    }
    writeln!(text, "}};\nstatic char reached[{}];", calls.len()).unwrap();
    text.push_str(
        "static void write_calls(void) {\n    int rank;\n    char path[4096];\n    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);\n    \
         snprintf(path, sizeof path, \"%s/reached-%d\", getenv(\"COUNTERFOIL_SUMMARY_DIR\"), rank);\n    \
         FILE *file = fopen(path, \"w\");\n    for (size_t i = 0; i < sizeof reached; i++)\n        \
         if (reached[i]) fprintf(file, \"%s\\n\", names[i]);\n    fclose(file);\n}\n",
    );
    for (index, call) in calls.iter().enumerate() {
        let arguments: Vec<&str> = call.arguments.iter().map(|argument| argument.name.as_str()).collect();
        let variadic = if call.argument(Kind::Comm).is_none() && call.name == "Pcontrol" { ", ..." } else { "" };
        let prototype = call.prototype().replace("int level)", &format!("const int level{variadic})"));
        let before = if call.name == "Finalize" { "write_calls(); " } else { "" };
        writeln!(
            text,
            "{prototype} {{ reached[{index}] = 1; {before}return P{}({}); }}",
            call.symbol(),
            arguments.join(", ")
        )
        .unwrap();
    }
    text
}

#[test]
fn the_programs_make_every_wrapped_call() {
    let known = wrapped();
    let calls: Vec<Call> = counterfoil_mpi_calls::table()
        .unwrap()
        .into_iter()
        .filter(|call| known.contains(call.symbol().as_str()))
        .collect();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, recorder) = (folder.path().join("recorder.c"), folder.path().join("librecorder.so"));
    fs::write(&source, recorder_source(&calls)).unwrap();
    compile(&source, &recorder, &["-shared", "-fPIC", "-Wno-deprecated-declarations"]);
    let mut reached = BTreeSet::new();
    for (program, ranks) in PROGRAMS {
        let output = ("COUNTERFOIL_SUMMARY_DIR", folder.path().to_str().unwrap().to_owned());
        Run { libraries: vec![recorder.clone()], variables: vec![output], ..Run::default() }
            .run_successfully(program, ranks);
        for rank in 0..ranks {
            let text = fs::read_to_string(folder.path().join(format!("reached-{rank}"))).unwrap();
            reached.extend(text.lines().map(str::to_owned));
        }
    }
    let missing: Vec<&&str> =
        known.iter().filter(|name| !reached.contains(**name) && !NOT_REACHED.contains(name)).collect();
    assert!(missing.is_empty(), "the programs don't call {missing:?}");
    // The library exports exactly the table's symbols.
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let exported: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.split(" T ").nth(1)).filter(|name| name.starts_with("MPI")).collect();
    assert_eq!(exported, known);
}

#[test]
fn another_tool_before_or_after_the_library_sees_the_calls() {
    let calls: Vec<Call> = counterfoil_mpi_calls::table()
        .unwrap()
        .into_iter()
        .filter(|call| wrapped().contains(call.symbol().as_str()))
        .collect();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, recorder) = (folder.path().join("recorder.c"), folder.path().join("librecorder.so"));
    fs::write(&source, recorder_source(&calls)).unwrap();
    compile(&source, &recorder, &["-shared", "-fPIC", "-Wno-deprecated-declarations"]);
    // If the recorder is loaded first, it passes calls to the MPI directly, and the library sees none. If it is loaded
    // second, it sees two requests instead of an exchange.
    for (order, exchange) in [([library(), recorder.clone()], "MPI_Irecv"), ([recorder, library()], "MPI_Sendrecv")] {
        let mut run = Run::with_the_library(folder.path(), &[]);
        run.libraries = order.to_vec();
        run.run_successfully("communicators", 2);
        let reached = fs::read_to_string(folder.path().join("reached-1")).unwrap();
        for call in ["MPI_Init", "MPI_Finalize", "MPI_Comm_split", exchange] {
            assert!(reached.lines().any(|line| line == call), "{call}: {reached}");
        }
    }
}

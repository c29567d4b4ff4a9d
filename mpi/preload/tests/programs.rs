//! C programs that call everything that is wrapped, with and without the library: the same values, and an account that adds up.
//!
//! `cargo xtask mpi -- test` says which MPI. Processes are ended by `timeout`, which kills.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

mod failures;
mod itself;
mod launch;
mod room;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use counterfoil_mpi_calls::{Call, Kind};
use serde_json::Value;

use launch::{PROGRAMS, Run, compile, library, wrapped};

/// Programs that leave something open to MPI.
const OPEN: [&str; 5] = ["point_to_point", "communicators", "sharing", "streams", "acknowledged"];

/// Calls that the programs don't make: it ends everything.
const NOT_REACHED: [&str; 1] = ["MPI_Abort"];

/// The accounts of all ranks of a job that said this, and in which nobody gave up logging.
fn accounts(folder: &Path, ranks: u32, said: &str) -> Vec<Value> {
    let accounts = all_accounts(folder, ranks, said);
    for account in &accounts {
        assert_eq!(account["gave_up"], Value::Null);
    }
    accounts
}

/// The accounts of all ranks of a job that said this.
fn all_accounts(folder: &Path, ranks: u32, said: &str) -> Vec<Value> {
    let read = |rank| {
        let path = folder.join(format!("rank-{rank}.json"));
        let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; {said}", path.display()));
        serde_json::from_slice::<Value>(&text).unwrap()
    };
    (0..ranks).map(read).collect()
}

/// The two ends of every channel have counted the same, but for so many messages that were not to be logged.
fn channels_agree(accounts: &[Value], but: u64) {
    for (from, sender) in accounts.iter().enumerate() {
        for (to, receiver) in accounts.iter().enumerate() {
            let (sent, received) = (&sender["sent_to"][to], &receiver["received_from"][from]);
            let difference = received["messages"].as_u64().unwrap() - sent["messages"].as_u64().unwrap();
            assert!(difference == 0 || difference == but, "{from} to {to}: {sent} logged, {received} received");
        }
    }
}

#[test]
fn programs_do_the_same_with_and_without_the_library() {
    let settings: [&[(&str, &str)]; 3] = [
        &[],
        &[("COUNTERFOIL_TIER", "process-crash-safe"), ("COUNTERFOIL_BUDGET", "16MiB")],
        &[("COUNTERFOIL_KEEP", "all"), ("COUNTERFOIL_BUDGET", "256MiB")],
    ];
    for (program, ranks) in PROGRAMS {
        Run::default().ends_well(program, ranks);
        for settings in settings {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let mut run = Run::with_the_library(folder.path(), settings);
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            let shm = tempfile::Builder::new().permissions(private).tempdir_in("/dev/shm").unwrap();
            run.variables.push(("COUNTERFOIL_SHM_DIR", shm.path().to_str().unwrap().to_owned()));
            let said = run.ends_well(program, ranks).stderr;
            let said = format!("{program} {settings:?}: {}", String::from_utf8_lossy(&said));
            let accounts = accounts(folder.path(), ranks, &said);
            // One message of each channel of the first program is sent while the program wants nothing to be logged.
            channels_agree(&accounts, u64::from(program == "point_to_point"));
            let is_all = settings.contains(&("COUNTERFOIL_KEEP", "all"));
            let determinants: u64 = accounts.iter().map(|account| account["determinants"].as_u64().unwrap()).sum();
            assert_eq!(determinants > 0, is_all && OPEN.contains(&program), "{program}");
        }
    }
}

#[test]
fn what_is_not_logged_is_said_once_each() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).ends_well("others", 2);
    let said = String::from_utf8_lossy(&output.stderr);
    for call in
        ["MPI_Win_create", "MPI_Win_allocate", "MPI_Win_allocate_shared", "MPI_Win_create_dynamic", "MPI_File_open"]
    {
        assert_eq!(said.matches(&format!("{call} was called")).count(), 1, "{call}: {said}");
    }
}

#[test]
fn nothing_is_acknowledged_behind_a_receive_that_is_under_way() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).ends_well("acknowledged", 2);
    let said = String::from_utf8_lossy(&output.stderr);
    let number = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} {said}"));
        line.trim().parse::<u32>().unwrap()
    };
    for way in ["named", "wildcard", "matched"] {
        // The first of 641 messages is open, and nothing behind it may be let go; batches have 256 messages.
        assert!(number(&format!("{way}, before:")) >= 641, "{said}");
        assert!(number(&format!("{way}, after:")) < 320, "{said}");
    }
    assert!(number("huge, before:") >= 441, "{said}");
    assert!(number("waiting, after:") < 2000, "{said}");
}

#[test]
fn processes_from_elsewhere_are_met_with_one_warning_for_each_caller() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[]).ends_well("elsewhere", 2);
    let said = String::from_utf8_lossy(&output.stderr);
    // Both ranks join; of calls that all ranks make, one of them speaks.
    for (call, count) in [("spawn", 1), ("spawn_multiple", 1), ("accept", 1), ("connect", 1), ("join", 2)] {
        assert_eq!(said.matches(&format!("MPI_Comm_{call} was called: ")).count(), count, "{call}: {said}");
    }
    assert_eq!(said.matches("counterfoil").count(), 6, "{said}");
    // What the ranks sent to each other beside it is logged, and the spawned ones have written over nothing.
    let accounts = accounts(folder.path(), 2, &said);
    channels_agree(&accounts, 0);
    assert!(accounts.iter().all(|account| account["ranks"] == 2 && account["messages_logged"].as_u64().unwrap() > 0));
}

#[test]
fn a_setting_that_cannot_be_understood_is_named_and_the_program_runs_unlogged() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Run::with_the_library(folder.path(), &[("COUNTERFOIL_KEEP", "most")]).ends_well("collectives", 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("COUNTERFOIL_KEEP is `most`").count(), 1, "{said}");
    assert!(!folder.path().join("rank-0.json").exists());
}

/// A second, independent library, in C: of each wrapped call it notes that it was made.
fn noting(calls: &[Call]) -> String {
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
        "static void tell(void) {\n    int rank;\n    char path[4096];\n    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);\n    \
         snprintf(path, sizeof path, \"%s/reached-%d\", getenv(\"COUNTERFOIL_SUMMARY_DIR\"), rank);\n    \
         FILE *file = fopen(path, \"w\");\n    for (size_t i = 0; i < sizeof reached; i++)\n        \
         if (reached[i]) fprintf(file, \"%s\\n\", names[i]);\n    fclose(file);\n}\n",
    );
    for (index, call) in calls.iter().enumerate() {
        let arguments: Vec<&str> = call.arguments.iter().map(|argument| argument.name.as_str()).collect();
        let variadic = if call.argument(Kind::Comm).is_none() && call.name == "Pcontrol" { ", ..." } else { "" };
        let prototype = call.prototype().replace("int level)", &format!("const int level{variadic})"));
        let before = if call.name == "Finalize" { "tell(); " } else { "" };
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
fn the_programs_make_every_call_that_is_wrapped() {
    let known = wrapped();
    let calls: Vec<Call> = counterfoil_mpi_calls::table()
        .unwrap()
        .into_iter()
        .filter(|call| known.contains(call.symbol().as_str()))
        .collect();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, noter) = (folder.path().join("noter.c"), folder.path().join("libnoter.so"));
    fs::write(&source, noting(&calls)).unwrap();
    compile(&source, &noter, &["-shared", "-fPIC", "-Wno-deprecated-declarations"]);
    let mut reached = BTreeSet::new();
    for (program, ranks) in PROGRAMS {
        let told = ("COUNTERFOIL_SUMMARY_DIR", folder.path().to_str().unwrap().to_owned());
        Run { libraries: vec![noter.clone()], variables: vec![told], ..Run::default() }.ends_well(program, ranks);
        for rank in 0..ranks {
            let text = fs::read_to_string(folder.path().join(format!("reached-{rank}"))).unwrap();
            reached.extend(text.lines().map(str::to_owned));
        }
    }
    let missing: Vec<&&str> =
        known.iter().filter(|name| !reached.contains(**name) && !NOT_REACHED.contains(name)).collect();
    assert!(missing.is_empty(), "the programs don't call {missing:?}");
    // The exported symbols are those of the table.
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let exported: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.split(" T ").nth(1)).filter(|name| name.starts_with("MPI")).collect();
    assert_eq!(exported, known);
}

#[test]
fn another_tool_behind_the_library_sees_the_calls() {
    let calls: Vec<Call> = counterfoil_mpi_calls::table()
        .unwrap()
        .into_iter()
        .filter(|call| wrapped().contains(call.symbol().as_str()))
        .collect();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, noter) = (folder.path().join("noter.c"), folder.path().join("libnoter.so"));
    fs::write(&source, noting(&calls)).unwrap();
    compile(&source, &noter, &["-shared", "-fPIC", "-Wno-deprecated-declarations"]);
    // In front of the library the noter itself goes straight to the MPI, and leaves the library nothing; behind it, it sees two
    // requests in place of an exchange.
    for (order, exchange) in [([library(), noter.clone()], "MPI_Irecv"), ([noter, library()], "MPI_Sendrecv")] {
        let mut run = Run::with_the_library(folder.path(), &[]);
        run.libraries = order.to_vec();
        run.ends_well("communicators", 2);
        let reached = fs::read_to_string(folder.path().join("reached-1")).unwrap();
        for call in ["MPI_Init", "MPI_Finalize", "MPI_Comm_split", exchange] {
            assert!(reached.lines().any(|line| line == call), "{call}: {reached}");
        }
    }
}

//! Agreement of the log with the messages sent.
//!
//! An independent library (`tests/c/witness.c`) counts sent messages and hashes received ones, and the log is compared
//! with it, channel by channel and message by message.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "../../../tests/support/as_fortran.rs"]
mod as_fortran;
#[path = "../../../tests/support/build.rs"]
mod build;
mod compare;
#[path = "../contributions/mod.rs"]
mod contributions;
#[path = "../launch/mod.rs"]
mod launch;
#[path = "../logged/mod.rs"]
mod logged;
mod observed;
#[path = "../../../tests/support/output.rs"]
mod output;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compare::compare;
use counterfoil_test_support::note_untested;
use launch::{IN_FORTRAN, PROGRAMS, Run, compile, library, sources, wrapped};
use logged::{Logged, Payload, hash};
use observed::Observed;

/// Compiles the witness and returns its path.
fn witness() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("libwitness.so");
        compile(&sources().join("witness.c"), &path, &["-shared", "-fPIC", "-ldl"]);
        (folder, path)
    });
    &built.1
}

/// A job's messages in the log, and as the witness observed them, by channel.
struct Job {
    logged: BTreeMap<(u32, u32), Logged>,
    observed: BTreeMap<(u32, u32), Observed>,
}

/// Returns a run that keeps all records, with the witness loaded before the library.
fn run(folder: &Path, budget: &str) -> Run {
    let mut run = Run::with_the_library(
        folder,
        &[
            ("COUNTERFOIL_KEEP", "all"),
            ("COUNTERFOIL_BUDGET", budget),
            ("COUNTERFOIL_LOG_DIR", folder.to_str().unwrap()),
        ],
    );
    run.variables.push(("WITNESS_DIR", folder.to_str().unwrap().to_owned()));
    run.libraries = vec![witness().to_owned(), library()];
    run
}

fn job(program: &str, ranks: u32) -> Job {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    run(folder.path(), "64MiB").run_successfully(program, ranks);
    Job { logged: logged::read(folder.path(), ranks), observed: observed::read(folder.path(), ranks) }
}

#[test]
fn the_log_has_the_messages_of_the_programs() {
    // Three programs are left out: messages on communicators with processes outside the world aren't logged, and the
    // witness can't tell them from others; nor does it know the order in which threads post receives on one stream; nor
    // does it bear wrong arguments.
    let left_out = ["elsewhere", "sharing", "errors"];
    for (program, ranks) in PROGRAMS.into_iter().filter(|(program, _)| !left_out.contains(program)) {
        let job = job(program, ranks);
        let compared =
            compare(&job.logged, &job.observed).unwrap_or_else(|differences| panic!("{program}: {differences:#?}"));
        // On each rank: in the first program, a freed receive and a truncated one; in the second, a truncated one.
        let unseen = [("point_to_point", 8), ("streams", 3)].into_iter().find(|(name, _)| *name == program);
        assert_eq!(compared.unseen, unseen.map_or(0, |(_, count)| count), "{program}");
        assert!(compared.messages > 0 || program == "collectives", "{program}: nothing was compared");
    }
}

#[test]
fn the_log_has_the_messages_of_the_programs_in_fortran() {
    // Programs with the same messages on each channel in each run. The witness, which is in C, observes them in C.
    for (program, ranks) in [("point_to_point", 4), ("communicators", 4), ("streams", 3), ("freed", 3)] {
        let observed = job(program, ranks).observed;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut run = run(folder.path(), "64MiB");
        run.libraries = vec![library()];
        run.run_successfully(&format!("{program}{IN_FORTRAN}"), ranks);
        let compared = compare(&logged::read(folder.path(), ranks), &observed)
            .unwrap_or_else(|differences| panic!("{program}: {differences:#?}"));
        assert!(compared.messages > 0, "{program}: nothing was compared");
    }
}

/// Runs a case in `tests/c/record_keeping.c` with everything kept; returns each rank's contributions.
fn contributions(case: &'static str, ranks: u32) -> Vec<BTreeMap<(u32, u64), Payload>> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut run = run(folder.path(), "64MiB");
    (run.libraries, run.arguments) = (vec![library()], vec![case]);
    run.run_successfully("record_keeping", ranks);
    (0..ranks).map(|rank| contributions::read(folder.path(), rank)).collect()
}

#[test]
fn contributions_of_persistent_operations_are_logged_as_they_were_at_the_start() {
    if !wrapped().contains("MPI_Allreduce_init") {
        note_untested("persistent collectives: this MPI has none; that of `cargo xtask mpi --mpi wheel` has");
        return;
    }
    let contribution = (4, hash::hash(&1_i32.to_ne_bytes()));
    for of_rank in contributions("persistent", 2) {
        assert_eq!(of_rank.len(), 23 * 50);
        assert!(of_rank.values().all(|logged| *logged == contribution), "results were logged");
    }
}

#[test]
fn a_refused_collective_call_takes_no_number() {
    let of_ranks = contributions("refused", 3);
    assert!(of_ranks[0].len() == 1 && of_ranks.iter().all(|of_rank| *of_rank == of_ranks[0]), "{of_ranks:?}");
}

/// Debian's HPC Challenge: an unmodified program with tens of thousands of messages in all sizes.
const HPCC: &str = "/usr/bin/hpcc";

#[test]
fn the_log_has_the_messages_of_hpcc() {
    if !Path::new(HPCC).exists() {
        note_untested(&format!("the log of HPCC: {HPCC} doesn't exist; apt-get install hpcc"));
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(folder.path().join("hpccinf.txt"), include_str!("hpccinf.txt")).unwrap();
    let mut run = run(folder.path(), "256MiB");
    run.variables.push(("COUNTERFOIL_TIER", "node-local".to_owned()));
    run.folder = Some(folder.path().to_owned());
    let output = run.once(HPCC, 4);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    let report = std::fs::read_to_string(folder.path().join("hpccoutf.txt")).unwrap();
    assert!(report.contains("Success=1") && !report.contains("FAILED"), "{report}");
    let compared = compare(&logged::read(folder.path(), 4), &observed::read(folder.path(), 4));
    let compared = compared.unwrap_or_else(|differences| panic!("{differences:#?}"));
    eprintln!("hpcc: {compared:?}");
    assert!(compared.messages > 10_000 && compared.unseen == 0, "{compared:?}");
}

#[test]
fn a_missing_altered_or_misplaced_record_is_detected() {
    let Job { logged, observed } = job("streams", 3);
    assert!(compare(&logged, &observed).is_ok());
    let broken = |change: &dyn Fn(&mut BTreeMap<u64, Payload>)| {
        let mut logged = logged.clone();
        let stream = logged.get_mut(&(0, 1)).unwrap().values_mut().max_by_key(|stream| stream.len()).unwrap();
        change(stream);
        compare(&logged, &observed)
    };
    assert!(broken(&|_| {}).is_ok());
    for number in [1, 2, 3] {
        assert!(broken(&|stream| assert!(stream.remove(&number).is_some())).is_err());
        assert!(broken(&|stream| stream.get_mut(&number).unwrap().1 ^= 1).is_err());
        assert!(broken(&|stream| stream.get_mut(&number).unwrap().0 += 1).is_err());
    }
    let swapped = broken(&|stream| {
        let (one, other) = (stream[&1], stream[&2]);
        assert_ne!(one, other);
        stream.insert(1, other);
        stream.insert(2, one);
    });
    assert!(swapped.is_err());
    let mut elsewhere = logged;
    let moved = elsewhere.get_mut(&(0, 1)).unwrap().pop_first().unwrap();
    elsewhere.entry((0, 2)).or_default().insert((99, 99), moved.1);
    assert!(compare(&elsewhere, &observed).is_err_and(|differences| differences.len() >= 2));
}

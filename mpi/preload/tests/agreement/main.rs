//! What is logged is what was sent: an independent library (`tests/c/witness.c`) counts what programs send, and hashes what they
//! receive, and the log is compared with it, channel by channel and message by message.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

mod compare;
mod hash;
mod kept;
#[path = "../launch/mod.rs"]
mod launch;
mod seen;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use compare::compare;
use kept::Kept;
use launch::{PROGRAMS, Run, compile, library, sources};
use seen::Seen;

/// The witness, compiled.
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

/// What the log and the witness say of each channel of a job.
struct Job {
    kept: BTreeMap<(u32, u32), Kept>,
    seen: BTreeMap<(u32, u32), Seen>,
}

/// A run with everything kept, and the witness in front.
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
    run(folder.path(), "64MiB").ends_well(program, ranks);
    Job { kept: kept::read(folder.path(), ranks), seen: seen::read(folder.path(), ranks) }
}

#[test]
fn the_log_has_what_was_sent_and_received() {
    // What goes over communicators from elsewhere isn't logged, and the witness can't tell it from the rest; nor in which order
    // threads post receives on one stream.
    for (program, ranks) in PROGRAMS.into_iter().filter(|(program, _)| !["elsewhere", "sharing"].contains(program)) {
        let job = job(program, ranks);
        let compared = compare(&job.kept, &job.seen).unwrap_or_else(|wrong| panic!("{program}: {wrong:#?}"));
        // A receive that is given up, and one that is too short, on each rank; and another one that is too short.
        let unseen = [("point_to_point", 8), ("streams", 3)].into_iter().find(|(name, _)| *name == program);
        assert_eq!(compared.unseen, unseen.map_or(0, |(_, count)| count), "{program}");
        assert!(compared.messages > 0 || program == "collectives", "{program}: nothing was compared");
    }
}

/// The HPC Challenge, as Debian has it: unmodified, some hundred thousand messages of all sizes.
const HPCC: &str = "/usr/bin/hpcc";

#[test]
fn the_log_has_what_hpcc_sent_and_received() {
    if !Path::new(HPCC).exists() {
        eprintln!("{HPCC} isn't there: apt-get install hpcc");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(folder.path().join("hpccinf.txt"), include_str!("hpccinf.txt")).unwrap();
    let mut run = run(folder.path(), "256MiB");
    run.variables.push(("COUNTERFOIL_TIER", "node-local".to_owned()));
    run.folder = Some(folder.path().to_owned());
    let output = run.once(HPCC, 4);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let report = std::fs::read_to_string(folder.path().join("hpccoutf.txt")).unwrap();
    assert!(report.contains("Success=1") && !report.contains("FAILED"), "{report}");
    let compared = compare(&kept::read(folder.path(), 4), &seen::read(folder.path(), 4));
    let compared = compared.unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    eprintln!("hpcc: {compared:?}");
    assert!(compared.messages > 10_000 && compared.unseen == 0, "{compared:?}");
}

#[test]
fn a_record_that_is_missing_or_altered_or_out_of_order_is_noticed() {
    let Job { kept, seen } = job("streams", 3);
    assert!(compare(&kept, &seen).is_ok());
    let broken = |change: &dyn Fn(&mut BTreeMap<u64, kept::Payload>)| {
        let mut kept = kept.clone();
        let stream = kept.get_mut(&(0, 1)).unwrap().values_mut().max_by_key(|stream| stream.len()).unwrap();
        change(stream);
        compare(&kept, &seen)
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
    let mut elsewhere = kept;
    let moved = elsewhere.get_mut(&(0, 1)).unwrap().pop_first().unwrap();
    elsewhere.entry((0, 2)).or_default().insert((99, 99), moved.1);
    assert!(compare(&elsewhere, &seen).is_err_and(|wrong| wrong.len() >= 2));
}

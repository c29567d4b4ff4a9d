//! `examples/recover.rs`: a program without a launcher, whose processes are killed while it runs.
//!
//! `cargo xtask mpi -- test` sets the path of `mpirun`. With an MPI that doesn't outlive failures (Open MPI 4), only the run without
//! failures is tested.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// What all runs print.
const HEAT: &str = "heat 4995000.000000006 (41530dee00000006) after 8000 steps";
const RANKS: usize = 4;
const STEPS: u64 = 8_000;

fn mpirun() -> OsString {
    std::env::var_os("COUNTERFOIL_MPIRUN").unwrap_or_else(|| "mpirun".into())
}

fn outlives_failures() -> bool {
    let output = Command::new(mpirun()).arg("--version").output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap().contains(" 5.")
}

/// Builds the example once and returns its path.
fn example() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        command.args(["build", "--example", "recover", "--message-format", "json"]);
        let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let messages = String::from_utf8(output.stdout).unwrap();
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut built = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
        built.find(|path| path.file_name().is_some_and(|file| file == "recover")).unwrap()
    })
}

/// Runs the example with so many spares and kills `kills` ranks, each some time after all ranks have a process. Returns the number of
/// processes that became ranks.
#[track_caller]
fn run(spares: usize, kills: usize) -> usize {
    let temporary = tempfile::Builder::new().prefix("cfr").tempdir_in("/tmp").unwrap();
    // A hung launcher ignores SIGTERM.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120"]).arg(mpirun());
    if outlives_failures() {
        command.args(["--with-ft", "ulfm", "--mca", "async_mpi_finalize", "1"]);
    }
    command.args(["-n", &(RANKS + spares).to_string()]).arg(example()).args([RANKS.to_string(), STEPS.to_string()]);
    command.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = command.spawn().unwrap();
    let output = BufReader::new(job.stdout.take().unwrap()).lines();
    // Processes of ranks, as (rank, process id).
    let mut living: VecDeque<(usize, String)> = VecDeque::new();
    let mut said = Vec::new();
    let mut joined = 0;
    let mut killed = 0;
    for line in output {
        let line = line.unwrap();
        said.push(line.clone());
        let Some((rank, process)) = line.strip_prefix("rank ").and_then(|rest| rest.split_once(" is process ")) else {
            continue;
        };
        living.push_back((rank.parse().unwrap(), process.to_owned()));
        joined += 1;
        if living.len() == RANKS && killed < kills {
            // Kills fall into different phases: before the first checkpoint, between two, during a replay.
            std::thread::sleep(Duration::from_millis(20 + 130 * killed as u64));
            let (_, process) = living.remove(killed % RANKS).unwrap();
            assert!(Command::new("kill").args(["-KILL", &process]).status().unwrap().success(), "{said:?}");
            killed += 1;
        }
    }
    let mut errors = String::new();
    job.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    job.wait().unwrap();
    assert_eq!(said.last().map(String::as_str), Some(HEAT), "{said:?}: {errors}");
    assert_eq!(killed, kills, "{said:?}");
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("counterfoil-")), "{left:?}");
    joined
}

#[test]
fn a_program_ends_the_same_with_and_without_kills() {
    assert_eq!(run(1, 0), RANKS);
    if outlives_failures() {
        assert_eq!(run(1, 1), RANKS + 1);
        assert_eq!(run(5, 5), RANKS + 5);
    }
}

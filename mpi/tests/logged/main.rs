//! Programs on a `LoggedCommunicator`, under `mpirun`.
//!
//! They check their own values; the tests compare their logs with the messages observed by an independent library
//! (`preload/tests/c/witness.c`), and with the contributions and determinants expected by the programs.
//!
//! `cargo xtask mpi -- test` sets the path to `mpirun`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "../support/build.rs"]
mod build;
#[path = "../../preload/tests/agreement/compare.rs"]
mod compare;
mod full_log;
#[path = "../support/library.rs"]
mod library;
#[path = "../../preload/tests/logged/mod.rs"]
mod logged;
#[path = "../support/mpirun.rs"]
mod mpirun;
#[path = "../../preload/tests/agreement/observed.rs"]
mod observed;
#[path = "../support/output.rs"]
mod output;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use build::built;
use counterfoil_log_io::LOCAL;
use counterfoil_profile::RecordTag;
use library::library;
use mpirun::mpirun;
use output::output;

const RANKS: u32 = 4;

/// Compiles the witness into a folder and returns its path.
fn witness(folder: &Path) -> PathBuf {
    library("preload/tests/c/witness.c", "witness", folder)
}

/// Runs an example and returns its output.
fn run(name: &str, arguments: &[&str]) -> String {
    run_with(name, arguments, None)
}

/// Runs an example, optionally under a witness (library and output folder), and returns its output.
fn run_with(name: &str, arguments: &[&str], witness: Option<(&Path, &Path)>) -> String {
    let output = job(name, RANKS, arguments, witness);
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn job(name: &str, ranks: u32, arguments: &[&str], witness: Option<(&Path, &Path)>) -> Output {
    // A hung launcher ignores SIGTERM.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120"]).arg(mpirun()).args(["-n", &ranks.to_string()]);
    if let Some((library, folder)) = witness {
        // Set for the ranks only, not for the launcher.
        command.arg("-x").arg(format!("LD_PRELOAD={}", library.to_str().unwrap()));
        command.env("WITNESS_DIR", folder).args(["-x", "WITNESS_DIR"]);
    }
    output(command.arg(built(&format!("examples/{name}"))).args(arguments))
}

/// Parses the line printed by each rank (`examples/account`): messages, their bytes, contributions, determinants.
fn accounts(printed: &str, ranks: u32) -> BTreeMap<u32, [u64; 4]> {
    let lines = printed.lines().map(|line| line.strip_prefix("rank ").unwrap().split(' ').collect::<Vec<_>>());
    let accounts: BTreeMap<_, _> = lines
        .map(|words| (words[0].parse().unwrap(), [1, 2, 3, 4].map(|at: usize| words[at].parse().unwrap())))
        .collect();
    assert_eq!(accounts.len(), ranks as usize, "{printed}");
    accounts
}

/// Messages by number, for each communicator and tag.
type Streams = BTreeMap<(u32, i32), BTreeMap<u64, Vec<u8>>>;

/// A rank's log.
struct Log {
    /// Streams to each peer.
    lanes: BTreeMap<u32, Streams>,
    /// Contributions to collective operations, in log order.
    contributions: Vec<Vec<u8>>,
    /// Determinant counts: receives, probes, and completions.
    determinants: [u64; 3],
}

fn log(dir: &Path, rank: u32) -> Log {
    let mut lanes: BTreeMap<u32, Streams> = BTreeMap::new();
    let mut contributions = BTreeMap::new();
    let image = logged::for_each_record(dir, rank, |lane, RecordTag { comm, tag, number }, record| {
        if tag == -2 {
            contributions.insert(record.ssn(), record.payload().to_vec());
        }
        let stream = lanes.entry(lane.peer.0).or_default().entry((comm, tag)).or_default();
        stream.insert(number, record.payload().to_vec());
    });
    for lane in image.lanes.iter().filter(|lane| lane.peer != LOCAL) {
        assert_eq!(lane.acked.next(), lane.next, "unacknowledged records in the lane of {rank} to {}", lane.peer);
    }
    let mut determinants = [0; 3];
    for entry in image.local.iter().filter(|entry| entry.kind == 1) {
        determinants[usize::from(entry.bytes[0])] += 1;
    }
    Log { lanes, contributions: contributions.into_values().collect(), determinants }
}

/// Reads the contributions a rank expects in its log.
fn expected_contributions(dir: &Path, rank: u32) -> Vec<Vec<u8>> {
    let text = std::fs::read(dir.join(format!("contributions-{rank}"))).unwrap();
    let (mut rest, mut contributions) = (&text[..], Vec::new());
    while let Some((len, after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(u64::from_le_bytes(*len) as usize);
        contributions.push(bytes.to_vec());
        rest = after;
    }
    contributions
}

fn numbers(from: u64, indices: std::ops::Range<u64>) -> Vec<u8> {
    indices.flat_map(|index| (from * 1_000_000 + index).to_le_bytes()).collect()
}

/// Truncated messages on each rank: the witness can't see their bytes.
const TRUNCATED: u64 = 9;

#[test]
fn every_call_returns_its_value_and_every_message_is_in_the_log() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (dir, library) = (dir.path(), witness(dir.path()));
    let accounts = accounts(&run_with("every_call", &["all", dir.to_str().unwrap()], Some((&library, dir))), RANKS);
    let compared = compare::compare(&logged::read(dir, RANKS), &observed::read(dir, RANKS));
    let compared = compared.unwrap_or_else(|differences| panic!("{differences:#?}"));
    assert_eq!(compared.messages, accounts.values().map(|account| account[0]).sum::<u64>());
    assert_eq!(compared.bytes, accounts.values().map(|account| account[1]).sum::<u64>());
    assert_eq!(compared.unseen, TRUNCATED * u64::from(RANKS));
    for (rank, account) in accounts {
        let Log { lanes, contributions, determinants } = log(dir, rank);
        let streams = || lanes.values().flatten();
        for ((comm, tag), stream) in streams().filter(|((_, tag), _)| *tag >= 0) {
            let last = stream.len() as u64;
            assert!(
                stream.keys().copied().eq(1..=last),
                "rank {rank}, communicator {comm}, tag {tag}: a number is missing"
            );
        }
        let messages = || streams().filter(|((_, tag), _)| *tag >= 0).flat_map(|(_, stream)| stream.values());
        let bytes = messages().map(Vec::len).sum::<usize>();
        let counts = [messages().count(), bytes, contributions.len()].map(|count| count as u64);
        assert_eq!(account, [counts[0], counts[1], counts[2], determinants.iter().sum()]);
        let expected = expected_contributions(dir, rank);
        let differs = contributions.iter().zip(&expected).position(|(logged, expected)| logged != expected);
        assert_eq!((contributions.len(), differs), (expected.len(), None), "contributions of rank {rank}");
        let expected = std::fs::read_to_string(dir.join(format!("determinants-{rank}"))).unwrap();
        assert_eq!(determinants.map(|count| count.to_string()).join(" "), expected, "determinants of rank {rank}");
        // The messages around the world's ring, by number.
        let next = &lanes[&((rank + 1) % RANKS)];
        let rank = u64::from(rank);
        assert_eq!(next[&(0, 0)][&1], numbers(rank, 0..1000));
        for number in 1..=8 {
            let expected: Vec<u8> = std::iter::repeat_n(numbers(rank, number - 1..number), 3).flatten().collect();
            assert_eq!(next[&(0, 5)][&number], expected);
        }
        assert_eq!(next[&(0, 20)].len(), 20_000);
        for (number, payload) in &next[&(0, 20)] {
            assert_eq!(payload[..8], numbers(rank, number - 1..*number)[..]);
        }
        // Messages with the same tag on three communicators are three streams. On the last, with half of the ranks, the
        // neighbours differ.
        let rings = lanes.values().flat_map(|lane| lane.iter()).filter(|((_, tag), _)| *tag == 5);
        assert_eq!(rings.map(|((comm, _), _)| *comm).collect::<std::collections::BTreeSet<_>>().len(), 3);
    }
}

#[test]
fn a_rank_ends_the_job() {
    // The other ranks wait for ever.
    assert_eq!(job("every_call", RANKS, &["abort"], None).status.code(), Some(7));
}

#[test]
fn a_panic_releases_no_memory_that_mpi_uses() {
    let output = job("every_call", RANKS, &["panics"], None);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // SIGABRT: the panic was not unwound past the scope.
    assert_eq!(output.status.code(), Some(128 + 6), "{stderr}");
    assert!(stderr.contains("rank 0 gives up"), "{stderr}");
}

#[test]
fn a_scope_completes_leaked_requests() {
    let printed = run("every_call", &["leaks"]);
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    assert!(lines.into_iter().eq((0..RANKS).map(|rank| format!("rank {rank} has leaked"))));
}

#[test]
fn acknowledged_records_are_released_in_a_small_log() {
    for (rank, [messages, bytes, _, determinants]) in accounts(&run("every_call", &["acked"]), RANKS) {
        assert!(messages > 20_000 && bytes > 20_000 * 1024 && determinants == 0, "rank {rank}");
    }
}

#[test]
fn the_ring_example_prints_its_answer() {
    let printed = run("ring", &[]);
    assert_eq!(printed, "heat 1000.000000 after 2000 steps; 4000 messages logged by rank 0\n");
}

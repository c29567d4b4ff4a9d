//! Programs on a `LoggedCommunicator`, under `mpirun`: their values, which they check by themselves, and what is in their logs afterwards,
//! beside what an independent library (`preload/tests/c/witness.c`) has seen them send and receive, and what they say that they gave and
//! left open.
//!
//! `cargo xtask mpi -- test` says where `mpirun` is.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test's functions may")]

#[path = "../../preload/tests/agreement/compare.rs"]
mod compare;
#[path = "../../preload/tests/agreement/hash.rs"]
mod hash;
#[path = "../../preload/tests/agreement/kept.rs"]
mod kept;
mod room;
#[path = "../../preload/tests/agreement/seen.rs"]
mod seen;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use counterfoil::store::{BackendChoice, BlockBuffer, Directory, DirectoryAccess, LOCAL, StoreView};
use counterfoil_profile::RecordTag;

const RANKS: u32 = 4;

/// An example, built.
fn example(name: &str) -> PathBuf {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(["build", "--example", name, "--message-format", "json"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut built = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    built.find(|path| path.file_name().is_some_and(|file| file == name)).unwrap()
}

/// The witness, compiled into a folder.
fn witness(folder: &Path) -> PathBuf {
    let (library, sources) =
        (folder.join("libwitness.so"), Path::new(env!("CARGO_MANIFEST_DIR")).join("preload/tests/c"));
    let mut command = Command::new(std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned()));
    command.args(["-O1", "-Wall", "-Wno-stringop-overread", "-shared", "-fPIC", "-o"]).arg(&library);
    let output = command.arg(sources.join("witness.c")).args(["-ldl", "-lpthread"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// What an example's ranks print.
fn run(name: &str, arguments: &[&str]) -> String {
    run_with(name, arguments, None)
}

/// The same, under the eyes of a witness that writes what it has seen into a folder.
fn run_with(name: &str, arguments: &[&str], witness: Option<(&Path, &Path)>) -> String {
    let output = job(name, RANKS, arguments, witness);
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn job(name: &str, ranks: u32, arguments: &[&str], witness: Option<(&Path, &Path)>) -> Output {
    let mpirun = std::env::var_os("COUNTERFOIL_MPIRUN").unwrap_or_else(|| "mpirun".into());
    // A launcher that hangs ignores SIGTERM.
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120"]).arg(mpirun).args(["-n", &ranks.to_string()]);
    if let Some((library, folder)) = witness {
        // For the ranks, not for the launcher.
        command.arg("-x").arg(format!("LD_PRELOAD={}", library.to_str().unwrap()));
        command.env("WITNESS_DIR", folder).args(["-x", "WITNESS_DIR"]);
    }
    command.arg(example(name)).args(arguments).output().unwrap()
}

/// What each rank says of itself (`examples/account`): messages, their bytes, contributions, determinants.
fn accounts(printed: &str, ranks: u32) -> BTreeMap<u32, [u64; 4]> {
    let lines = printed.lines().map(|line| line.strip_prefix("rank ").unwrap().split(' ').collect::<Vec<_>>());
    let accounts: BTreeMap<_, _> = lines
        .map(|words| (words[0].parse().unwrap(), [1, 2, 3, 4].map(|at: usize| words[at].parse().unwrap())))
        .collect();
    assert_eq!(accounts.len(), ranks as usize, "{printed}");
    accounts
}

/// Messages by number, of each communicator and tag.
type Streams = BTreeMap<(u32, i32), BTreeMap<u64, Vec<u8>>>;

/// A rank's log.
struct Log {
    /// To each peer.
    lanes: BTreeMap<u32, Streams>,
    /// What was given to collective operations, in the order of the log.
    given: Vec<Vec<u8>>,
    /// Outcomes of receives, of probes, and of several requests.
    outcomes: [u64; 3],
}

fn log(dir: &Path, rank: u32) -> Log {
    let dir = dir.join(format!("rank-{rank}"));
    let (mut backend, _) = Directory::open(&dir, BackendChoice::Pwrite, DirectoryAccess::ReadOnly).unwrap();
    let mut view = StoreView::new(&mut *backend).unwrap();
    let newest = *view.checkpoints().last().unwrap();
    let image = view.image(newest).unwrap();
    let mut buffer = BlockBuffer::default();
    let mut lanes: BTreeMap<u32, Streams> = BTreeMap::new();
    let mut given = BTreeMap::new();
    for lane in image.lanes.iter().filter(|lane| lane.peer != LOCAL) {
        assert_eq!(lane.acked.next(), lane.next, "all is acknowledged of the lane of {rank} to {}", lane.peer);
        for block in &lane.blocks {
            view.read(block, &mut buffer).unwrap();
            for record in buffer.records() {
                let RecordTag { comm, tag, number } = RecordTag::decode(record.prefix()).unwrap();
                if tag == -2 {
                    given.insert(record.ssn(), record.payload().to_vec());
                }
                let stream = lanes.entry(lane.peer.0).or_default().entry((comm, tag)).or_default();
                stream.insert(number, record.payload().to_vec());
            }
        }
    }
    let mut outcomes = [0; 3];
    for entry in image.local.iter().filter(|entry| entry.kind == 1) {
        outcomes[usize::from(entry.bytes[0])] += 1;
    }
    Log { lanes, given: given.into_values().collect(), outcomes }
}

/// What a rank says that it gave to collective operations.
fn said_to_be_given(dir: &Path, rank: u32) -> Vec<Vec<u8>> {
    let text = std::fs::read(dir.join(format!("given-{rank}"))).unwrap();
    let (mut rest, mut given) = (&text[..], Vec::new());
    while let Some((len, behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(u64::from_le_bytes(*len) as usize);
        given.push(bytes.to_vec());
        rest = behind;
    }
    given
}

fn numbers(from: u64, places: std::ops::Range<u64>) -> Vec<u8> {
    places.flat_map(|place| (from * 1_000_000 + place).to_le_bytes()).collect()
}

/// Messages that are too long for their receive, on each rank: the witness can't see their bytes.
const CUT_OFF: u64 = 9;

#[test]
fn every_call_has_its_value_and_every_message_is_in_the_log() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (dir, library) = (dir.path(), witness(dir.path()));
    let accounts = accounts(&run_with("every_call", &["all", dir.to_str().unwrap()], Some((&library, dir))), RANKS);
    let compared = compare::compare(&kept::read(dir, RANKS), &seen::read(dir, RANKS));
    let compared = compared.unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    assert_eq!(compared.messages, accounts.values().map(|account| account[0]).sum::<u64>());
    assert_eq!(compared.bytes, accounts.values().map(|account| account[1]).sum::<u64>());
    assert_eq!(compared.unseen, CUT_OFF * u64::from(RANKS));
    for (rank, account) in accounts {
        let Log { lanes, given, outcomes } = log(dir, rank);
        let streams = || lanes.values().flatten();
        for ((comm, tag), stream) in streams().filter(|((_, tag), _)| *tag >= 0) {
            let last = stream.len() as u64;
            assert!(
                stream.keys().copied().eq(1..=last),
                "of {rank}, communicator {comm}, tag {tag}: a number is missing"
            );
        }
        let messages = || streams().filter(|((_, tag), _)| *tag >= 0).flat_map(|(_, stream)| stream.values());
        let bytes = messages().map(Vec::len).sum::<usize>();
        let counts = [messages().count(), bytes, given.len()].map(|count| count as u64);
        assert_eq!(account, [counts[0], counts[1], counts[2], outcomes.iter().sum()]);
        let said = said_to_be_given(dir, rank);
        let differs = given.iter().zip(&said).position(|(given, said)| given != said);
        assert_eq!((given.len(), differs), (said.len(), None), "what rank {rank} gives to collective operations");
        let left_open = std::fs::read_to_string(dir.join(format!("outcomes-{rank}"))).unwrap();
        assert_eq!(outcomes.map(|count| count.to_string()).join(" "), left_open, "what rank {rank} left to MPI");
        // What went around the world, from number to number.
        let next = &lanes[&((rank + 1) % RANKS)];
        let rank = u64::from(rank);
        assert_eq!(next[&(0, 0)][&1], numbers(rank, 0..1000));
        for number in 1..=8 {
            let place = number - 1;
            let expected: Vec<u8> = std::iter::repeat_n(numbers(rank, place..place + 1), 3).flatten().collect();
            assert_eq!(next[&(0, 5)][&number], expected);
        }
        assert_eq!(next[&(0, 20)].len(), 20_000);
        for (number, payload) in &next[&(0, 20)] {
            assert_eq!(payload[..8], numbers(rank, number - 1..*number)[..]);
        }
        // Messages with the same tag on three communicators are three streams: on the last one, half of the ranks are the neighbours.
        let rings = lanes.values().flat_map(|lane| lane.iter()).filter(|((_, tag), _)| *tag == 5);
        assert_eq!(rings.map(|((comm, _), _)| *comm).collect::<std::collections::BTreeSet<_>>().len(), 3);
    }
}

#[test]
fn a_rank_ends_the_job() {
    // The others wait for ever.
    assert_eq!(job("every_call", RANKS, &["abort"], None).status.code(), Some(7));
}

#[test]
fn a_panic_gives_no_memory_back_that_mpi_is_at_work_on() {
    let output = job("every_call", RANKS, &["panics"], None);
    let said = String::from_utf8_lossy(&output.stderr);
    // SIGABRT: nothing was unwound behind the scope.
    assert_eq!(output.status.code(), Some(128 + 6), "{said}");
    assert!(said.contains("rank 0 gives up"), "{said}");
}

#[test]
fn what_is_leaked_is_ended_by_its_scope() {
    let printed = run("every_call", &["leaks"]);
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    assert!(lines.into_iter().eq((0..RANKS).map(|rank| format!("rank {rank} has leaked"))));
}

#[test]
fn what_is_acknowledged_is_forgotten_within_a_small_memory() {
    for (rank, [messages, bytes, _, determinants]) in accounts(&run("every_call", &["acked"]), RANKS) {
        assert!(messages > 20_000 && bytes > 20_000 * 1024 && determinants == 0, "rank {rank}");
    }
}

#[test]
fn the_example_comes_to_its_answer() {
    let printed = run("ring", &[]);
    assert_eq!(printed, "heat 1000.000000 after 2000 steps; 4000 messages logged by rank 0\n");
}

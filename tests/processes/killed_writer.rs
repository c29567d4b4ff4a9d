//! A process appending in the process-crash-safe tier is killed at random instants; its replacement recovers everything
//! reported as committed, in order, and nothing else.
//!
//! The test program starts itself as that process. Set `COUNTERFOIL_KILL_SEED` to repeat a run; the instants also
//! depend on the machine.

#![expect(clippy::print_stdout, reason = "the seed of a run")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use counterfoil::{Ack, Epoch, Keep, Log, Options, Phase, Rank, Ssn, Tier, create_private_dir};
use counterfoil_test_support::random::split_mix;

const ROUNDS: u64 = 20;
const PEERS: u32 = 3;
/// Maximum number of messages between two reports; they may be in the log without being reported.
const BATCH_MAX: u64 = 40;
/// Environment variable for the killed process: a seed, and the log's directory.
const CHILD: &str = "COUNTERFOIL_KILLED_WRITER";

fn below(random: &mut impl FnMut() -> u64, limit: u64) -> u64 {
    random() % limit
}

fn options(dir: &Path) -> Options {
    let mut options = Options::new(Rank(0), PEERS + 1);
    (options.tier, options.dir) = (Tier::ProcessCrashSafe, Some(dir.to_owned()));
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (4 << 20, 8192, 0);
    options.keep = Keep::Checkpoint;
    options
}

/// Returns a message's payload, the same in a re-execution.
fn payload(peer: Rank, ssn: Ssn) -> Vec<u8> {
    let mut random = split_mix(u64::from(peer.0) << 32 | ssn.0);
    let size = if below(&mut random, 50) == 0 { below(&mut random, 20_000) } else { below(&mut random, 400) };
    (0..size).map(|_| below(&mut random, 256) as u8).collect()
}

/// A report from the process, written in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// The last committed SSN.
    Committed(Rank, Ssn),
    /// Last SSN covered by a checkpoint of the receiver: from now on records up to it may be freed.
    Covered(Rank, Ssn),
    /// Number of local log entries.
    Entries(u64),
}

impl Report {
    const BYTES: usize = 16;

    fn to_bytes(self) -> [u8; Report::BYTES] {
        let (kind, peer, number) = match self {
            Report::Committed(peer, ssn) => (1_u32, peer.0, ssn.0),
            Report::Covered(peer, ssn) => (2, peer.0, ssn.0),
            Report::Entries(count) => (3, 0, count),
        };
        let mut bytes = [0; Report::BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&peer.to_le_bytes());
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Report {
        let (kind, peer) = (bytes[0], Rank(u32::from_le_bytes(bytes[4..8].try_into().unwrap())));
        let number = u64::from_le_bytes(bytes[8..].try_into().unwrap());
        match kind {
            1 => Report::Committed(peer, Ssn(number)),
            2 => Report::Covered(peer, Ssn(number)),
            3 => Report::Entries(number),
            other => panic!("a report of kind {other}"),
        }
    }
}

/// The killed process.
///
/// Does nothing if run as an ordinary test, without the environment variable.
#[test]
fn child() {
    let Ok(setting) = std::env::var(CHILD) else { return };
    let (seed, dir) = setting.split_once(':').unwrap();
    let mut random = split_mix(seed.parse().unwrap());
    // Standard error is a pipe; the test harness writes nothing to it.
    let mut pipe = std::io::stderr();
    let mut report = |report: Report| pipe.write_all(&report.to_bytes()).unwrap();

    let (mut log, recovered) = Log::recover(options(Path::new(dir))).unwrap();
    let mut entries = recovered.local_entries as u64;
    loop {
        let peer = Rank(1 + below(&mut random, u64::from(PEERS)) as u32);
        for _ in 0..=below(&mut random, BATCH_MAX) {
            append(&mut log, peer, &mut random);
        }
        let last = log.next_ssn(peer).prev();
        if last > Ssn::ZERO {
            report(Report::Committed(peer, last));
        }
        match below(&mut random, 4) {
            0 => {
                let upto = Ssn(last.0.saturating_sub(below(&mut random, 200)));
                report(Report::Covered(peer, upto));
                log.acknowledge(peer, Ack { ssn: last, epoch: Epoch(1) }, Phase::default()).unwrap();
                log.receiver_covered(peer, Epoch(2), upto).unwrap();
                log.collect();
            }
            1 if entries < 5000 => {
                log.local().append(1, entries, &entries.to_le_bytes()).unwrap();
                entries += 1;
                report(Report::Entries(entries));
            }
            _ => {}
        }
    }
}

fn append(log: &mut Log, peer: Rank, random: &mut impl FnMut() -> u64) {
    if below(random, 20) == 0 {
        drop(log.try_claim(peer, 0, below(random, 500) as usize));
    }
    let bytes = payload(peer, log.next_ssn(peer));
    let mut claim = match log.try_claim(peer, 0, bytes.len()) {
        Ok(claim) => claim,
        // The budget is used up: a checkpoint will make room.
        Err(_) => return,
    };
    claim.payload_mut().copy_from_slice(&bytes);
    claim.commit();
}

/// Combined reports from a directory's killed processes.
#[derive(Debug, Default)]
struct Reported {
    committed: BTreeMap<Rank, Ssn>,
    covered: BTreeMap<Rank, Ssn>,
    entries: u64,
}

impl Reported {
    fn record(&mut self, bytes: &[u8]) -> usize {
        // A panic message is written to the same pipe.
        if let Some(at) = bytes.windows(8).position(|window| window == b"panicked") {
            panic!("{}", String::from_utf8_lossy(&bytes[at..]));
        }
        // An incomplete report at the end doesn't count.
        let reports = bytes.chunks_exact(Report::BYTES).map(Report::from_bytes);
        let mut count = 0;
        for report in reports {
            count += 1;
            match report {
                Report::Committed(peer, ssn) => *self.committed.entry(peer).or_default() = ssn,
                Report::Covered(peer, ssn) => {
                    let covered = self.covered.entry(peer).or_default();
                    *covered = ssn.max(*covered);
                }
                Report::Entries(entries) => self.entries = entries,
            }
        }
        count
    }

    /// Recovers the log and compares it with the reports.
    fn check(&mut self, dir: &Path, context: &str) {
        let (mut log, recovered) = Log::recover(options(dir)).unwrap_or_else(|error| panic!("{context}: {error}"));
        let entries = recovered.local_entries as u64;
        assert!((self.entries..=self.entries + 1).contains(&entries), "{context}: {entries} entries, {self:?}");
        for key in 0..entries {
            let bytes = log.local().get(1, key).map(|entry| entry.bytes);
            assert_eq!(bytes, Some(key.to_le_bytes().to_vec()), "{context}");
        }
        self.entries = entries;
        for peer in (1..=PEERS).map(Rank) {
            let committed = self.committed.get(&peer).copied().unwrap_or_default();
            let covered = self.covered.get(&peer).copied().unwrap_or_default();
            let last = log.next_ssn(peer).prev();
            let context = format!("{context}, {peer}: {committed} reported, {covered} covered, {last} found");
            assert!(last >= committed && last.0 <= committed.0 + BATCH_MAX, "{context}");
            let mut cursor = log.cursor(peer, covered.next()).unwrap_or_else(|error| panic!("{context}: {error}"));
            for ssn in (covered.0 + 1..=last.0).map(Ssn) {
                let record = cursor.peek().unwrap().unwrap_or_else(|| panic!("{context}: {ssn} is missing"));
                assert_eq!(record.ssn(), ssn, "{context}");
                assert!(record.payload() == payload(peer, ssn), "{context}: {ssn} has other bytes");
                cursor.advance();
            }
            assert!(cursor.peek().unwrap().is_none(), "{context}: an extra message");
            self.committed.insert(peer, last);
        }
    }
}

/// Kills the process with SIGKILL after a random time, and returns its reports.
fn kill(mut process: Child, random: &mut impl FnMut() -> u64) -> Vec<u8> {
    let mut pipe = process.stderr.take().unwrap();
    let mut bytes = Vec::new();
    // Half the processes are killed at any time after their start, the others after their first report.
    if below(random, 2) == 0 {
        bytes = vec![0; Report::BYTES];
        pipe.read_exact(&mut bytes).unwrap();
    }
    let reader = std::thread::spawn(move || {
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    });
    std::thread::sleep(Duration::from_micros(below(random, 30_000)));
    process.kill().unwrap();
    assert!(!process.wait().unwrap().success());
    reader.join().unwrap()
}

#[test]
fn a_writer_killed_at_any_instant_leaves_everything_that_it_had_reported() {
    let default_seed = u64::from(std::process::id()) << 16 | 1;
    let seed = std::env::var("COUNTERFOIL_KILL_SEED").map_or(default_seed, |seed| seed.parse().unwrap());
    println!("COUNTERFOIL_KILL_SEED={seed}");
    let mut random = split_mix(seed);
    let parent = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" }).unwrap();
    let (mut dir, mut reported, mut reports) = (PathBuf::new(), Reported::default(), 0);
    for round in 0..ROUNDS {
        // Every few rounds begin a new log; the others continue a killed process's log, like a replacement.
        if round % 4 == 0 {
            dir = parent.path().join(round.to_string());
            create_private_dir(&dir).unwrap();
            reported = Reported::default();
        }
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["killed_writer::child", "--exact", "--nocapture"])
            .env(CHILD, format!("{}:{}", below(&mut random, u64::MAX), dir.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        reports += reported.record(&kill(process, &mut random));
        reported.check(&dir, &format!("seed {seed}, round {round}"));
    }
    println!("{reports} reports of {ROUNDS} processes");
    assert!(reports >= 5, "the processes were killed before they reported anything: seed {seed}");
}

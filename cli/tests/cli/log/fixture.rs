//! Stores with known contents, and functions running `counterfoil log` on them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use counterfoil::{Contents, Envelope, Epoch, Log, Options, Phase, Rank, Ssn, StoreOptions, Tier, create_private_dir};
use counterfoil_ack_piggyback::{Ack, Flags, Origin, Stamp, WireHeader};
use serde_json::Value;
use tempfile::TempDir;

use crate::output::ProgramOutput;

/// Number of messages to each peer.
pub(crate) const MESSAGES: u64 = 600;
pub(crate) const PEERS: [Rank; 3] = [Rank(1), Rank(2), Rank(3)];
pub(crate) const ENTRY: &str = "a choice";

/// Directory of a job with four ranks.
pub(crate) struct Stores {
    dir: PathBuf,
    /// Keeps the temporary directory alive.
    _temp_dir: TempDir,
}

impl Stores {
    pub(crate) fn new() -> Stores {
        let temp_dir = tempfile::tempdir().unwrap();
        let dir = temp_dir.path().join("job");
        create_private_dir(&dir).unwrap();
        Stores { dir, _temp_dir: temp_dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn rank(&self, rank: u32) -> PathBuf {
        self.dir().join(format!("rank-{rank}"))
    }

    pub(crate) fn options(&self, rank: u32) -> Options {
        let mut options = Options::new(Rank(rank), 4);
        options.tier = Tier::NodeLocal;
        (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (1 << 20, 16 << 10, 0);
        options.store = Some(StoreOptions {
            segment_bytes: 512 << 10,
            block_bytes: 32 << 10,
            checkpoints_kept: 2,
            ..StoreOptions::new(self.dir())
        });
        options
    }

    /// Creates rank 0's store with two checkpoints, and closes it.
    pub(crate) fn intact(&self) -> PathBuf {
        drop(self.fill(0));
        self.rank(0)
    }

    /// Creates a log with [`MESSAGES`] to each peer, all acknowledged but the last five.
    ///
    /// The checkpoint of epoch 2 has the first half, the one of epoch 3 all; a synced local log entry follows it.
    pub(crate) fn fill(&self, rank: u32) -> Log {
        let mut log = Log::create(self.options(rank)).unwrap();
        for epoch in [2, 3] {
            for _ in 0..MESSAGES / 2 {
                for peer in PEERS {
                    let ssn = append(&mut log, peer);
                    if ssn.0 <= MESSAGES - 5 {
                        acknowledge(&mut log, peer, ssn, epoch - 1);
                    }
                }
            }
            log.local().append(1, u64::from(epoch), ENTRY.as_bytes()).unwrap();
            log.checkpoint(Epoch(epoch), Contents::default()).unwrap();
        }
        log.local().append(1, 99, ENTRY.as_bytes()).unwrap();
        log.sync_local().unwrap();
        log
    }
}

pub(crate) fn payload(peer: Rank, ssn: Ssn) -> Vec<u8> {
    let len = (ssn.0 * 37 + u64::from(peer.0)) % 1900;
    (0..len).map(|index| (index * 7 + ssn.0 * 13 + u64::from(peer.0)) as u8).collect()
}

/// Appends the next message to a peer as a rank does: a sealed header and the payload.
pub(crate) fn append(log: &mut Log, peer: Rank) -> Ssn {
    let ssn = log.next_ssn(peer);
    let bytes = payload(peer, ssn);
    let len = bytes.len() as u64;
    let envelope = Envelope { source: Rank(0), destination: peer, tag: 7, comm: 0, len };
    let mut header = WireHeader::message(&envelope, Stamp { ssn, flags: Flags::NONE }, Origin::default(), None);
    header.seal(&bytes);
    let mut claim = log.claim(peer, WireHeader::LEN, bytes.len()).unwrap();
    claim.prefix_mut().copy_from_slice(header.as_bytes());
    claim.payload_mut().copy_from_slice(&bytes);
    claim.commit()
}

pub(crate) fn acknowledge(log: &mut Log, peer: Rank, ssn: Ssn, epoch: u32) {
    log.acknowledge(peer, Ack { ssn, epoch: Epoch(epoch) }, Phase(0)).unwrap();
}

/// Builds `counterfoil log` with these arguments and the directory.
pub(crate) fn program(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.arg("log").args(arguments).arg(dir).stdin(Stdio::null());
    command
}

/// Runs `counterfoil log`, which must not panic.
pub(crate) fn log(arguments: &[&str], dir: &Path) -> ProgramOutput {
    let output = ProgramOutput::from(program(arguments, dir).output().unwrap());
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    output
}

/// Runs `counterfoil log --json`, which must print valid JSON and nothing else on standard output.
pub(crate) fn log_json(arguments: &[&str], dir: &Path) -> (Option<i32>, Value) {
    let output = log(&[arguments, &["--json"]].concat(), dir);
    let value = serde_json::from_str(&output.stdout);
    (output.code, value.unwrap_or_else(|error| panic!("{error}: {}{}", output.stdout, output.stderr)))
}

/// Reads all files in a directory.
pub(crate) fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// Flips a bit.
pub(crate) fn flip(file: &Path, at: u64) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at as usize] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// Copies a store.
pub(crate) fn copy(from: &Path, to: &Path) {
    create_private_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

pub(crate) fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is not an array"))
}

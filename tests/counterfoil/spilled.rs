//! Logs with little memory compared with their contents, and distinguishable messages.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::path::Path;

use counterfoil::{Ack, BackendChoice, Epoch, Log, Options, Phase, Rank, Ssn, StoreOptions, Tier, create_private_dir};

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// Returns options with 1 MiB of memory in 16 KiB chunks, and 1 MiB segments in `dir`.
pub(crate) fn options(dir: &Path, ranks: u32) -> Options {
    let mut options = Options::new(Rank(0), ranks);
    options.tier = Tier::NodeLocal;
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (1024 * KIB, 16 * KIB, 0);
    options.store = Some(StoreOptions {
        segment_bytes: MIB,
        block_bytes: 64 * KIB,
        backend: BackendChoice::Auto,
        ..StoreOptions::new(dir)
    });
    options
}

/// Runs a test with options for a log in an empty directory.
pub(crate) fn with_dir(ranks: u32, test: impl FnOnce(Options)) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    create_private_dir(&dir).unwrap();
    test(options(&dir, ranks));
}

/// Returns a message's payload: 500 to 1,500 bytes.
pub(crate) fn payload(peer: Rank, ssn: Ssn) -> Vec<u8> {
    let len = 500 + (ssn.0 * 37 + u64::from(peer.0)) % 1000;
    (0..len).map(|index| (index * 7 + ssn.0 * 13 + u64::from(peer.0)) as u8).collect()
}

/// Logs the next message to `peer`.
pub(crate) fn append(log: &mut Log, peer: Rank) -> Result<Ssn, counterfoil::AppendError> {
    let bytes = payload(peer, log.next_ssn(peer));
    let mut claim = log.claim(peer, 0, bytes.len()).map_err(|refused| *refused)?;
    claim.payload_mut().copy_from_slice(&bytes);
    Ok(claim.commit())
}

pub(crate) fn acknowledge(log: &mut Log, peer: Rank, ssn: Ssn) {
    log.acknowledge(peer, Ack { ssn, epoch: Epoch::FIRST }, Phase(0)).expect("the SSN was sent");
}

/// Reads and checks all messages to `peer`; returns the first SSN and the one after the last.
pub(crate) fn check_replay(log: &mut Log, peer: Rank) -> (Ssn, Ssn) {
    let first = log.kept_from(peer);
    let mut cursor = log.cursor(peer, first).expect("kept records can be read");
    let mut next = first;
    while let Some(record) = cursor.read().expect("kept records can be read") {
        assert_eq!(record.ssn(), next, "to {peer}");
        assert!(record.payload() == payload(peer, next), "{next} to {peer} has other bytes");
        next = next.next();
    }
    (first, next)
}

//! Lane guarantees testable in one thread.

mod appending;
mod growing;
mod images;
mod reading;
mod retaining;
mod truncating;

use std::sync::Arc;

use counterfoil_log_core::{
    CursorError, Disposition, Epoch, LaneWriter, Phase, Pool, PoolOptions, Rank, SettledChunk, Ssn,
};

pub(crate) const PEER: Rank = Rank(1);

pub(crate) fn pool(memory_bytes_max: usize, chunk_bytes: usize) -> Arc<Pool> {
    Pool::volatile(PoolOptions { memory_bytes_max, chunk_bytes, prefault_bytes: 0, cursors_max: 2 }).unwrap()
}

pub(crate) fn lane() -> LaneWriter {
    LaneWriter::new(pool(1 << 20, 4096), PEER)
}

/// Bytes counting up.
///
/// Payloads are slices of it, since a loop over bytes is slow under Miri.
pub(crate) static COUNTING: [u8; 16 << 10] = {
    let mut bytes = [0; 16 << 10];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

/// Returns the payload of message `ssn`, with length and bytes depending on `ssn`.
pub(crate) fn payload(ssn: u64) -> Vec<u8> {
    let first = (ssn * 31) as u8;
    COUNTING[first.into()..][..(ssn % 97) as usize].to_vec()
}

/// Returns the bytes taken by the records of these messages, with their headers.
pub(crate) fn records(first: Ssn, last: Ssn) -> usize {
    (first.0..=last.0).map(|ssn| (16 + 3 + ssn as usize % 97).next_multiple_of(16)).sum()
}

pub(crate) fn append(lane: &mut LaneWriter, bytes: &[u8]) -> Ssn {
    let mut claim = lane.claim(3, bytes.len()).unwrap();
    claim.prefix_mut().copy_from_slice(b"pre");
    claim.payload_mut().copy_from_slice(bytes);
    claim.commit()
}

pub(crate) fn fill(lane: &mut LaneWriter, upto: u64) {
    while lane.next_ssn().0 <= upto {
        let bytes = payload(lane.next_ssn().0);
        append(lane, &bytes);
    }
}

/// Acknowledges and retains the records up to `upto`.
pub(crate) fn retain(lane: &mut LaneWriter, upto: u64) {
    lane.acknowledge(Ssn(upto), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
}

/// Returns the settled, unreported chunks.
pub(crate) fn settled(lane: &mut LaneWriter) -> Vec<SettledChunk> {
    std::iter::from_fn(|| lane.poll_settled()).collect()
}

pub(crate) fn ssns(lane: &LaneWriter, from: Ssn) -> Result<Vec<u64>, CursorError> {
    let mut cursor = lane.reader().open(from)?;
    let mut seen = Vec::new();
    while let Some(record) = cursor.peek() {
        assert_eq!(record.payload(), payload(record.ssn().0), "{}", record.ssn());
        assert_eq!(record.prefix(), b"pre");
        assert_eq!(record.wire(), [b"pre", record.payload()].concat());
        seen.push(record.ssn().0);
        cursor.advance();
    }
    Ok(seen)
}

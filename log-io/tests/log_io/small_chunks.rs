//! A small store as in `small_store`, with an in-place chunk.

use counterfoil_log_core::{LaneWriter, Pool, PoolOptions, Rank, Ssn};
use counterfoil_log_io::{CheckpointImage, LaneSource, StoreOptions};
use counterfoil_test_support::SimulatedDisk;

use crate::small_store::{OwnedRecords, build_from, options};

/// Builds a store as `small_store::build` does, from a lane in memory: three records in an in-place chunk, and one
/// copied.
pub(crate) fn build_of_chunks(disk: &SimulatedDisk) -> CheckpointImage {
    let options = PoolOptions { memory_bytes_max: 64 << 10, chunk_bytes: 8 << 10, prefault_bytes: 0, cursors_max: 2 };
    let mut lane = LaneWriter::new(Pool::volatile(options).unwrap(), Rank(2));
    for (ssn, wire) in records_of_chunks() {
        let mut claim = lane.claim(2, wire.len() - 2).unwrap();
        claim.body_mut().copy_from_slice(&wire);
        assert_eq!(claim.commit(), Ssn(ssn));
        if ssn == 1 {
            // A pad between records.
            drop(lane.claim(2, 50).unwrap());
        }
    }
    let mut source = LaneSource::new(lane.cursor(Ssn::FIRST).unwrap(), Ssn::MAX);
    build_from(disk, options_of_chunks(), &mut source, lane.next_ssn().prev().0)
}

/// Returns a lane with this many thousand-byte records, in 8 KiB chunks.
pub(crate) fn lane_of(records: usize) -> LaneWriter {
    let pool = PoolOptions { memory_bytes_max: 4 << 20, chunk_bytes: 8 << 10, prefault_bytes: 0, cursors_max: 1 };
    let mut lane = LaneWriter::new(Pool::volatile(pool).unwrap(), Rank(0));
    (0..records).for_each(|_| _ = lane.claim(2, 998).unwrap().commit());
    lane
}

/// Returns options for a store with room for such a lane in a segment.
pub(crate) fn blocks_of_64_kib() -> StoreOptions {
    StoreOptions { segment_bytes: 1 << 20, block_bytes: 64 << 10, disk_bytes_max: 4 << 20, ..options() }
}

pub(crate) fn options_of_chunks() -> StoreOptions {
    StoreOptions { segment_bytes: 32 << 10, block_bytes: 8 << 10, ..options() }
}

/// Returns three records filling an 8 KiB chunk, and one starting the next.
///
/// Most of their bytes are zeros.
pub(crate) fn records_of_chunks() -> OwnedRecords {
    let record = |ssn: u64, len: usize| {
        let mut wire = vec![0; len];
        wire[..2].copy_from_slice(b"p1");
        wire.iter_mut().step_by(97).for_each(|byte| *byte = ssn as u8);
        (ssn, wire)
    };
    vec![record(1, 6000), record(2, 40), record(3, 1500), record(4, 700)]
}

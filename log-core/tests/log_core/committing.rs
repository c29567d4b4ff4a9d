//! Pool memory: prefaulted, committed ahead, or by the claim needing it.

use counterfoil_log_core::{Claim, LaneWriter, Pool, PoolOptions, Rank};

const CHUNK: usize = 4096;

fn options(chunks: usize, prefault_bytes: usize) -> PoolOptions {
    PoolOptions { memory_bytes_max: chunks * CHUNK, chunk_bytes: CHUNK, prefault_bytes, cursors_max: 2 }
}

/// Appends half-chunk records until a chunk is begun.
fn begin_chunk(lane: &mut LaneWriter) -> bool {
    let before = lane.held_bytes();
    while lane.held_bytes() == before {
        if lane.claim(0, CHUNK / 3).map(Claim::commit).is_err() {
            return false;
        }
    }
    true
}

#[test]
fn a_chunk_that_was_committed_ahead_is_the_next_one_used() {
    let pool = Pool::volatile(options(8, 0)).unwrap();
    let mut lane = LaneWriter::new(pool.clone(), Rank(1));
    assert!(begin_chunk(&mut lane));
    assert_eq!((pool.late_commit_bytes(), pool.spare_bytes()), (CHUNK, 0));
    assert!(pool.can_commit_ahead(2 * CHUNK));
    while pool.commit_ahead(2 * CHUNK).unwrap() {}
    assert_eq!((pool.resident_bytes(), pool.spare_bytes()), (3 * CHUNK, 2 * CHUNK));
    assert!(!pool.can_commit_ahead(2 * CHUNK));
    assert!(begin_chunk(&mut lane) && begin_chunk(&mut lane));
    assert_eq!((pool.late_commit_bytes(), pool.spare_bytes()), (CHUNK, 0));
    assert!(begin_chunk(&mut lane));
    assert_eq!(pool.late_commit_bytes(), 2 * CHUNK);
}

#[test]
fn nothing_is_committed_ahead_beyond_the_budget() {
    let pool = Pool::volatile(options(3, 0)).unwrap();
    let mut lane = LaneWriter::new(pool.clone(), Rank(1));
    assert!(begin_chunk(&mut lane));
    while pool.commit_ahead(usize::MAX).unwrap() {}
    assert_eq!((pool.resident_bytes(), pool.can_commit_ahead(usize::MAX)), (3 * CHUNK, false));
    assert!(begin_chunk(&mut lane) && begin_chunk(&mut lane) && !begin_chunk(&mut lane));
    assert_eq!((pool.used_bytes(), pool.late_commit_bytes()), (3 * CHUNK, CHUNK));
}

#[test]
fn a_block_for_another_large_record_is_committed_ahead() {
    let pool = Pool::volatile(options(64, 0)).unwrap();
    let mut lane = LaneWriter::new(pool.clone(), Rank(1));
    let mut large = || {
        lane.claim(0, 5 * CHUNK).unwrap().commit();
    };
    large();
    let late = pool.late_commit_bytes();
    assert!(late > 5 * CHUNK);
    // No chunk is asked for, but a block like the last one, once.
    assert!(pool.can_commit_ahead(0) && pool.commit_ahead(0).unwrap() && !pool.commit_ahead(0).unwrap());
    large();
    assert_eq!(pool.late_commit_bytes(), late);
    large();
    assert_eq!(pool.late_commit_bytes(), 2 * late);
}

#[test]
fn lanes_begin_with_a_whole_chunk_as_far_as_prefaulted_memory_goes() {
    let chunk_bytes = 4 * CHUNK;
    let options =
        PoolOptions { memory_bytes_max: 1 << 20, chunk_bytes, prefault_bytes: 17 * chunk_bytes, cursors_max: 2 };
    let pool = Pool::volatile(options).unwrap();
    let held = [1, 2, 3].map(|peer| {
        let mut lane = LaneWriter::new(pool.clone(), Rank(peer));
        lane.claim(0, 8).unwrap().commit();
        lane.held_bytes()
    });
    assert_eq!(held, [chunk_bytes, chunk_bytes, CHUNK]);
}

#[test]
fn prefaulted_memory_is_not_committed_late() {
    let pool = Pool::volatile(options(8, 4 * CHUNK)).unwrap();
    assert_eq!((pool.spare_bytes(), pool.late_commit_bytes()), (4 * CHUNK, 0));
}

#[test]
fn a_lane_whose_large_records_leave_its_chunks_half_empty_gets_smaller_ones() {
    let chunk_bytes = 16 * CHUNK;
    let options = PoolOptions { memory_bytes_max: 64 << 20, chunk_bytes, prefault_bytes: 0, cursors_max: 2 };
    let pool = Pool::volatile(options).unwrap();
    let mut lane = LaneWriter::new(pool.clone(), Rank(1));
    let mut appended = 0;
    for round in 0..200 {
        // The second doesn't fit into the rest of the first one's block.
        for bytes in [18 * CHUNK, 2 * CHUNK, 100] {
            lane.claim(0, bytes).unwrap().commit();
            appended += bytes;
        }
        if round > 20 {
            assert!(lane.held_bytes() < appended * 3 / 2, "{} for {appended} in round {round}", lane.held_bytes());
        }
    }
}

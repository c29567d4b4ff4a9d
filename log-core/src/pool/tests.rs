use super::*;
use crate::lane::LaneWriter;

const CHUNK: usize = 4096;

fn pool() -> Arc<Pool> {
    let options = PoolOptions { memory_bytes_max: 16 * CHUNK, chunk_bytes: CHUNK, prefault_bytes: 0, cursors_max: 1 };
    Pool::volatile(options).unwrap()
}

/// Appends messages that take a chunk each.
fn append(lane: &mut LaneWriter, count: usize) {
    for _ in 0..count {
        lane.claim(0, CHUNK / 2).unwrap().commit();
    }
}

/// A long job makes and drops lanes without end: replacements, repaired communicators.
#[test]
fn lanes_that_are_gone_are_not_remembered() {
    let pool = pool();
    let kept = LaneWriter::new(pool.clone(), Rank(0));
    for peer in 1..100 {
        drop(LaneWriter::new(pool.clone(), Rank(peer)));
    }
    assert!(pool.lanes.lock().unwrap().len() <= 2);
    drop(kept);
}

#[test]
fn memory_within_the_budget_stays_warm() {
    let pool = pool();
    let mut lane = LaneWriter::new(pool.clone(), Rank(0));
    append(&mut lane, 16);
    assert_eq!(pool.resident_bytes(), 16 * CHUNK);
    drop(lane);
    pool.discard_excess();
    assert_eq!((pool.resident_bytes(), pool.used_bytes()), (16 * CHUNK, 0));
}

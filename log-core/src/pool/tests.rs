use super::*;
use crate::lane::LaneWriter;

const CHUNK: usize = 4096;

fn pool() -> Arc<Pool> {
    let options = PoolOptions { memory_bytes_max: 16 * CHUNK, chunk_bytes: CHUNK, prefault_bytes: 0, cursors_max: 1 };
    Pool::volatile(options).unwrap()
}

/// Appends messages taking a chunk each.
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

/// The budget has room for one block more, and the class has none.
#[test]
fn no_block_is_taken_beyond_the_region_of_its_class() {
    let pool = pool();
    (0..16).for_each(|_| _ = pool.take(0).unwrap());
    let beyond = pool.take_in_place();
    assert!(matches!(beyond, Err(AllocError::Full(_))), "{beyond:?}");
    assert_eq!(pool.resident_bytes(), 16 * CHUNK);
}

#[cfg(not(miri))]
#[test]
fn memory_that_is_returned_to_the_system_is_zero() {
    let pool = pool();
    let word = pool.arena.word(CHUNK);
    word.store(7, Ordering::Relaxed);
    pool.arena.discard(CHUNK, CHUNK).unwrap();
    assert_eq!(word.load(Ordering::Relaxed), 0);
}

/// Each byte's address corresponds to its offset, and no word reaches beyond the end.
#[test]
fn words_are_inside_the_arena() {
    let pool = pool();
    let len = pool.geometry.len();
    assert_eq!(pool.arena.address(CHUNK).addr() - pool.arena.address(0).addr(), CHUNK);
    assert_eq!(format!("{:?}", pool.arena), "Arena { survives_process: false, .. }");
    assert_eq!(pool.arena.word(8).as_ptr().addr() - pool.arena.address(0).addr(), 8);
    pool.arena.word(len - 8);
    for at in [len, len - 4, len + 8, 4, 9] {
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.arena.word(at).as_ptr()));
        assert!(outside.is_err(), "{at} of {len}");
    }
}

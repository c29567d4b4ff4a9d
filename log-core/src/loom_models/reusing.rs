//! Blocks freed to the pool and taken again.

use loom::thread;

use super::{PEER, WHOLE, append, check, peek, pool, release};
use crate::chunk::{BlockRef, CHUNK_HEADER};
use crate::lane::LaneWriter;
use crate::nouns::{Rank, Ssn};
use crate::pool::Pool;

/// Takes a block and writes into it; the model fails if another thread has the block, or had it without a
/// happens-before edge to this one.
fn take(pool: &Pool) -> BlockRef {
    let block = pool.take(0).expect("the pool has a block left");
    pool.arena.write_body(block.at() + CHUNK_HEADER, block.at() as u64);
    block
}

/// No block is handed out twice, even if a thread taking one is overtaken by another taking and freeing the same block;
/// and its old use happens before its new one.
#[test]
fn a_block_has_one_owner_at_a_time() {
    check(|| {
        let pool = pool(4, 1);
        let (a, b) = (take(&pool), take(&pool));
        pool.give_back(b);
        pool.give_back(a);
        let other = thread::spawn({
            let pool = pool.clone();
            move || {
                let block = take(&pool);
                pool.give_back(block);
            }
        });
        let (a, b) = (take(&pool), take(&pool));
        pool.give_back(a);
        let c = take(&pool);
        assert_ne!(b, c);
        other.join().expect("the other thread ends");
        pool.give_back(b);
        pool.give_back(c);
        assert_eq!(pool.used_bytes(), 0);
    });
}

/// Two threads take and free blocks in turn: all writes to a block, and to the stack's links, happen before the block's
/// next take.
#[test]
fn the_next_owner_of_a_block_sees_all_writes_to_it() {
    check(|| {
        let pool = pool(4, 1);
        let exchange = |pool: &Pool| {
            let block = take(pool);
            pool.give_back(block);
            let block = take(pool);
            pool.give_back(block);
        };
        let warm = [take(&pool), take(&pool)];
        warm.into_iter().for_each(|block| pool.give_back(block));
        let other = thread::spawn({
            let pool = pool.clone();
            move || exchange(&pool)
        });
        exchange(&pool);
        other.join().expect("the other thread ends");
        let owned = [take(&pool), take(&pool), take(&pool), take(&pool)];
        assert!((1..4).all(|index| !owned[..index].contains(&owned[index])), "{owned:?}");
    });
}

/// A chunk just read by one lane's cursor becomes a chunk of another lane on another thread: the cursor's reads happen
/// before the other lane's writes.
#[test]
fn a_chunk_that_was_read_in_one_lane_is_reused_in_another() {
    check(|| {
        let pool = pool(4, 1);
        let mut lane = LaneWriter::new(pool.clone(), PEER);
        append(&mut lane, WHOLE);
        append(&mut lane, WHOLE);
        let reader = lane.reader();
        let mut cursor = reader.open(Ssn(1)).expect("nothing is gone");
        let mut other_lane = LaneWriter::new(pool, Rank(2));
        let reading = thread::spawn(move || assert_eq!(peek(&mut cursor), Some((1, 0))));
        let other = thread::spawn(move || {
            append(&mut other_lane, WHOLE);
            append(&mut other_lane, WHOLE);
        });
        release(&mut lane, 1);
        lane.return_spares();
        reading.join().expect("the reader ends");
        other.join().expect("the other writer ends");
        drop(reader);
    });
}

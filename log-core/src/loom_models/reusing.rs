//! Blocks that go through the pool.

use loom::thread;

use super::{PEER, WHOLE, append, check, peek, pool, release};
use crate::chunk::{BlockRef, CHUNK_HEADER};
use crate::lane::LaneWriter;
use crate::nouns::{Rank, Ssn};
use crate::pool::Pool;

/// Takes a block and writes into it, which fails the model where somebody else has the block, or had it and is not known
/// to be done.
fn take(pool: &Pool) -> BlockRef {
    let block = pool.take(0).expect("the pool has a block left");
    pool.arena.write_body(block.at() + CHUNK_HEADER, block.at() as u64);
    block
}

/// No block is ever handed out twice, also where a thread that takes one is overtaken by another that takes the same one
/// and puts it back; and its old use happens before its new one.
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
        other.join().expect("the other one ends");
        pool.give_back(b);
        pool.give_back(c);
        assert_eq!(pool.used_bytes(), 0);
    });
}

/// Two threads that give back and take in turn: what was done to a block, and to the stack's links, is known to whoever
/// takes it next.
#[test]
fn what_was_done_to_a_block_is_known_to_the_next_owner() {
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
        other.join().expect("the other one ends");
        let owned = [take(&pool), take(&pool), take(&pool), take(&pool)];
        assert!((1..4).all(|index| !owned[..index].contains(&owned[index])), "{owned:?}");
    });
}

/// A chunk of one lane, just read by a cursor there, becomes a chunk of another lane on another thread: the cursor's reads
/// happen before the other lane's writes.
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
        lane.give_spares_back();
        reading.join().expect("the reader ends");
        other.join().expect("the other writer ends");
        drop(reader);
    });
}

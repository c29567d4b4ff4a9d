//! Largest blocks.

use counterfoil::{Contents, Epoch, Log, Rank, Ssn};

use crate::spilled::{KIB, with_dir};

const PEER: Rank = Rank(1);

/// Chunks fill a block up to an eighth above `block_bytes`, but not beyond the largest block a reader accepts.
#[test]
fn the_largest_blocks_of_the_largest_chunks_are_recovered() {
    with_dir(2, |mut options| {
        (options.memory_bytes_max, options.chunk_bytes) = (64 << 20, 1 << 20);
        let store = options.store.as_mut().unwrap();
        (store.block_bytes, store.segment_bytes, store.disk_bytes_max) = (16 << 20, 64 << 20, 256 << 20);
        let mut log = Log::create(options.clone()).unwrap();
        let check = |log: &mut Log| {
            let mut cursor = log.cursor(PEER, Ssn::FIRST).unwrap();
            for number in 0..700_u64 {
                let record = cursor.read().unwrap().unwrap();
                assert_eq!((record.ssn(), record.payload().len()), (Ssn(number + 1), 60 * KIB));
                assert!(record.payload().iter().all(|byte| *byte == number as u8));
            }
        };
        for number in 0..700_u64 {
            let mut claim = log.claim(PEER, 0, 60 * KIB).unwrap();
            claim.payload_mut().fill(number as u8);
            claim.commit();
        }
        log.checkpoint(Epoch(2), Contents::default()).unwrap();
        check(&mut log);
        drop(log);
        check(&mut Log::recover(options).unwrap().0);
    });
}

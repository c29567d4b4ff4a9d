//! Chunk header: all that a reader and a recovery know about a block.
//!
//! ```text
//! offset 0  state: magic, state, generation     written by the lane's writer, read by a recovery
//!        8  next: block of the next chunk       written once by the writer (release), read by cursors (acquire)
//!       16  lane                                constant while the chunk is in use
//!       24  sequence: position in the lane      "
//!       32  first SSN                           "
//!       40  last SSN + 1 once sealed, else 0    written once by the writer (release), read by cursors (acquire)
//!       48  replaces: lowest sequence that a relocation moved here, and flags   constant
//!       56  check over the constant words       "
//!       64  reserved: claim state of a shared writer
//!       72  bytes of records, pads included     written once by the writer, between the end word and the word at 40
//!       80  bytes of the pads                   "
//!       88  unused, so that the first body begins on a cache line
//!      112  records ...
//! ```

use crate::arena::Arena;
use crate::nouns::{Rank, Ssn};
use crate::options::BLOCK_BYTES_MIN;
use crate::sync::Ordering;

pub(crate) const STATE_AT: usize = 0;
pub(crate) const NEXT_AT: usize = 8;
const LANE_AT: usize = 16;
pub(crate) const SEQUENCE_AT: usize = 24;
pub(crate) const FIRST_AT: usize = 32;
pub(crate) const LAST_AT: usize = 40;
const REPLACES_AT: usize = 48;
const CHECK_AT: usize = 56;
/// Reserved for a shared writer's claim state (several threads, one lane): tail and writers in flight.
pub(crate) const SHARED_WRITER_AT: usize = 64;
/// Total record bytes in a sealed chunk, pads included, so that a reader doesn't walk them.
pub(crate) const RECORD_BYTES_AT: usize = 72;
/// Pad bytes in a sealed chunk.
pub(crate) const PAD_BYTES_AT: usize = 80;
/// Bytes before a chunk's first record.
pub(crate) const CHUNK_HEADER: usize = 112;

/// Word at [`LAST_AT`] in an unsealed chunk.
pub(crate) const OPEN: u64 = 0;

/// Returns the word at [`LAST_AT`] for a chunk ending with `last`, which is [`Ssn::ZERO`] if the lane has no record
/// yet.
pub(crate) fn sealed_word(last: Ssn) -> u64 {
    last.0 + 1
}

/// Returns the last SSN of a chunk from its word at [`LAST_AT`], which is not [`OPEN`].
pub(crate) fn sealed_last(word: u64) -> Ssn {
    Ssn(word - 1)
}

/// An arena block: its offset, and its class in the bits left free by page alignment.
///
/// Zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockRef(pub(crate) u64);

impl BlockRef {
    pub(crate) const NONE: BlockRef = BlockRef(0);

    pub(crate) fn new(at: usize, class: usize) -> BlockRef {
        debug_assert!(at.is_multiple_of(BLOCK_BYTES_MIN) && at > 0 && class < BLOCK_BYTES_MIN);
        BlockRef(at as u64 | class as u64)
    }

    #[inline]
    pub(crate) fn at(self) -> usize {
        self.0 as usize & !(BLOCK_BYTES_MIN - 1)
    }

    #[inline]
    pub(crate) fn class(self) -> usize {
        self.0 as usize & (BLOCK_BYTES_MIN - 1)
    }

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Block state, for a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// Never used since its memory was committed.
    Untouched,
    /// Not in a lane.
    Free,
    /// In a lane.
    Active,
    /// Being filled by a relocation: a recovery still reads the originals.
    Staged,
    /// A state word never written by a writer.
    Damaged,
}

const STATE_MAGIC: u64 = 0xCF01_0000_0000_0000;
const FREE: u64 = 0x11 << 32;
const ACTIVE: u64 = 0x22 << 32;
const STAGED: u64 = 0x44 << 32;

fn state_word(state: ChunkState, generation: u32) -> u64 {
    let state = match state {
        ChunkState::Active => ACTIVE,
        ChunkState::Staged => STAGED,
        _ => FREE,
    };
    STATE_MAGIC | state | u64::from(generation)
}

/// Stores the end of a sealed chunk: its record and pad bytes, and its last SSN.
pub(crate) fn write_end(arena: &Arena, at: usize, last: Ssn, record_bytes: usize, pad_bytes: usize) {
    arena.word(at + RECORD_BYTES_AT).store(record_bytes as u64, Ordering::Relaxed);
    arena.word(at + PAD_BYTES_AT).store(pad_bytes as u64, Ordering::Relaxed);
    // Release: a reader seeing the chunk sealed sees the two words above, the link and the end word, so no byte after
    // the header is still to be written.
    arena.word(at + LAST_AT).store(sealed_word(last), Ordering::Release);
}

/// Reads a block's state and generation.
pub(crate) fn read_state(arena: &Arena, at: usize) -> (ChunkState, u32) {
    let word = arena.word(at + STATE_AT).load(Ordering::Acquire);
    let generation = word as u32;
    let state = match word & 0xFFFF_FFFF_0000_0000 {
        0 if generation == 0 => ChunkState::Untouched,
        w if w == STATE_MAGIC | FREE => ChunkState::Free,
        w if w == STATE_MAGIC | ACTIVE => ChunkState::Active,
        w if w == STATE_MAGIC | STAGED => ChunkState::Staged,
        _ => ChunkState::Damaged,
    };
    (state, generation)
}

/// Sets a block's state.
///
/// Each time the block is freed, its generation grows by one.
pub(crate) fn write_state(arena: &Arena, at: usize, state: ChunkState) {
    let word = arena.word(at + STATE_AT);
    let generation = word.load(Ordering::Relaxed) as u32;
    let generation = if state == ChunkState::Free { generation.wrapping_add(1) } else { generation };
    // Release: a recovery finding the chunk active must also find its header, written before.
    word.store(state_word(state, generation), Ordering::Release);
}

/// Constant part of a chunk's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    /// Destination of the records; identifies the lane.
    pub(crate) lane: Rank,
    /// Position in the lane, from 1.
    pub(crate) sequence: u64,
    /// SSN of the first record, or of the next record to come in an empty chunk.
    pub(crate) first: Ssn,
    /// Lowest sequence with records relocated to here; `sequence` if there was no relocation.
    pub(crate) replaces: u64,
    /// True if SSNs may be missing between the records, as after a relocation or an import.
    pub(crate) sparse: bool,
}

/// Flag in the `replaces` word for a sparse chunk.
const SPARSE: u64 = 1 << 63;

impl ChunkHeader {
    fn words(&self) -> [u64; 4] {
        let replaces = self.replaces | if self.sparse { SPARSE } else { 0 };
        [u64::from(self.lane.0), self.sequence, self.first.0, replaces]
    }

    fn check(words: [u64; 4], class: usize) -> u64 {
        words
            .iter()
            .fold(0xC0F0 + class as u64, |sum, word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31))
    }

    /// Writes the header of an empty chunk: without a link, not sealed, the first commit word empty.
    pub(crate) fn write(&self, arena: &Arena, block: BlockRef) {
        let at = block.at();
        let store = |offset, value| arena.word(at + offset).store(value, Ordering::Relaxed);
        let words = self.words();
        store(NEXT_AT, 0);
        store(LANE_AT, words[0]);
        store(SEQUENCE_AT, words[1]);
        store(FIRST_AT, words[2]);
        store(LAST_AT, OPEN);
        store(REPLACES_AT, words[3]);
        store(CHECK_AT, Self::check(words, block.class()));
        store(SHARED_WRITER_AT, 0);
        store(CHUNK_HEADER, 0);
    }

    /// Reads the header; `None` if it doesn't match its check.
    pub(crate) fn read(arena: &Arena, block: BlockRef) -> Option<ChunkHeader> {
        let at = block.at();
        let load = |offset| arena.word(at + offset).load(Ordering::Relaxed);
        let words = [load(LANE_AT), load(SEQUENCE_AT), load(FIRST_AT), load(REPLACES_AT)];
        if load(CHECK_AT) != Self::check(words, block.class()) || load(SHARED_WRITER_AT) != 0 {
            return None;
        }
        Some(ChunkHeader {
            lane: Rank(u32::try_from(words[0]).ok()?),
            sequence: words[1],
            first: Ssn(words[2]),
            replaces: words[3] & !SPARSE,
            sparse: words[3] & SPARSE != 0,
        })
    }
}

/// A chunk as seen by the writer.
#[derive(Clone, Debug)]
pub(crate) struct ChunkInfo {
    pub(crate) block: BlockRef,
    pub(crate) header: ChunkHeader,
    /// SSN of the last record; valid once the chunk is sealed.
    pub(crate) last: Ssn,
    /// Record and pad bytes; valid once the chunk is sealed.
    pub(crate) record_bytes: usize,
    /// Pad bytes, counted as they are written.
    pub(crate) pad_bytes: usize,
}

impl ChunkInfo {
    /// Returns the highest possible pin of a cursor in the chunk.
    ///
    /// An empty chunk's last SSN is below its first.
    pub(crate) fn pinned_upto(&self) -> Ssn {
        self.last.max(self.header.first)
    }
}

#[cfg(not(counterfoil_loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::PoolOptions;
    use crate::pool::Pool;
    use crate::sync::Arc;

    /// Returns a pool with a never used block.
    fn fresh() -> (Arc<Pool>, BlockRef) {
        let options = PoolOptions { memory_bytes_max: 64 << 10, chunk_bytes: 4096, prefault_bytes: 0, cursors_max: 1 };
        let pool = Pool::volatile(options).unwrap();
        let block = BlockRef::new(pool.geometry.classes[0].region, 0);
        (pool, block)
    }

    #[test]
    fn the_state_of_a_block_is_read_as_it_was_written() {
        let (pool, block) = fresh();
        let read = || read_state(&pool.arena, block.at());
        assert_eq!(read(), (ChunkState::Untouched, 0));
        for generation in 0..3 {
            for state in [ChunkState::Staged, ChunkState::Active] {
                write_state(&pool.arena, block.at(), state);
                assert_eq!(read(), (state, generation));
            }
            write_state(&pool.arena, block.at(), ChunkState::Free);
            assert_eq!(read(), (ChunkState::Free, generation + 1));
        }
        for bit in 32..64 {
            pool.arena.word(block.at() + STATE_AT).store((STATE_MAGIC | FREE | 3) ^ 1 << bit, Ordering::Relaxed);
            assert_eq!(read().0, ChunkState::Damaged, "bit {bit}");
        }
        // A generation without a state.
        pool.arena.word(block.at() + STATE_AT).store(3, Ordering::Relaxed);
        assert_eq!(read(), (ChunkState::Damaged, 3));
    }

    #[test]
    fn a_header_with_a_changed_bit_is_not_read() {
        let (pool, block) = fresh();
        let header = ChunkHeader { lane: Rank(3), sequence: 7, first: Ssn(11), replaces: 5, sparse: true };
        header.write(&pool.arena, block);
        assert_eq!(ChunkHeader::read(&pool.arena, block), Some(header));
        for at in [LANE_AT, SEQUENCE_AT, FIRST_AT, REPLACES_AT, CHECK_AT, SHARED_WRITER_AT] {
            let word = pool.arena.word(block.at() + at);
            let value = word.load(Ordering::Relaxed);
            for bit in 0..64 {
                word.store(value ^ 1 << bit, Ordering::Relaxed);
                assert_eq!(ChunkHeader::read(&pool.arena, block), None, "bit {bit} of the word at {at}");
            }
            word.store(value, Ordering::Relaxed);
        }
        assert_eq!(ChunkHeader::read(&pool.arena, BlockRef::new(block.at(), 1)), None, "a block of another class");
    }
}

//! The single writer of a lane.

use std::collections::VecDeque;

use crate::arena::{Arena, ArenaPtr};
use crate::chunk::{BlockRef, CHUNK_HEADER, ChunkInfo};
use crate::lane::chain::SPARES_MAX;
use crate::lane::claim::Claim;
use crate::lane::cursor::LaneReader;
use crate::lane::runs::RunTable;
use crate::lane::{LaneShared, UNPINNED};
use crate::nouns::{Rank, Ssn};
use crate::pool::{AllocError, Pool};
use crate::record::{BODY_BYTES_MAX, PREFIX_BYTES_MAX, RECORD_ALIGN, footprint};
use crate::sync::{Arc, CountedArc, Ordering};

/// Error of a claim.
///
/// Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// No chunk is available: the budget is used up, the record can never fit, or the system has no memory.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The prefix or the whole body is longer than a record can be.
    #[error(
        "a record of {prefix} + {payload} bytes: a prefix can have {PREFIX_BYTES_MAX}, both together {BODY_BYTES_MAX}"
    )]
    TooLong {
        /// Prefix length in bytes.
        prefix: usize,
        /// Payload length in bytes.
        payload: usize,
    },
    /// The channel has used up its sequence numbers.
    #[error("the lane to {peer} has reached the last sequence number, {}", Ssn::MAX)]
    SsnExhausted {
        /// The destination.
        peer: Rank,
    },
}

/// The single writer of a lane: claims, acknowledges, frees.
///
/// Claiming and committing a record within the current chunk takes no lock, no system call and no allocation; it costs
/// two stores more than writing the same bytes into a buffer.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct LaneWriter {
    /// The next record's place, in the arena of `cold.pool`, which keeps it alive.
    ///
    /// A multiple of [`RECORD_ALIGN`] from the beginning of the arena; never after `limit`.
    pub(super) at: ArenaPtr,
    /// End of the current chunk, less [`RECORD_ALIGN`] bytes for the zero after each record; `at` where no claim may be
    /// made.
    ///
    /// In a lane without a chunk both are the beginning of the arena.
    pub(super) limit: ArenaPtr,
    pub(super) next: Ssn,
    pub(super) acked: Ssn,
    /// Last SSN in the first sealed, unsettled chunk: an acknowledgement below it settles no chunk.
    ///
    /// [`UNPINNED`] if there is no such chunk.
    pub(super) boundary: u64,
    /// All other fields.
    pub(super) cold: Box<Cold>,
}

// One cache line: a lane table has a line for each rank, and the message path touches no other.
#[cfg(not(counterfoil_loom))]
const _: () = assert!(size_of::<LaneWriter>() == 64 && size_of::<Option<LaneWriter>>() == 64);

/// Writer fields not on the path of a message fitting its chunk.
#[derive(Debug)]
pub(super) struct Cold {
    pub(super) runs: RunTable,
    pub(super) pool: Arc<Pool>,
    pub(super) shared: CountedArc<LaneShared>,
    /// The chain, oldest first; the last one is being written.
    pub(super) chunks: VecDeque<ChunkInfo>,
    pub(super) next_sequence: u64,
    /// Unlinked blocks that may still be read, each with its [`ChunkInfo::pinned_upto`].
    pub(super) retired: VecDeque<(BlockRef, Ssn)>,
    /// Evicted chunks' blocks that a cursor may be in, each with the chunk's first SSN and its
    /// [`ChunkInfo::pinned_upto`].
    pub(super) evicted: Vec<(BlockRef, Ssn, Ssn)>,
    /// Just freed ordinary chunks, to be used next without a detour through the pool: its exchanges would wait for all
    /// stores still on their way to the cache.
    pub(super) spares: Vec<BlockRef>,
    /// Number of settled chunks at the front.
    pub(super) settled: usize,
    /// The next ordinary chunk's class: lanes start small.
    pub(super) next_class: usize,
    /// Progress of a rolled-back rank through its earlier messages.
    pub(super) rewound: Option<super::rollback::Rewound>,
    /// True once records were evicted to disk: their runs are kept.
    pub(super) keeps_runs: bool,
    /// Record bytes in all chunks ever sealed.
    pub(super) sealed_bytes: u64,
}

impl LaneWriter {
    /// Makes an empty lane to `peer`.
    ///
    /// It takes no chunk before the first claim.
    pub fn new(pool: Arc<Pool>, peer: Rank) -> LaneWriter {
        let shared = CountedArc::new(LaneShared::new(peer, pool.options().cursors_max));
        let next_class = pool.register(&shared);
        // SAFETY: the beginning of the arena is inside it; the place goes with the pool, in the same struct.
        let nowhere = unsafe { pool.arena.place(0) };
        LaneWriter {
            at: nowhere,
            limit: nowhere,
            next: Ssn::FIRST,
            acked: Ssn::ZERO,
            boundary: UNPINNED,
            cold: Box::new(Cold {
                runs: RunTable::default(),
                pool,
                shared,
                chunks: VecDeque::new(),
                next_sequence: 1,
                retired: VecDeque::new(),
                evicted: Vec::new(),
                spares: Vec::with_capacity(SPARES_MAX),
                settled: 0,
                next_class,
                rewound: None,
                keeps_runs: false,
                sealed_bytes: 0,
            }),
        }
    }

    /// Makes the writer of a lane found and linked by a recovery in a dead process's file.
    #[cfg(not(counterfoil_loom))]
    pub(crate) fn recovered(pool: Arc<Pool>, lane: crate::recovered_lane::RecoveredLane) -> LaneWriter {
        let mut writer = LaneWriter::new(pool, lane.peer);
        let (Some(front), Some(back)) = (lane.chunks.front(), lane.chunks.back()) else { return writer };
        let held = lane.chunks.iter().map(|chunk| writer.cold.pool.block_bytes(chunk.block)).sum();
        writer.cold.shared.held.store(held, Ordering::Relaxed);
        writer.cold.shared.floor.store(front.header.first.0, Ordering::Relaxed);
        writer.cold.shared.head.store(front.block.0, Ordering::Release);
        writer.move_to(back.block, lane.at);
        writer.next = lane.next;
        writer.cold.next_sequence = back.header.sequence + 1;
        writer.cold.next_class = writer.cold.pool.geometry.chunk_class;
        writer.cold.sealed_bytes = lane.chunks.iter().rev().skip(1).map(|chunk| chunk.record_bytes as u64).sum();
        writer.cold.chunks = lane.chunks;
        if let Some(current) = writer.cold.chunks.back_mut() {
            current.record_bytes = 0;
        }
        writer.set_boundary();
        writer
    }

    /// Returns the destination.
    pub fn peer(&self) -> Rank {
        self.cold.shared.peer()
    }

    /// Returns the next record's SSN.
    #[inline]
    pub fn next_ssn(&self) -> Ssn {
        self.next
    }

    /// Returns the highest acknowledged SSN.
    #[inline]
    pub fn acked(&self) -> Ssn {
        self.acked
    }

    /// Returns the lowest SSN kept in memory by the lane, or its next one if it keeps none.
    pub fn kept_from(&self) -> Ssn {
        self.cold.chunks.front().map_or(self.next, |chunk| chunk.header.first)
    }

    /// Returns the memory taken by the lane's chunks, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.cold.shared.held_bytes()
    }

    /// Returns the bytes of records and pads, headers included, ever written to this lane.
    pub fn appended_bytes(&self) -> u64 {
        let current = self.cold.chunks.back().map_or(0, |chunk| self.offset() - chunk.block.at() - CHUNK_HEADER);
        self.cold.sealed_bytes + current as u64
    }

    /// Returns a handle for threads reading concurrently with this writer.
    pub fn reader(&self) -> LaneReader {
        LaneReader::new(self.cold.pool.clone(), self.cold.shared.clone())
    }

    /// Reserves a record of `prefix` + `payload` bytes, to be filled and committed.
    ///
    /// The prefix is opaque to the log (a wire header, say) and precedes the payload without a gap. Dropping the claim
    /// leaves a pad, skipped by readers; the next claim gets the same SSN.
    ///
    /// # Errors
    /// [`AppendError`]; nothing is changed then.
    #[inline]
    pub fn claim(&mut self, prefix: usize, payload: usize) -> Result<Claim<'_>, AppendError> {
        if !self.has_room(prefix, payload) {
            self.begin_chunk_for(prefix, payload)?;
        }
        // SAFETY: the chunk has room: checked above, or begun for this size.
        Ok(unsafe { Claim::new(self, prefix, prefix + payload) })
    }

    /// Returns `true` if the current chunk has room for a claim of this size.
    #[inline]
    pub fn has_room(&self, prefix: usize, payload: usize) -> bool {
        let room = self.at.bytes_until(self.limit);
        // In this order nothing can overflow: the room is at most a chunk.
        prefix <= PREFIX_BYTES_MAX && payload <= room && footprint(prefix + payload) <= room
    }

    /// Makes room for a claim of this size in the current chunk; begins a new chunk if needed.
    ///
    /// # Errors
    /// [`AppendError`]; nothing is changed then.
    #[inline]
    pub fn reserve(&mut self, prefix: usize, payload: usize) -> Result<(), AppendError> {
        if self.has_room(prefix, payload) { Ok(()) } else { self.begin_chunk_for(prefix, payload) }
    }

    #[inline]
    pub(super) fn arena(&self) -> &Arena {
        &self.cold.pool.arena
    }

    /// Checks the limits and begins a chunk for the record.
    #[cold]
    #[inline(never)]
    fn begin_chunk_for(&mut self, prefix: usize, payload: usize) -> Result<(), AppendError> {
        let too_long = AppendError::TooLong { prefix, payload };
        let Some(body) = prefix.checked_add(payload) else { return Err(too_long) };
        if prefix > PREFIX_BYTES_MAX || body > BODY_BYTES_MAX {
            return Err(too_long);
        }
        // A chunk has room for fewer than 2^32 records, so this check keeps every SSN under the limit.
        if self.next.0 > Ssn::MAX.0 - (1 << 32) {
            return Err(AppendError::SsnExhausted { peer: self.peer() });
        }
        self.begin_chunk(CHUNK_HEADER + footprint(body) + RECORD_ALIGN, self.next, false)?;
        Ok(())
    }

    /// Moves the next record's place to `at` in `block`.
    ///
    /// # Panics
    /// If no record in the block can begin or end there. Claims write from there to the block's end without a check.
    pub(super) fn move_to(&mut self, block: BlockRef, at: usize) {
        let end = block.at() + self.cold.pool.block_bytes(block);
        let limit = end - RECORD_ALIGN;
        let is_place = at.is_multiple_of(RECORD_ALIGN) && (block.at() + CHUNK_HEADER..=limit).contains(&at);
        assert!(is_place && end <= self.arena().len(), "a record outside its chunk");
        // SAFETY: both are inside the arena, as checked above. The places go with the pool, in the same struct.
        (self.at, self.limit) = unsafe { (self.arena().place(at), self.arena().place(limit)) };
    }

    /// Leaves the current chunk: the next record begins another.
    pub(super) fn leave_chunk(&mut self) {
        self.limit = self.at;
    }

    /// Returns the next record's offset.
    fn offset(&self) -> usize {
        self.arena().offset_of(self.at)
    }

    /// Counts a dropped claim's pad of `bytes`, header included, in the current chunk.
    #[cold]
    #[inline(never)]
    pub(super) fn count_pad(&mut self, bytes: usize) {
        if let Some(current) = self.cold.chunks.back_mut() {
            current.pad_bytes += bytes;
        }
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        // A process-crash-safe log outlives its writer: no block is freed. Otherwise the blocks go back to the pool,
        // unless a cursor is open: then they are freed with the arena.
        if self.cold.pool.survives_process() {
            return;
        }
        let chunks: Vec<(BlockRef, Ssn)> = self
            .cold
            .retired
            .drain(..)
            .chain(self.cold.evicted.drain(..).map(|(block, _, pinned_upto)| (block, pinned_upto)))
            .chain(self.cold.chunks.drain(..).map(|chunk| (chunk.block, Ssn::MAX)))
            .collect();
        self.cold.shared.head.store(0, Ordering::Release);
        if self.lowest_pin() == UNPINNED {
            chunks.into_iter().for_each(|(block, _)| self.give_back(block));
        }
        self.drain_spares();
    }
}

#[cfg(all(test, not(counterfoil_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::options::PoolOptions;

    #[test]
    fn a_place_where_no_record_of_the_chunk_can_begin_is_refused() {
        let options = PoolOptions { memory_bytes_max: 64 << 10, chunk_bytes: 4096, prefault_bytes: 0, cursors_max: 1 };
        let mut lane = LaneWriter::new(Pool::volatile(options).unwrap(), Rank(1));
        lane.claim(0, 100).unwrap().commit();
        let block = lane.cold.chunks[0].block;
        let (first, limit) = (block.at() + CHUNK_HEADER, block.at() + 4096 - RECORD_ALIGN);
        let outside = BlockRef::new(lane.arena().len(), block.class());
        let mut moves = |block, at| catch_unwind(AssertUnwindSafe(|| lane.move_to(block, at))).is_ok();
        assert!(moves(block, limit) && moves(block, first));
        for at in [0, first - RECORD_ALIGN, first + 8, limit + RECORD_ALIGN, usize::MAX & !(RECORD_ALIGN - 1)] {
            assert!(!moves(block, at), "{at} in the chunk at {}", block.at());
        }
        assert!(!moves(outside, outside.at() + CHUNK_HEADER));
        assert_eq!(lane.offset(), first);
    }
}

//! The single writer of a lane.

use std::collections::VecDeque;

use crate::arena::{Arena, Place};
use crate::chunk::{BlockRef, CHUNK_HEADER, ChunkHeader, ChunkState, NEXT_AT, write_end, write_state};
use crate::lane::claim::Claim;
use crate::lane::cursor::LaneReader;
use crate::lane::runs::RunTable;
use crate::lane::{LaneShared, UNPINNED};
use crate::nouns::{Rank, Ssn};
use crate::pool::{AllocError, Pool};
use crate::record::{BODY_BYTES_MAX, END_WORD, PREFIX_BYTES_MAX, RECORD_ALIGN, footprint};
use crate::sync::{Arc, CountedArc, Ordering, fence};

/// Why a claim was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// No chunk can be had: the budget is used up, the record can never fit, or the system has no memory.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The prefix or the whole body is longer than a record can be.
    #[error(
        "a record of {prefix} + {payload} bytes: a prefix can have {PREFIX_BYTES_MAX}, both together {BODY_BYTES_MAX}"
    )]
    TooLong {
        /// Bytes of prefix.
        prefix: usize,
        /// Bytes of payload.
        payload: usize,
    },
    /// The channel has used up its sequence numbers.
    #[error("the lane to {peer} has reached the last sequence number, {}", Ssn::MAX)]
    SsnExhausted {
        /// The destination.
        peer: Rank,
    },
}

/// Ordinary chunks that a lane keeps for itself when it frees them.
const SPARES_MAX: usize = 2;

/// A chunk of a lane, as its writer knows it.
#[derive(Clone, Debug)]
pub(crate) struct ChunkInfo {
    pub(crate) block: BlockRef,
    pub(crate) header: ChunkHeader,
    /// SSN of the last record; only meaningful once the chunk is sealed.
    pub(crate) last: Ssn,
    /// Bytes of records and pads; only meaningful once the chunk is sealed.
    pub(crate) record_bytes: usize,
    /// Bytes of pads among them, counted as they are written.
    pub(crate) pad_bytes: usize,
}

impl ChunkInfo {
    /// A cursor with a pin up to this SSN may be in the chunk. An empty chunk ends before it begins.
    pub(super) fn pinned_by(&self) -> Ssn {
        self.last.max(self.header.first)
    }
}

/// The single writer of a lane: claims, acknowledges, frees.
///
/// Claiming and committing a record that fits the current chunk takes no lock, no system call and no allocation; it
/// costs two stores more than writing the same bytes into a buffer.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct LaneWriter {
    /// Where the next record will be, in the arena of `cold.pool`, which keeps it alive.
    pub(super) at: Place,
    /// End of the current chunk, less the room for the zero that follows each record.
    pub(super) limit: Place,
    pub(super) next: Ssn,
    pub(super) acked: Ssn,
    /// Last SSN of the first sealed chunk that is not settled: an acknowledgement below has nothing to do for chunks.
    /// [`UNPINNED`] where no such chunk is sealed.
    pub(super) boundary: u64,
    /// Everything else.
    pub(super) cold: Box<Cold>,
}

// One cache line: a table of lanes then has a line for each rank, and the path of a message touches no other.
#[cfg(not(counterfoil_loom))]
const _: () = assert!(size_of::<LaneWriter>() == 64 && size_of::<Option<LaneWriter>>() == 64);

/// The part of a lane's writer that is not on the path of a message that fits its chunk.
#[derive(Debug)]
pub(super) struct Cold {
    pub(super) runs: RunTable,
    pub(super) pool: Arc<Pool>,
    pub(super) shared: CountedArc<LaneShared>,
    /// The chain, oldest first; the last one is being written.
    pub(super) chunks: VecDeque<ChunkInfo>,
    pub(super) next_sequence: u64,
    /// Out of the chain, but a cursor may still be in it: (block, [`ChunkInfo::pinned_by`]).
    pub(super) limbo: VecDeque<(BlockRef, Ssn)>,
    /// Ordinary chunks that were just freed here and will be wanted here next: without a detour through the pool, whose
    /// exchanges would wait for all the copies that are still on their way to the cache.
    pub(super) spares: Vec<BlockRef>,
    /// How many chunks at the front have been settled.
    pub(super) settled: usize,
    /// Class of the next ordinary chunk: lanes start small.
    pub(super) next_class: usize,
    /// Where a rank that rolled back is in what it had already sent.
    pub(super) rewound: Option<super::rollback::Rewound>,
    /// Records that are no longer in memory are kept elsewhere, and so are their runs.
    pub(super) keeps_runs: bool,
    /// Bytes of records in sealed chunks, since the lane was made.
    pub(super) sealed_bytes: u64,
}

impl LaneWriter {
    /// An empty lane to `peer`. It takes no chunk before the first claim.
    pub fn new(pool: Arc<Pool>, peer: Rank) -> LaneWriter {
        let shared = CountedArc::new(LaneShared::new(peer, pool.options().cursors_max));
        pool.register(&shared);
        // SAFETY: the place goes with the pool, in the same struct.
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
                limbo: VecDeque::new(),
                spares: Vec::with_capacity(SPARES_MAX),
                settled: 0,
                next_class: 0,
                rewound: None,
                keeps_runs: false,
                sealed_bytes: 0,
            }),
        }
    }

    /// A lane that a recovery found in a dead process's file.
    #[cfg(not(counterfoil_loom))]
    pub(crate) fn recovered(pool: Arc<Pool>, lane: crate::recovered_lane::RecoveredLane) -> LaneWriter {
        crate::recovered_lane::relink(&pool, &lane);
        let mut writer = LaneWriter::new(pool, lane.peer);
        let (Some(front), Some(back)) = (lane.chunks.front(), lane.chunks.back()) else { return writer };
        let held = lane.chunks.iter().map(|chunk| writer.cold.pool.block_bytes(chunk.block)).sum();
        writer.cold.shared.held.store(held, Ordering::Relaxed);
        writer.cold.shared.floor.store(front.header.first.0, Ordering::Relaxed);
        writer.cold.shared.head.store(front.block.0, Ordering::Release);
        writer.go_to(back.block, lane.at);
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

    /// The destination.
    pub fn peer(&self) -> Rank {
        self.cold.shared.peer()
    }

    /// The SSN of the next record.
    #[inline]
    pub fn next_ssn(&self) -> Ssn {
        self.next
    }

    /// The highest SSN that was acknowledged.
    #[inline]
    pub fn acked(&self) -> Ssn {
        self.acked
    }

    /// The lowest SSN that the lane keeps, or its next one where it keeps none.
    pub fn kept_from(&self) -> Ssn {
        self.cold.chunks.front().map_or(self.next, |chunk| chunk.header.first)
    }

    /// Bytes of memory that the lane's chunks take.
    pub fn held_bytes(&self) -> usize {
        self.cold.shared.held_bytes()
    }

    /// Bytes of records (headers included) that were ever committed or padded in this lane.
    pub fn appended_bytes(&self) -> u64 {
        let current = self.cold.chunks.back().map_or(0, |chunk| self.offset() - chunk.block.at() - CHUNK_HEADER);
        self.cold.sealed_bytes + current as u64
    }

    /// A handle for threads that read beside this writer.
    pub fn reader(&self) -> LaneReader {
        LaneReader::new(self.cold.pool.clone(), self.cold.shared.clone())
    }

    /// Reserves a record of `prefix` + `payload` bytes, to be filled and committed.
    ///
    /// The prefix is opaque to the log (a wire header, say) and stands in front of the payload without a gap. Dropping
    /// the claim leaves a pad that readers skip, and its SSN to the next claim.
    ///
    /// # Errors
    /// [`AppendError`]; nothing is changed then.
    #[inline]
    pub fn claim(&mut self, prefix: usize, payload: usize) -> Result<Claim<'_>, AppendError> {
        if !self.has_room(prefix, payload) {
            self.make_room(prefix, payload)?;
        }
        Ok(Claim::new(self, prefix, prefix + payload))
    }

    /// Whether a claim of this size would be answered from the current chunk.
    #[inline]
    pub fn has_room(&self, prefix: usize, payload: usize) -> bool {
        let room = self.at.bytes_until(self.limit);
        // In this order nothing can overflow: the room is at most a chunk.
        prefix <= PREFIX_BYTES_MAX && payload <= room && footprint(prefix + payload) <= room
    }

    /// Makes sure that a claim of this size is answered from the current chunk, beginning a new one where needed.
    ///
    /// # Errors
    /// [`AppendError`]; nothing is changed then.
    #[inline]
    pub fn reserve(&mut self, prefix: usize, payload: usize) -> Result<(), AppendError> {
        if self.has_room(prefix, payload) { Ok(()) } else { self.make_room(prefix, payload) }
    }

    #[inline]
    pub(super) fn arena(&self) -> &Arena {
        &self.cold.pool.arena
    }

    /// Checks the limits and begins a chunk that holds the record.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, prefix: usize, payload: usize) -> Result<(), AppendError> {
        let too_long = AppendError::TooLong { prefix, payload };
        let Some(body) = prefix.checked_add(payload) else { return Err(too_long) };
        if prefix > PREFIX_BYTES_MAX || body > BODY_BYTES_MAX {
            return Err(too_long);
        }
        // A chunk has room for fewer than 2^32 records, so that checking here keeps every SSN under the limit.
        if self.next.0 > Ssn::MAX.0 - (1 << 32) {
            return Err(AppendError::SsnExhausted { peer: self.peer() });
        }
        self.begin_chunk(CHUNK_HEADER + footprint(body) + RECORD_ALIGN, self.next, false)?;
        Ok(())
    }

    /// Makes a chunk of at least `bytes` the current one; its first record will be `first`.
    pub(super) fn begin_chunk(&mut self, bytes: usize, first: Ssn, sparse: bool) -> Result<(), AllocError> {
        // A lane that fills its chunks gets larger ones: memory grows with use, not with the number of peers.
        let (ordinary, geometry) = (self.cold.pool.geometry.chunk_class, &self.cold.pool.geometry);
        let class = geometry.class_for(bytes).map_or(usize::MAX, |fits| fits.max(self.cold.next_class));
        let block = match self.cold.spares.pop() {
            Some(spare) if class == ordinary => spare,
            other => {
                self.cold.spares.extend(other);
                let block =
                    if class <= ordinary { self.cold.pool.take(class)? } else { self.cold.pool.take_for(bytes)? };
                self.count_held(self.cold.pool.block_bytes(block) as isize);
                block
            }
        };
        self.cold.next_class = (class.min(ordinary) + 1).min(ordinary);
        let sequence = self.cold.next_sequence;
        self.cold.next_sequence += 1;
        let header = ChunkHeader { lane: self.peer(), sequence, first, replaces: sequence, sparse };
        header.write(self.arena(), block);
        write_state(self.arena(), block.at(), ChunkState::Active);
        let is_first = self.cold.chunks.is_empty();
        if !is_first {
            self.seal(block);
        }
        self.cold.chunks.push_back(ChunkInfo { block, header, last: Ssn::ZERO, record_bytes: 0, pad_bytes: 0 });
        if is_first {
            self.publish_front();
        }
        self.set_boundary();
        self.go_to(block, block.at() + CHUNK_HEADER);
        Ok(())
    }

    /// Goes on at `at` in `block`.
    pub(super) fn go_to(&mut self, block: BlockRef, at: usize) {
        let limit = block.at() + self.cold.pool.block_bytes(block) - RECORD_ALIGN;
        // SAFETY: the places go with the pool, in the same struct.
        (self.at, self.limit) = unsafe { (self.arena().place(at), self.arena().place(limit)) };
    }

    /// Goes on nowhere: the next record begins a chunk.
    pub(super) fn go_nowhere(&mut self) {
        self.limit = self.at;
    }

    /// Where the next record will be.
    fn offset(&self) -> usize {
        self.arena().offset_of(self.at)
    }

    /// A claim of `bytes`, with its header, was given up in the current chunk.
    #[cold]
    #[inline(never)]
    pub(super) fn note_pad(&mut self, bytes: usize) {
        if let Some(current) = self.cold.chunks.back_mut() {
            current.pad_bytes += bytes;
        }
    }

    /// Ends the current chunk, linking it to `next`.
    fn seal(&mut self, next: BlockRef) {
        let last = self.next.prev();
        let Some(chunk) = self.cold.chunks.back_mut() else { return };
        let arena = &self.cold.pool.arena;
        chunk.record_bytes = arena.offset_of(self.at) - chunk.block.at() - CHUNK_HEADER;
        // A chunk that was begun and got no record (only pads, or truncated) keeps the SSN before its first.
        chunk.last = last;
        self.cold.sealed_bytes += chunk.record_bytes as u64;
        arena.word(chunk.block.at() + NEXT_AT).store(next.0, Ordering::Release);
        write_end(arena, chunk.block.at(), last, chunk.record_bytes, chunk.pad_bytes);
        // Release: whoever sees the end sees the link.
        self.at.word(0).store(END_WORD, Ordering::Release);
    }

    /// Finds the next chunk that acknowledgements will settle.
    pub(super) fn set_boundary(&mut self) {
        let sealed = self.cold.settled + 1 < self.cold.chunks.len();
        self.boundary =
            self.cold.chunks.get(self.cold.settled).filter(|_| sealed).map_or(UNPINNED, |chunk| chunk.last.0);
    }

    /// Takes the first `count` chunks out of the chain, and gives back what no cursor needs.
    pub(super) fn unlink_front(&mut self, count: usize) {
        debug_assert!(count < self.cold.chunks.len(), "the current chunk stays");
        for _ in 0..count {
            if let Some(chunk) = self.cold.chunks.pop_front() {
                self.retire(&chunk);
            }
        }
        self.publish_front();
        self.cold.settled = self.cold.settled.saturating_sub(count);
        self.set_boundary();
        self.reclaim();
    }

    /// Shows the chain as it begins now to cursors that are opened from here on.
    pub(super) fn publish_front(&self) {
        let front = self.cold.chunks.front();
        // Without a chunk it is the next record that comes first: what was before may be kept elsewhere.
        self.cold.shared.floor.store(self.kept_from().0, Ordering::Relaxed);
        // Release: a cursor that sees the head sees the header and the floor.
        self.cold.shared.head.store(front.map_or(0, |chunk| chunk.block.0), Ordering::Release);
    }

    /// The lowest SSN that any cursor may need, after a new head and floor were published.
    ///
    /// Where nobody else has a handle on the lane there is no cursor and nobody to open one: then there is nothing to
    /// order, and the fence, which would wait for every store on its way, is left out.
    pub(super) fn lowest_pin(&self) -> u64 {
        if CountedArc::strong_count(&self.cold.shared) == 1 {
            // Acquire: pairs with the release with which the last handle was dropped, and so with its last reads.
            fence(Ordering::Acquire);
            return UNPINNED;
        }
        self.cold.shared.lowest_pin()
    }

    /// Puts a chunk that was taken out of the chain aside, until no cursor can be in it.
    ///
    /// To a recovery it is free from now on: cursors of this process die with it.
    pub(super) fn retire(&mut self, chunk: &ChunkInfo) {
        write_state(self.arena(), chunk.block.at(), ChunkState::Free);
        self.cold.limbo.push_back((chunk.block, chunk.pinned_by()));
    }

    /// Gives the chunks in limbo that no cursor needs back to the pool.
    pub(super) fn reclaim(&mut self) {
        let pinned = self.lowest_pin();
        while let Some(&(block, pinned_by)) = self.cold.limbo.front() {
            if pinned_by.0 >= pinned {
                break;
            }
            self.cold.limbo.pop_front();
            self.give_back(block);
        }
    }

    /// A chunk that nobody needs any more: the next one here, or the pool's.
    pub(super) fn give_back(&mut self, block: BlockRef) {
        if block.class() == self.cold.pool.geometry.chunk_class && self.cold.spares.len() < SPARES_MAX {
            write_state(self.arena(), block.at(), ChunkState::Free);
            self.cold.spares.push(block);
        } else {
            self.count_held(-(self.cold.pool.block_bytes(block) as isize));
            self.cold.pool.give_back(block);
        }
    }

    /// Gives back to the pool what the lane doesn't need: the chunks that it kept for itself, and those that a cursor has
    /// left since. Without this, memory that was acknowledged while a cursor was in it waits for the next acknowledgement.
    pub fn give_spares_back(&mut self) {
        self.free_left();
        self.empty_spares();
    }

    /// Gives the chunks that the lane kept for itself back to the pool: somebody else needs the memory.
    pub(super) fn empty_spares(&mut self) {
        while let Some(block) = self.cold.spares.pop() {
            self.count_held(-(self.cold.pool.block_bytes(block) as isize));
            self.cold.pool.give_back(block);
        }
    }

    /// Only this writer changes the count, so a load and a store do.
    pub(super) fn count_held(&self, bytes: isize) {
        let held = self.cold.shared.held.load(Ordering::Relaxed);
        self.cold.shared.held.store(held.wrapping_add_signed(bytes), Ordering::Relaxed);
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        // A log that must outlive its process outlives its writer: nothing is given back. Elsewhere the pool gets its
        // blocks again, unless a cursor is still open: then they go with the arena.
        if self.cold.pool.survives_process() {
            return;
        }
        let chunks: Vec<(BlockRef, Ssn)> =
            self.cold.limbo.drain(..).chain(self.cold.chunks.drain(..).map(|chunk| (chunk.block, Ssn::MAX))).collect();
        self.cold.shared.head.store(0, Ordering::Release);
        if self.lowest_pin() == UNPINNED {
            chunks.into_iter().for_each(|(block, _)| self.give_back(block));
        }
        self.empty_spares();
    }
}

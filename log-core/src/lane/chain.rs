//! The chunks of a lane: how they are begun, linked, taken out of the chain and given back.

use crate::chunk::{BlockRef, CHUNK_HEADER, ChunkHeader, ChunkState, NEXT_AT, write_end, write_state};
use crate::lane::UNPINNED;
use crate::lane::writer::LaneWriter;
use crate::nouns::Ssn;
use crate::pool::AllocError;
use crate::record::END_WORD;
use crate::sync::{CountedArc, Ordering, fence};

/// Ordinary chunks that a lane keeps for itself when it frees them.
pub(super) const SPARES_MAX: usize = 2;

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

impl LaneWriter {
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

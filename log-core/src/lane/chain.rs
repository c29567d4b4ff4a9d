//! Chunk chain of a lane: begin, seal, link, unlink and free.

use crate::chunk::{BlockRef, CHUNK_HEADER, ChunkHeader, ChunkInfo, ChunkState, NEXT_AT, write_end, write_state};
use crate::lane::UNPINNED;
use crate::lane::writer::LaneWriter;
use crate::nouns::Ssn;
use crate::pool::AllocError;
use crate::record::END_WORD;
use crate::sync::{CountedArc, Ordering, fence};

/// Number of freed ordinary chunks kept by a lane for itself.
pub(super) const SPARES_MAX: usize = 2;

impl LaneWriter {
    /// Begins a chunk of at least `bytes` as the current one; its first record will be `first`.
    pub(super) fn begin_chunk(&mut self, bytes: usize, first: Ssn, sparse: bool) -> Result<(), AllocError> {
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
        // Memory grows with use: larger chunks, but smaller ones where large records leave them half empty.
        self.cold.next_class = match self.cold.chunks.back() {
            Some(current) if class > ordinary && self.is_half_empty(current) => self.cold.next_class.saturating_sub(1),
            _ => (class + 1).min(ordinary),
        };
        self.begin_chunk_in(block, first, sparse);
        Ok(())
    }

    /// Begins a smallest-class chunk, and lets the lane grow from there again.
    ///
    /// If the budget is used up, the chunk takes memory beyond it, since memory is about to be freed
    /// ([`Pool::take_in_place`](crate::pool::Pool::take_in_place)).
    pub(super) fn begin_smallest_chunk(&mut self, first: Ssn, sparse: bool) -> Result<(), AllocError> {
        self.drain_spares();
        let block = self.cold.pool.take_in_place()?;
        self.count_held(self.cold.pool.block_bytes(block) as isize);
        self.cold.next_class = self.cold.pool.geometry.chunk_class.min(1);
        self.begin_chunk_in(block, first, sparse);
        Ok(())
    }

    /// Begins a chunk in `block` as the current one; its first record will be `first`.
    fn begin_chunk_in(&mut self, block: BlockRef, first: Ssn, sparse: bool) {
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
        self.move_to(block, block.at() + CHUNK_HEADER);
    }

    /// Returns `true` if the current chunk is less than half used.
    fn is_half_empty(&self, current: &ChunkInfo) -> bool {
        let used = self.arena().offset_of(self.at) - current.block.at();
        used < self.cold.pool.block_bytes(current.block) / 2
    }

    /// Seals the current chunk and links it to `next`.
    fn seal(&mut self, next: BlockRef) {
        let last = self.next.prev();
        let Some(chunk) = self.cold.chunks.back_mut() else { return };
        let arena = &self.cold.pool.arena;
        chunk.record_bytes = arena.offset_of(self.at) - chunk.block.at() - CHUNK_HEADER;
        // A chunk without a record (it has only pads, or was truncated) gets the SSN before its first.
        chunk.last = last;
        self.cold.sealed_bytes += chunk.record_bytes as u64;
        arena.word(chunk.block.at() + NEXT_AT).store(next.0, Ordering::Release);
        // Release: a reader seeing the end word sees the link. Before `write_end`: an image includes the end word, and
        // its reader has synchronised only with the store of `last` in there. SAFETY: `at` is not after the current
        // chunk's `limit`, from where the chunk has `RECORD_ALIGN` more bytes; `at` is a multiple of it.
        let end_word = unsafe { self.at.word(0) };
        end_word.store(END_WORD, Ordering::Release);
        write_end(arena, chunk.block.at(), last, chunk.record_bytes, chunk.pad_bytes);
    }

    /// Sets the boundary to the end of the next chunk to be settled by acknowledgements.
    pub(super) fn set_boundary(&mut self) {
        let sealed = self.cold.settled + 1 < self.cold.chunks.len();
        self.boundary =
            self.cold.chunks.get(self.cold.settled).filter(|_| sealed).map_or(UNPINNED, |chunk| chunk.last.0);
    }

    /// Unlinks the first `count` chunks, and frees the ones no cursor needs.
    pub(super) fn unlink_front(&mut self, count: usize) {
        debug_assert!(count < self.cold.chunks.len(), "the current chunk stays");
        for _ in 0..count {
            if let Some(chunk) = self.cold.chunks.pop_front() {
                self.retire(&chunk);
            }
        }
        self.leave_front(count);
    }

    /// Publishes the new first chunk after `count` chunks were taken out before it, and frees what no cursor needs.
    pub(super) fn leave_front(&mut self, count: usize) {
        self.publish_front();
        self.cold.settled = self.cold.settled.saturating_sub(count);
        self.set_boundary();
        self.reclaim();
    }

    /// Publishes the first chunk and the floor to cursors opened from now on.
    pub(super) fn publish_front(&self) {
        let front = self.cold.chunks.front();
        // In a lane without chunks the floor is the next record: earlier ones may be on disk.
        self.cold.shared.floor.store(self.kept_from().0, Ordering::Relaxed);
        // Release: a cursor seeing the head sees the header and the floor.
        self.cold.shared.head.store(front.map_or(0, |chunk| chunk.block.0), Ordering::Release);
    }

    /// Returns the lowest SSN any cursor may need, after a new head and floor were published.
    ///
    /// If the writer has the only handle on the lane, there is no cursor and none can be opened: nothing needs an
    /// order, and the fence is left out, as it would wait for every pending store.
    pub(super) fn lowest_pin(&self) -> u64 {
        if CountedArc::strong_count(&self.cold.shared) == 1 {
            // Acquire: pairs with the release in the last handle's drop, and so with its last reads.
            fence(Ordering::Acquire);
            return UNPINNED;
        }
        self.cold.shared.lowest_pin()
    }

    /// Sets an unlinked chunk aside until no cursor can be in it.
    ///
    /// To a recovery it is free from now on, since this process's cursors die with it.
    pub(super) fn retire(&mut self, chunk: &ChunkInfo) {
        write_state(self.arena(), chunk.block.at(), ChunkState::Free);
        self.cold.retired.push_back((chunk.block, chunk.pinned_upto()));
    }

    /// Frees the retired and evicted chunks no longer needed by a cursor.
    pub(super) fn reclaim(&mut self) {
        let pinned = self.lowest_pin();
        while let Some(&(block, pinned_upto)) = self.cold.retired.front() {
            if pinned_upto.0 >= pinned {
                break;
            }
            self.cold.retired.pop_front();
            self.give_back(block);
        }
        self.reclaim_evicted(pinned);
    }

    /// Frees a chunk not needed by a cursor: it becomes a spare of the lane, or goes back to the pool.
    pub(super) fn give_back(&mut self, block: BlockRef) {
        if block.class() == self.cold.pool.geometry.chunk_class && self.cold.spares.len() < SPARES_MAX {
            write_state(self.arena(), block.at(), ChunkState::Free);
            self.cold.spares.push(block);
        } else {
            self.count_held(-(self.cold.pool.block_bytes(block) as isize));
            self.cold.pool.give_back(block);
        }
    }

    /// Returns unused memory to the pool: the lane's spare chunks, and chunks left by a cursor since their
    /// acknowledgement.
    ///
    /// Otherwise the latter wait for the next acknowledgement.
    pub fn return_spares(&mut self) {
        self.free_unpinned();
        self.drain_spares();
    }

    /// Returns the lane's spare chunks to the pool.
    pub(super) fn drain_spares(&mut self) {
        while let Some(block) = self.cold.spares.pop() {
            self.count_held(-(self.cold.pool.block_bytes(block) as isize));
            self.cold.pool.give_back(block);
        }
    }

    /// Adds to the bytes held.
    ///
    /// A load and a store suffice, because only this writer changes the count.
    pub(super) fn count_held(&self, bytes: isize) {
        let held = self.cold.shared.held.load(Ordering::Relaxed);
        self.cold.shared.held.store(held.wrapping_add_signed(bytes), Ordering::Relaxed);
    }
}

//! Lanes with older records on disk: written there and evicted from memory, or found there by a recovery.

use crate::chunk::{ChunkState, write_state};
use crate::lane::UNPINNED;
use crate::lane::acknowledge::ChunkId;
use crate::lane::cursor::{Cursor, CursorError};
use crate::lane::rollback::ImportError;
use crate::lane::runs::Run;
use crate::lane::writer::LaneWriter;
use crate::nouns::Ssn;
use crate::sync::Ordering;

impl LaneWriter {
    /// Resumes a lane from a checkpoint without a record in memory: the next record has SSN `next`, `acked` is the
    /// highest acknowledged SSN, and `runs` are the dispositions.
    ///
    /// # Errors
    /// [`ImportError::OutOfOrder`] if the lane was used, `next` is out of its limits, or `acked` was never sent;
    /// nothing is changed then.
    pub fn resume(&mut self, next: Ssn, acked: Ssn, runs: &[Run]) -> Result<(), ImportError> {
        let unused = self.cold.chunks.is_empty() && self.next == Ssn::FIRST;
        if !unused || !(Ssn::FIRST..Ssn::MAX).contains(&next) || acked >= next {
            return Err(ImportError::OutOfOrder { peer: self.peer(), ssn: next, next: self.next });
        }
        (self.next, self.acked) = (next, acked);
        self.cold.runs.restore(runs);
        self.cold.keeps_runs = true;
        // No chunk in this lane has a lower sequence: no cursor takes itself for overtaken.
        self.cold.shared.evicted.store(1, Ordering::Relaxed);
        // A cursor on spilled records is refused by the floor instead of waiting for the first chunk.
        self.cold.shared.floor.store(next.0, Ordering::Relaxed);
        Ok(())
    }

    /// Evicts the lane's oldest chunk, settled and with its records on disk.
    ///
    /// [`runs`](Self::runs) keeps their dispositions until [`forget_runs_upto`](Self::forget_runs_upto).
    ///
    /// Cursors don't hinder it: at the end of an earlier chunk, a cursor finds itself overtaken, with its next record
    /// on disk. The memory of a cursor's current chunk is reused when the cursor has left it.
    ///
    /// Returns `false` if `chunk` is another chunk.
    pub fn evict(&mut self, chunk: ChunkId) -> bool {
        let is_oldest = self.cold.chunks.front().is_some_and(|front| front.header.sequence == chunk.0);
        if !is_oldest || self.cold.settled == 0 {
            return false;
        }
        self.evict_front();
        true
    }

    /// Iterates over the full, unsettled chunks, oldest first: last SSN and record bytes.
    pub fn unsettled(&self) -> impl Iterator<Item = (Ssn, usize)> + '_ {
        let sealed = self.cold.chunks.len().saturating_sub(1);
        let unsettled = self.cold.chunks.iter().take(sealed).skip(self.cold.settled);
        unsettled.map(|chunk| (chunk.last, chunk.record_bytes))
    }

    /// Evicts the lane's oldest chunk like [`evict`](Self::evict), before it is settled; returns its bytes.
    ///
    /// `None` if it isn't full or has records after `persisted`, the last SSN on disk.
    pub fn evict_unsettled(&mut self, persisted: Ssn) -> Option<usize> {
        let (last, _) = self.unsettled().next().filter(|_| self.cold.settled == 0)?;
        if last > persisted {
            return None;
        }
        let bytes = self.cold.pool.block_bytes(self.cold.chunks.front()?.block);
        self.evict_front();
        Some(bytes)
    }

    /// Unlinks the first chunk, and reuses its memory as soon as no cursor is in it.
    fn evict_front(&mut self) {
        debug_assert!(self.cold.chunks.len() > 1, "the current chunk stays");
        self.cold.keeps_runs = true;
        let Some(front) = self.cold.chunks.pop_front() else { return };
        // Relaxed: the head published below, or the fence before the pins are loaded, orders it.
        self.cold.shared.evicted.store(front.header.sequence, Ordering::Relaxed);
        write_state(self.arena(), front.block.at(), ChunkState::Free);
        self.cold.evicted.push((front.block, front.header.first, front.pinned_upto()));
        self.leave_front(1);
    }

    /// Frees the evicted chunks without a cursor.
    ///
    /// `pinned` is the result of [`lowest_pin`](Self::lowest_pin) after all their evictions.
    pub(super) fn reclaim_evicted(&mut self, pinned: u64) {
        let mut kept = 0;
        // At most one chunk for each cursor stays, and chunks evicted while a cursor was being opened.
        while let Some(&(block, first, pinned_upto)) = self.cold.evicted.get(kept) {
            if pinned != UNPINNED && self.cold.shared.keeps_evicted(first, pinned_upto) {
                kept += 1;
            } else {
                self.cold.evicted.swap_remove(kept);
                self.give_back(block);
            }
        }
    }

    /// Seals the current chunk, if it has `least` bytes of memory, and begins a smallest-class one: the old one can
    /// leave memory then.
    ///
    /// The small one may be beyond the budget, if no other is. Returns `false`, and changes nothing, if the current
    /// chunk is smaller or empty, or if there is no memory.
    pub fn leave_current(&mut self, least: usize) -> bool {
        let smallest = self.cold.pool.geometry.classes[0].bytes;
        let Some(current) = self.cold.chunks.back() else { return false };
        let is_small = self.cold.pool.block_bytes(current.block) < least.max(smallest + 1);
        if is_small || self.next == current.header.first || self.cold.rewound.is_some() {
            return false;
        }
        self.begin_smallest_chunk(self.next, false).is_ok()
    }

    /// Opens a cursor on the first record with SSN `from` or above, like [`LaneReader::open`](crate::LaneReader::open),
    /// but without a walk over the chunks before it: the writer has an index.
    ///
    /// # Errors
    /// See [`LaneReader::open`](crate::LaneReader::open).
    pub fn cursor(&self, from: Ssn) -> Result<Cursor, CursorError> {
        let beyond = self.cold.chunks.partition_point(|chunk| chunk.header.first <= from);
        let chunk = beyond.checked_sub(1).map(|index| self.cold.chunks[index].block);
        // SAFETY: the chunk is in this lane's chain, and is not freed meanwhile: only this writer frees chunks, and it
        // is borrowed.
        unsafe { self.reader().open_from_chunk(from, chunk) }
    }

    /// Forgets the dispositions of records up to `upto`, no longer kept in memory or on disk.
    pub fn forget_runs_upto(&mut self, upto: Ssn) {
        self.cold.runs.forget_before(upto.next());
    }

    /// Forgets the runs of records no longer in memory, unless they may be on disk.
    pub(super) fn forget_old_runs(&mut self) {
        if !self.cold.keeps_runs {
            self.cold.runs.forget_before(self.kept_from());
        }
    }
}

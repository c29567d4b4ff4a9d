//! Lanes whose older records are on disk: written there and evicted from memory, or found there by a recovery.

use crate::lane::acknowledge::ChunkId;
use crate::lane::cursor::{Cursor, CursorError};
use crate::lane::rollback::ImportError;
use crate::lane::runs::Run;
use crate::lane::writer::LaneWriter;
use crate::nouns::Ssn;
use crate::sync::Ordering;

impl LaneWriter {
    /// Resumes a lane from a checkpoint without a record in memory: the next record has SSN `next`, `acked` is the highest
    /// SSN that was acknowledged, and `runs` are the dispositions.
    ///
    /// # Errors
    /// [`ImportError::OutOfOrder`] if the lane was used, `next` is out of its limits, or `acked` was never sent; nothing
    /// is changed then.
    pub fn resume(&mut self, next: Ssn, acked: Ssn, runs: &[Run]) -> Result<(), ImportError> {
        let unused = self.cold.chunks.is_empty() && self.next == Ssn::FIRST;
        if !unused || !(Ssn::FIRST..Ssn::MAX).contains(&next) || acked >= next {
            return Err(ImportError::OutOfOrder { peer: self.peer(), ssn: next, next: self.next });
        }
        (self.next, self.acked) = (next, acked);
        self.cold.runs.restore(runs);
        self.cold.keeps_runs = true;
        self.cold.shared.spilled.store(1, Ordering::Relaxed);
        // A cursor on spilled records is refused by the floor instead of waiting for the first chunk.
        self.cold.shared.floor.store(next.0, Ordering::Relaxed);
        Ok(())
    }

    /// Frees a settled chunk whose records are on disk: as [`free`](Self::free), but [`runs`](Self::runs) keeps their
    /// dispositions until [`forget_runs_upto`](Self::forget_runs_upto).
    pub fn evict(&mut self, chunk: ChunkId) -> bool {
        self.cold.keeps_runs = true;
        self.cold.shared.spilled.store(1, Ordering::Relaxed);
        self.free(chunk)
    }

    /// Iterates over the full chunks that aren't settled, oldest first: last SSN and bytes of records.
    pub fn unsettled(&self) -> impl Iterator<Item = (Ssn, usize)> + '_ {
        let sealed = self.cold.chunks.len().saturating_sub(1);
        let unsettled = self.cold.chunks.iter().take(sealed).skip(self.cold.settled);
        unsettled.map(|chunk| (chunk.last, chunk.record_bytes))
    }

    /// Evicts the lane's oldest chunk before it is settled; returns its bytes. `None` if it isn't full, if records of it are not on disk, where
    /// those up to `persisted` are, or if a cursor keeps its memory.
    pub fn evict_unsettled(&mut self, persisted: Ssn) -> Option<usize> {
        let (last, _) = self.unsettled().next().filter(|_| self.cold.settled == 0)?;
        let front = self.cold.chunks.front()?;
        if last > persisted || front.pinned_upto().0 >= self.lowest_pin() {
            return None;
        }
        let bytes = self.cold.pool.block_bytes(front.block);
        self.cold.keeps_runs = true;
        self.cold.shared.spilled.store(1, Ordering::Relaxed);
        self.unlink_front(1);
        Some(bytes)
    }

    /// Seals the current chunk, if it has `least` bytes of memory, and begins one of the smallest class: the old one can leave memory then.
    /// The small one may be beyond the budget, if no other is. Returns `false`, and changes nothing, if the current chunk is smaller or empty,
    /// or if there is no memory.
    pub fn leave_current(&mut self, least: usize) -> bool {
        let smallest = self.cold.pool.geometry.classes[0].bytes;
        let Some(current) = self.cold.chunks.back() else { return false };
        let is_small = self.cold.pool.block_bytes(current.block) < least.max(smallest + 1);
        if is_small || self.next == current.header.first || self.cold.rewound.is_some() {
            return false;
        }
        self.begin_smallest_chunk(self.next, false).is_ok()
    }

    /// Opens a cursor on the first record with SSN `from` or above, as [`LaneReader::open`](crate::LaneReader::open) does, but
    /// without a walk over the chunks before it: the writer has an index of them.
    ///
    /// # Errors
    /// Those of [`LaneReader::open`](crate::LaneReader::open).
    pub fn cursor(&self, from: Ssn) -> Result<Cursor, CursorError> {
        let beyond = self.cold.chunks.partition_point(|chunk| chunk.header.first <= from);
        let chunk = beyond.checked_sub(1).map(|index| self.cold.chunks[index].block);
        // SAFETY: the chunk is in this lane's chain, and is not freed meanwhile: only this writer frees chunks, and it is borrowed.
        unsafe { self.reader().open_from_chunk(from, chunk) }
    }

    /// Forgets the dispositions of the records up to `upto`, which are no longer kept in memory or on disk.
    pub fn forget_runs_upto(&mut self, upto: Ssn) {
        self.cold.runs.forget_before(upto.next());
    }

    /// Forgets the runs of records that are no longer in memory, unless they may be on disk.
    pub(super) fn forget_old_runs(&mut self) {
        if !self.cold.keeps_runs {
            self.cold.runs.forget_before(self.kept_from());
        }
    }
}

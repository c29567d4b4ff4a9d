//! A lane whose older records are kept elsewhere: written to disk and let go from memory, or found there by a recovery.

use crate::lane::acknowledge::ChunkId;
use crate::lane::cursor::{Cursor, CursorError};
use crate::lane::rollback::ImportError;
use crate::lane::runs::Run;
use crate::lane::writer::LaneWriter;
use crate::nouns::Ssn;
use crate::sync::Ordering;

impl LaneWriter {
    /// Goes on where a checkpoint left the lane, of which none is in memory: the next record has SSN `next`, `acked` is the
    /// highest that was acknowledged, and `runs` say how.
    ///
    /// # Errors
    /// [`ImportError::OutOfOrder`] where the lane was used, `next` is out of its limits, or `acked` was never sent; nothing
    /// is changed then.
    pub fn resume(&mut self, next: Ssn, acked: Ssn, runs: &[Run]) -> Result<(), ImportError> {
        let unused = self.cold.chunks.is_empty() && self.next == Ssn::FIRST;
        if !unused || !(Ssn::FIRST..Ssn::MAX).contains(&next) || acked >= next {
            return Err(ImportError::OutOfOrder { peer: self.peer(), ssn: next, next: self.next });
        }
        (self.next, self.acked) = (next, acked);
        self.cold.runs.restore(runs);
        self.cold.keeps_runs = true;
        self.cold.shared.elsewhere.store(1, Ordering::Relaxed);
        // A cursor on what is elsewhere is refused here, and doesn't wait for the first chunk.
        self.cold.shared.floor.store(next.0, Ordering::Relaxed);
        Ok(())
    }

    /// Frees a settled chunk whose records are kept elsewhere: as [`free`](Self::free), but [`runs`](Self::runs) still
    /// say how they were acknowledged, until [`forget_runs_upto`](Self::forget_runs_upto).
    pub fn free_kept_elsewhere(&mut self, chunk: ChunkId) -> bool {
        self.cold.keeps_runs = true;
        self.cold.shared.elsewhere.store(1, Ordering::Relaxed);
        self.free(chunk)
    }

    /// A cursor on the first record with SSN `from` or above, as [`LaneReader::open`](crate::LaneReader::open) opens it, but
    /// without a walk over the chunks before it: the writer knows where they are.
    ///
    /// # Errors
    /// As there.
    pub fn cursor(&self, from: Ssn) -> Result<Cursor, CursorError> {
        let beyond = self.cold.chunks.partition_point(|chunk| chunk.header.first <= from);
        // Only this writer frees chunks, and it is borrowed.
        let chunk = beyond.checked_sub(1).map(|index| self.cold.chunks[index].block);
        self.reader().open_in(from, chunk)
    }

    /// Forgets how the records up to `upto` were acknowledged: they aren't kept anywhere any more.
    pub fn forget_runs_upto(&mut self, upto: Ssn) {
        self.cold.runs.forget_before(upto.next());
    }

    /// Forgets the runs of what is no longer in memory, unless it is kept elsewhere.
    pub(super) fn forget_old_runs(&mut self) {
        if !self.cold.keeps_runs {
            self.cold.runs.forget_before(self.kept_from());
        }
    }
}

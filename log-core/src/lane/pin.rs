//! What keeps chunks from being reused while somebody reads them.

use crate::lane::{LaneShared, UNPINNED};
use crate::sync::{CountedArc, Ordering};

/// A place among a lane's pins, taken by a cursor, and given up with the last who has it: the cursor itself, or an
/// [image](super::ChunkImage) of a chunk that it passed.
#[derive(Debug)]
pub(super) struct Pin {
    pub(super) shared: CountedArc<LaneShared>,
    pub(super) slot: usize,
}

impl Pin {
    /// Keeps the chunk that begins with this SSN, and all that come after it.
    pub(super) fn set(&mut self, first: u64) {
        // Release: pairs with the acquire in `LaneShared::lowest_pin`.
        self.shared.pins[self.slot].store(first, Ordering::Release);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Release: the last reads happen before the writer sees that nothing is pinned.
        self.shared.pins[self.slot].store(UNPINNED, Ordering::Release);
    }
}

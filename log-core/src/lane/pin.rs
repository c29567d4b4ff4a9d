//! Pins, which keep chunks from being reused while a cursor or an image reads them.

use crate::lane::{LaneShared, UNPINNED};
use crate::sync::{CountedArc, Ordering};

/// A slot among a lane's pins. A cursor takes it, and shares it with the [images](super::ChunkImage) of chunks that it has
/// passed; it is free again when the last of them is dropped.
#[derive(Debug)]
pub(super) struct Pin {
    pub(super) shared: CountedArc<LaneShared>,
    pub(super) slot: usize,
}

impl Pin {
    /// Pins the chunk that begins with this SSN, and all that come after it.
    pub(super) fn set(&mut self, first: u64) {
        // Release: pairs with the acquire in `LaneShared::lowest_pin`.
        self.shared.pins[self.slot].store(first, Ordering::Release);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Release: the last reads happen before the writer sees that the slot is free.
        self.shared.pins[self.slot].store(UNPINNED, Ordering::Release);
    }
}

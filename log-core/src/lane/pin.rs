//! Pins, keeping chunks from being reused while a cursor or an image reads them.

use crate::lane::{KEEPS_EVICTED, LaneShared, UNPINNED};
use crate::sync::{CountedArc, Ordering, fence};

/// A slot among a lane's pins.
///
/// Taken by a cursor, and shared with the [images](super::ChunkImage) of passed chunks; free again when the last of
/// them is dropped.
#[derive(Debug)]
pub(super) struct Pin {
    pub(super) shared: CountedArc<LaneShared>,
    pub(super) slot: usize,
}

impl Pin {
    /// Pin value keeping every chunk.
    pub(super) const EVERYTHING: u64 = KEEPS_EVICTED;

    /// Pins the chunk beginning with this SSN, and all later ones not evicted.
    pub(super) fn set(&mut self, first: u64) {
        self.store(first);
    }

    /// Pins the chunk beginning with this SSN, and all later ones, also evicted ones.
    pub(super) fn keep_evicted(&mut self, first: u64) {
        self.store(first | KEEPS_EVICTED);
    }

    /// Pins everything while a place in the chain is looked for: the chunks on the way must not be reused either.
    pub(super) fn keep_everything(&mut self) {
        self.store(Self::EVERYTHING);
        self.publish();
    }

    /// Orders the pin before the following loads.
    ///
    /// Pairs with the fence in `LaneShared::lowest_pin`. If the writer loaded the pins first and missed this one, then
    /// the head, floor and newest evicted chunk it published before are seen after this call.
    pub(super) fn publish(&self) {
        fence(Ordering::SeqCst);
    }

    fn store(&mut self, pin: u64) {
        // Release: pairs with the acquire in `LaneShared::lowest_pin`.
        self.shared.pins[self.slot].store(pin, Ordering::Release);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Release: the last reads happen before the writer sees the slot free.
        self.shared.pins[self.slot].store(UNPINNED, Ordering::Release);
    }
}

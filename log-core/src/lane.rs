//! Lanes: the records to one destination, in a chain of chunks in SSN order.
//!
//! One [`LaneWriter`] appends, releases and frees; any number of threads read concurrently through [`LaneReader`]s. The
//! writer never waits for a reader: it sets aside chunks an open [`Cursor`] may still need, and returns them to the
//! pool when the cursor has moved on.
//!
//! # The shared words of a lane
//!
//! - a record's commit word.
//!   - Written by: the writer: `0` after each claim, then the word itself on commit or drop
//!   - Read by: cursors, a recovery
//!   - Orderings: `0`: relaxed; word: **release**; read: **acquire**
//!   - Reason: the word publishes the body, the SSN, and the `0` after it
//! - `next` in a chunk's header.
//!   - Written by: the writer, once, before the end word; again when it takes the chunk's successor out of the chain
//!   - Read by: cursors that saw the end word or `last`
//!   - Orderings: **release** / **acquire**
//!   - Reason: publishes the next chunk's header and its first `0`
//! - end word: the commit word after a chunk's last record.
//!   - Written by: the writer, once, after `next` and before the lengths and `last`
//!   - Read by: cursors; images read it without an atomic access, after `last`
//!   - Orderings: **release** / **acquire**
//!   - Reason: publishes the link; no byte after a chunk's header changes once `last` shows it sealed
//! - `last` in a chunk's header.
//!   - Written by: the writer, once, as the last store of sealing
//!   - Read by: cursors looking for an SSN, or taking an image
//!   - Orderings: **release** / **acquire**
//!   - Reason: a sealed chunk can be skipped, or read as an image, without reading its records one by one
//! - lengths in a chunk's header.
//!   - Written by: the writer, once, after the end word and before `last`
//!   - Read by: cursors taking an image, after `last`
//!   - Orderings: relaxed, ordered by `last`
//!   - Reason: the end of the records is known without a walk
//! - `state` in a chunk's header.
//!   - Written by: the writer; the pool
//!   - Read by: a recovery only, after the owner died
//!   - Orderings: **release** / acquire
//!   - Reason: an active chunk has a header; no thread races for it
//! - [`LaneShared::head`].
//!   - Written by: the writer
//!   - Read by: cursors being opened
//!   - Orderings: **release** / **acquire**
//!   - Reason: its chain is complete, and no earlier floor applies to it
//! - [`LaneShared::floor`].
//!   - Written by: the writer, before the head
//!   - Read by: cursors being opened, after the head
//!   - Orderings: relaxed, ordered by the head
//!   - Reason: records below it may be gone
//! - [`LaneShared::pins`].
//!   - Written by: one cursor each
//!   - Read by: the writer, before it frees
//!   - Orderings: store **release**, load **acquire**, and **SeqCst fences** between the store and the first load of
//!     `head` (cursor being opened) or `evicted` (cursor going on), and between the stores of `head`, `floor` and
//!     `evicted` and the loads of the pins (writer)
//!   - Reason: Dekker's handshake: either the writer sees the pin, or the cursor sees the new head and floor, or that
//!     it was overtaken; the release and acquire order a cursor's last read of a chunk before its reuse
//! - `Stack::head` in the pool.
//!   - Written by: writers of all lanes, and a thread committing memory ahead (`Pool::commit_ahead`)
//!   - Read by: the writers
//!   - Orderings: push **release**, pop **acquire**, a tag against ABA
//!   - Reason: a block's old use happens before its new one
//! - [`LaneShared::evicted`].
//!   - Written by: the writer, before the head following evicted records
//!   - Read by: cursors looking for a place in the chain, after the head; cursors at the end of a chunk, after their
//!     fence
//!   - Orderings: relaxed, ordered by the head, or by the fences of the pins
//!   - Reason: missing records are on disk, not released; the chunks after a cursor's own may be reused
//! - [`LaneShared::held`].
//!   - Written by: the writer
//!   - Read by: reports
//!   - Orderings: relaxed
//!   - Reason: a figure for information only
//! - `shared writer` in a chunk's header.
//!   - Written by: no code yet
//!   - Read by: a recovery, refusing other values than 0
//!   - Reason: reserved for a lane with several writers

mod acknowledge;
mod chain;
mod claim;
mod cursor;
mod image;
mod pin;
mod rollback;
mod runs;
mod spilled;
mod writer;

pub use acknowledge::{AckError, ChunkId, Relocated, SettledChunk};
pub use claim::Claim;
pub use cursor::{Cursor, CursorError, LaneReader, Record};
pub use image::{ChunkImage, record_in_image};
pub use rollback::{Diverged, ImportError, RepeatError, TruncateError};
pub use runs::{Disposition, Run};
pub use writer::{AppendError, LaneWriter};

use crate::nouns::{Rank, Ssn};
use crate::sync::{AtomicU64, AtomicUsize, Ordering, fence};

/// Value of a free pin.
pub(crate) const UNPINNED: u64 = !KEEPS_EVICTED;
/// Bit in a pin to keep evicted chunks, too, from its SSN on.
///
/// Without it, a pin keeps no evicted chunk but the one beginning with its SSN.
pub(crate) const KEEPS_EVICTED: u64 = 1 << 63;
const _: () = assert!(Ssn::MAX.0 < UNPINNED);

/// State shared by a lane's writer and its cursors.
#[derive(Debug)]
pub(crate) struct LaneShared {
    peer: Rank,
    /// First chunk in the chain; 0 before the first claim.
    head: AtomicU64,
    /// Lower bound of the chain: records below this SSN may be gone.
    floor: AtomicU64,
    /// Lowest SSN that each open cursor may still need, with or without [`KEEPS_EVICTED`].
    pins: Box<[AtomicU64]>,
    /// Bytes held in the lane's chunks.
    held: AtomicUsize,
    /// Sequence of the newest evicted chunk; 0 while no record in the lane is on disk only, and at least 1 afterwards.
    evicted: AtomicU64,
}

impl LaneShared {
    fn new(peer: Rank, cursors_max: usize) -> LaneShared {
        LaneShared {
            peer,
            head: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            pins: (0..cursors_max).map(|_| AtomicU64::new(UNPINNED)).collect(),
            held: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    pub(crate) fn peer(&self) -> Rank {
        self.peer
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the lowest SSN any open cursor may need, or [`UNPINNED`].
    ///
    /// Called by the writer after publishing a new head and floor. The fence pairs with the one in
    /// [`LaneReader::open`](LaneReader::open).
    fn lowest_pin(&self) -> u64 {
        fence(Ordering::SeqCst);
        let pins = self.pins.iter().map(|pin| pin.load(Ordering::Acquire));
        pins.map(|pin| pin & !KEEPS_EVICTED).min().unwrap_or(UNPINNED)
    }

    /// Returns `true` if a cursor or an image may read an evicted chunk: the one beginning with `first`, with pins up
    /// to `pinned_upto`.
    ///
    /// Called after [`lowest_pin`](Self::lowest_pin), whose fence it needs.
    ///
    /// A cursor in an earlier chunk can't come here: it sees [`evicted`](Self::evicted) before leaving its chunk.
    fn keeps_evicted(&self, first: Ssn, pinned_upto: Ssn) -> bool {
        self.pins.iter().map(|pin| pin.load(Ordering::Acquire)).any(|pin| {
            let from = pin & !KEEPS_EVICTED;
            from == first.0 || (pin != from && from <= pinned_upto.0)
        })
    }
}

//! Lanes: the records of one destination, in a chain of chunks in SSN order.
//!
//! One [`LaneWriter`] appends, releases and frees; any number of threads read concurrently through [`LaneReader`]s. The
//! writer never waits for a reader: it sets chunks aside that an open [`Cursor`] may still need, and returns them to the pool
//! when the cursor has moved on.
//!
//! # The shared words of a lane
//!
//! | word | written by | read by | orderings | reason |
//! |---|---|---|---|---|
//! | commit word of a record | the writer: `0` after each claim, then the word itself on commit or drop | cursors, a recovery | `0`: relaxed; word: **release**; read: **acquire** | the word publishes the body, the SSN, and the `0` after it |
//! | `next` in a chunk's header | the writer, once, before the end word; again when it takes the chunk's successor out of the chain | cursors that saw the end word or `last` | **release** / **acquire** | publishes the next chunk's header and its first `0` |
//! | end word: the commit word after the last record of a chunk | the writer, once, after `next` and before the lengths and `last` | cursors; images read it without an atomic access, after `last` | **release** / **acquire** | publishes the link; no byte after a chunk's header changes once `last` shows that it is sealed |
//! | `last` in a chunk's header | the writer, once, as the last store of sealing | cursors looking for an SSN, and those that take an image | **release** / **acquire** | a sealed chunk can be skipped, or read as an image, without reading its records one by one |
//! | lengths in a chunk's header | the writer, once, after the end word and before `last` | cursors that take an image, after `last` | relaxed, ordered by `last` | the end of the records is known without a walk |
//! | `state` in a chunk's header | the writer; the pool | a recovery only, after the owner died | **release** / acquire | an active chunk has a header; no thread races for it |
//! | [`LaneShared::head`] | the writer | cursors being opened | **release** / **acquire** | its chain is complete, and no earlier floor applies to it |
//! | [`LaneShared::floor`] | the writer, before the head | cursors being opened, after the head | relaxed, ordered by the head | records below it may be gone |
//! | [`LaneShared::pins`] | one cursor each | the writer, before it frees | store **release**, load **acquire**, and **SeqCst fences** between the store and the first load of `head` (cursor), and between the stores of `head` and `floor` and the loads of the pins (writer) | Dekker's handshake: either the writer sees the pin, or the cursor sees the new head and floor; the release and acquire order a cursor's last read of a chunk before its reuse |
//! | `Stack::head` in the pool | writers of all lanes, and a thread that commits memory ahead (`Pool::commit_ahead`) | the writers | push **release**, pop **acquire**, a tag against ABA | a block's old use happens before its new one |
//! | [`LaneShared::spilled`] | the writer, once, before the first head after evicted records | cursors that wait for a first chunk, after the head | relaxed, ordered by the head | missing records are on disk, not released |
//! | [`LaneShared::held`] | the writer | reports | relaxed | a figure that nothing depends on |
//! | `shared writer` in a chunk's header | no code yet | a recovery, which refuses other values than 0 | | reserved for a lane with several writers |

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
#[cfg(not(counterfoil_loom))]
pub(crate) use chain::ChunkInfo;
pub use claim::Claim;
pub use cursor::{Cursor, CursorError, LaneReader, Record};
pub use image::{ChunkImage, record_in_image};
pub use rollback::{Diverged, ImportError, RepeatError, TruncateError};
pub use runs::{Disposition, Run};
pub use writer::{AppendError, LaneWriter};

use crate::nouns::Rank;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, fence};

/// Value of a pin that is free.
pub(crate) const UNPINNED: u64 = u64::MAX;

/// State that a lane's writer and its cursors share.
#[derive(Debug)]
pub(crate) struct LaneShared {
    peer: Rank,
    /// The first chunk of the chain; 0 before the first claim.
    head: AtomicU64,
    /// Lower bound of the chain: records below this SSN may be gone.
    floor: AtomicU64,
    /// The lowest SSN that each open cursor may still need.
    pins: Box<[AtomicU64]>,
    /// Bytes of the lane's chunks.
    held: AtomicUsize,
    /// 1 once records that are no longer in memory are on disk: a cursor must not skip them.
    spilled: AtomicUsize,
}

impl LaneShared {
    fn new(peer: Rank, cursors_max: usize) -> LaneShared {
        LaneShared {
            peer,
            head: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            pins: (0..cursors_max).map(|_| AtomicU64::new(UNPINNED)).collect(),
            held: AtomicUsize::new(0),
            spilled: AtomicUsize::new(0),
        }
    }

    pub(crate) fn peer(&self) -> Rank {
        self.peer
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the lowest SSN that any open cursor may need, or [`UNPINNED`].
    ///
    /// The writer calls it after it has published a new head and floor. The fence pairs with the one in
    /// [`LaneReader::open`](LaneReader::open).
    fn lowest_pin(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.pins.iter().map(|pin| pin.load(Ordering::Acquire)).min().unwrap_or(UNPINNED)
    }
}

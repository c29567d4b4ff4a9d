//! A lane: one destination's part of a rank's log, a chain of chunks in SSN order.
//!
//! One [`LaneWriter`] appends, releases and frees; any number of threads read beside it through [`LaneReader`]s. The
//! writer never waits for a reader: chunks that an open [`Cursor`] may still need are put aside and given back to the
//! pool when the cursor has moved on.
//!
//! # The shared words of a lane
//!
//! | word | who writes | who reads | orderings | why |
//! |---|---|---|---|---|
//! | commit word of a record | the writer: `0` behind each claim, then the word itself on commit or drop | cursors, a recovery | `0`: relaxed; word: **release**; read: **acquire** | the word publishes the body, the SSN, and the `0` behind it |
//! | `next` in a chunk's header | the writer, once, before the end word | cursors that saw the end word | **release** / **acquire** | publishes the next chunk's header and its first `0` |
//! | `last` in a chunk's header | the writer, once, when the chunk is full | cursors looking for an SSN | **release** / **acquire** | a sealed chunk can be skipped without reading its records |
//! | lengths in a chunk's header | the writer, once, before `last` | cursors that read whole chunks, after `last` | relaxed, ordered by `last` | where the records end, without a walk |
//! | `state` in a chunk's header | the writer; the pool | a recovery only, after the owner died | **release** / acquire | an active chunk has a header; no thread races for it |
//! | [`LaneShared::head`] | the writer | cursors being opened | **release** / **acquire** | the chain behind it is complete, and no earlier floor holds for it |
//! | [`LaneShared::floor`] | the writer, before the head | cursors being opened, after the head | relaxed, ordered by the head | what is under it may be gone |
//! | [`LaneShared::pins`] | one cursor each | the writer, before it frees | store **release**, load **acquire**, and **SeqCst fences** between the store and the first look at `head` (cursor), and between the stores of `head` and `floor` and the look at the pins (writer) | Dekker's handshake: either the writer sees the pin, or the cursor sees the new head and floor; the release and acquire order a cursor's last read of a chunk before its reuse |
//! | `Stack::head` in the pool | writers of all lanes | the same | push **release**, pop **acquire**, a tag against ABA | a block's old use happens before its new one |
//! | [`LaneShared::elsewhere`] | the writer, once, before the head that is behind what went | cursors that wait for a first chunk, after the head | relaxed, ordered by the head | what is missing is on disk, not superfluous |
//! | [`LaneShared::held`] | the writer | reports | relaxed | a figure, nothing follows from it |
//! | `shared writer` in a chunk's header | nobody yet | a recovery, which refuses other values than 0 | | reserved for a lane with several writers |

mod acknowledge;
mod chain;
mod claim;
mod cursor;
mod elsewhere;
#[cfg(not(counterfoil_loom))]
mod image;
mod pin;
mod rollback;
mod runs;
mod writer;

pub use acknowledge::{AckError, ChunkId, Relocated, SettledChunk};
#[cfg(not(counterfoil_loom))]
pub(crate) use chain::ChunkInfo;
pub use claim::Claim;
pub use cursor::{Cursor, CursorError, LaneReader, Record};
#[cfg(not(counterfoil_loom))]
pub use image::{ChunkImage, record_in_image};
pub use rollback::{Diverged, ImportError, RepeatError, TruncateError};
pub use runs::{Disposition, Run};
pub use writer::{AppendError, LaneWriter};

use crate::nouns::Rank;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, fence};

/// A pin that pins nothing.
pub(crate) const UNPINNED: u64 = u64::MAX;

/// What a lane's writer and its cursors share.
#[derive(Debug)]
pub(crate) struct LaneShared {
    peer: Rank,
    /// The first chunk of the chain; 0 before the first claim.
    head: AtomicU64,
    /// Records below this SSN may be gone.
    floor: AtomicU64,
    /// The lowest SSN that each open cursor may still need.
    pins: Box<[AtomicU64]>,
    /// Bytes of chunks in the lane.
    held: AtomicUsize,
    /// 1 once records that are no longer in memory are kept elsewhere: a cursor must not pass them.
    elsewhere: AtomicUsize,
}

impl LaneShared {
    fn new(peer: Rank, cursors_max: usize) -> LaneShared {
        LaneShared {
            peer,
            head: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            pins: (0..cursors_max).map(|_| AtomicU64::new(UNPINNED)).collect(),
            held: AtomicUsize::new(0),
            elsewhere: AtomicUsize::new(0),
        }
    }

    pub(crate) fn peer(&self) -> Rank {
        self.peer
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The lowest SSN that any open cursor may need, or [`UNPINNED`].
    ///
    /// Called by the writer after it has published a new head and floor. The fence pairs with the one in
    /// [`LaneReader::open`](LaneReader::open).
    fn lowest_pin(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.pins.iter().map(|pin| pin.load(Ordering::Acquire)).min().unwrap_or(UNPINNED)
    }
}

//! Collection: which retained chunks may be freed, which are worth moving together, and who holds memory back.
//!
//! Pure decisions over (lane, chunk, epochs, bytes). A [`Collector`] is told what happens to a rank's log and
//! answers with [`Decision`]s; whoever owns the memory carries them out.
//!
//! | module | what it is |
//! |---|---|
//! | [`floor`] | [`Floor`]: up to where the receiver's durable checkpoint makes a lane's records superfluous |
//! | [`epoch_index`] | [`EpochIndex`]: turns "everything received before epoch E" into an SSN |
//! | [`chunk_use`] | [`ChunkUse`]: what the collector knows of a chunk; [`Decision`]: what to do with it |
//! | [`collector`] | [`Collector`] |
//! | [`report`] | [`Holder`]: who holds how many bytes, and what would free them |
//!
//! # Two promises
//!
//! **Space.** Released and retained records alternate in a lane, and a few retained ones mustn't hold a whole
//! chunk. Once the decisions given so far are carried out, each lane's retained chunks hold at most twice the
//! bytes in use plus one small chunk ([`SMALL_CHUNK_BYTES`]). The rule is local, so that freeing chunks can't
//! break it; the reasons are in [`collector`].
//!
//! **Time.** [`Collector::advance`] costs O(log lanes) for each chunk that it frees. Neither the number of
//! records nor lanes and chunks that there is nothing to do for make it slower.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod chunk_use;
pub mod collector;
pub mod epoch_index;
pub mod floor;
mod lane;
pub mod report;

pub use chunk_use::{ChunkUse, Decision, PartlyCovered, SMALL_CHUNK_BYTES};
pub use collector::{Advance, Collector};
pub use epoch_index::EpochIndex;
pub use floor::Floor;
pub use report::{Blocker, Holder};

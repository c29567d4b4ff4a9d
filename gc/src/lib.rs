//! Garbage collection: selects the retained chunks to free and those to compact, and reports what holds memory.
//!
//! Pure decisions over (lane, chunk, epochs, bytes). The owner of the memory reports log events to a [`Collector`] and
//! carries out the returned [`Decision`]s.
//!
//! | module | contents |
//! |---|---|
//! | [`floor`] | [`Floor`]: the last SSN of a lane that the receiver's durable checkpoint covers |
//! | [`epoch_index`] | [`EpochIndex`]: converts "everything received before epoch E" into an SSN |
//! | [`chunk_use`] | [`ChunkUse`]: the use of a chunk; [`Decision`]: the action for it |
//! | [`collector`] | [`Collector`] |
//! | [`report`] | [`Holder`]: the bytes that a lane holds, and what would free them |
//!
//! # Guarantees
//!
//! **Space.** Released and retained records alternate in a lane, and a few retained ones must not hold a whole chunk.
//! Once the decisions returned so far are carried out, each lane's retained chunks hold at most twice the bytes in use
//! plus one small chunk ([`SMALL_CHUNK_BYTES`]). The rule is local, so freeing chunks can't break it; [`collector`] has
//! the argument.
//!
//! **Time.** [`Collector::advance`] costs O(log lanes) for each freed chunk. The cost depends neither on the record
//! count nor on lanes and chunks without work.
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

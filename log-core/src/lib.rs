//! Counterfoil's storage engine.
//!
//! A rank's log has a [lane](LaneWriter) for each destination: records in SSN order, in chunks from a [`Pool`]. A message
//! is [claimed](LaneWriter::claim), written and [committed](Claim::commit); it is acknowledged, and then released or
//! retained ([`LaneWriter::acknowledge`]); a [`Cursor`] replays it on any thread beside the writer; at last it is freed.
//! The memory is [volatile](Volatile) or [survives the process](ProcessCrashSafe). What a rank keeps about its own past is
//! in the [`LocalLog`].
//!
//! This crate knows the field's [nouns](Rank) and nothing of protocols: the wire header is an opaque prefix to it.
//! Which words the threads share, and with which memory orders, stands in a table in the module `lane`.
#![warn(missing_docs)]
#![cfg_attr(counterfoil_loom, allow(dead_code, reason = "the models need no recovery and no files"))]

mod arena;
mod chunk;
mod geometry;
mod lane;
mod lanes;
mod nouns;
mod pool;
mod record;
mod sync;

#[cfg(not(counterfoil_loom))]
mod local_log;
#[cfg(not(counterfoil_loom))]
mod private_file;
#[cfg(not(counterfoil_loom))]
mod recovered_lane;
#[cfg(not(counterfoil_loom))]
mod shared_log;
#[cfg(not(counterfoil_loom))]
mod tier;

#[cfg(all(test, counterfoil_loom))]
mod loom_models;
#[cfg(all(test, counterfoil_shuttle))]
mod shuttle_model;

pub use geometry::{BLOCK_BYTES_MIN, Geometry, MEMORY_BYTES_MAX};
pub use lane::{
    AckError, AppendError, ChunkId, Claim, Cursor, CursorError, Disposition, Diverged, ImportError, LaneReader,
    LaneWriter, Record, Relocated, RepeatError, Run, SettledChunk, TruncateError,
};
#[cfg(not(counterfoil_loom))]
pub use lane::{ChunkImage, record_in_image};
pub use lanes::Lanes;
#[cfg(not(counterfoil_loom))]
pub use local_log::{Entry, LocalLog, LocalLogError};
pub use nouns::{Determinant, Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
pub use pool::{AllocError, Backpressure, OptionsError, Pool, PoolOptions};
#[cfg(not(counterfoil_loom))]
pub use private_file::{
    PrivateFileError, check_private_dir, check_readable_dir, create_private_dir, create_private_file, open_private_file,
};
pub use record::{BODY_BYTES_MAX, PREFIX_BYTES_MAX};
#[cfg(not(counterfoil_loom))]
pub use shared_log::{DamageError, DeadLog, Owner, PoolError, SHARED_LOG_VERSION};
#[cfg(not(counterfoil_loom))]
pub use tier::{ProcessCrashSafe, Tier, TierError, Volatile};

//! Counterfoil's storage engine.
//!
//! A rank's log has a [lane](LaneWriter) for each destination: records in SSN order, in chunks from a [`Pool`]. A
//! message is [claimed](LaneWriter::claim), written and [committed](Claim::commit); it is acknowledged, and then
//! released or retained ([`LaneWriter::acknowledge`]); a [`Cursor`] replays it on any thread while the writer goes on;
//! at last it is freed. The memory is [volatile](Volatile) or [survives the process](ProcessCrashSafe). A rank's
//! records of its own past are in the [`LocalLog`].
//!
//! This crate knows the field's [nouns](Rank) but no protocol: the wire header is an opaque prefix to it. The module
//! `lane` documents the words shared by threads, with their memory orders.
//!
//! # Why slots and not epoch guards
//!
//! A cursor pins its chunk and the ones after it by a slot of its own in the lane. An epoch guard (as in
//! `crossbeam-epoch`) protects everything reachable when it was taken, for short read sections. A replay is no short
//! section: a guard held for one keeps every chunk freed by any lane meanwhile. In a replay of 500 chunks of 64 KiB,
//! with 8 lanes freeing a chunk each for every replayed chunk, all 4,000 freed chunks (250 MiB) waited for the guard;
//! with slots they were reused at once, and memory in use rose by 1.4 MiB, the chunks being written by the lanes. A
//! guard taken anew for each chunk would not keep the unread ones, which a replay needs.
//!
//! For short sections guards were measured and gained nothing. (Medians of interleaved batches, two cores of a busy
//! machine; a guard itself takes 4 ns, and a cursor, which also finds its record, 49 ns.)
//!
//! - the pool's free blocks: take and give back, on one thread and on two: now 9 ns, 26 ns (tagged stack); with guards
//!   43 ns, 116 ns (a node for each push)
//! - index of blocks on disk: read a field: now 5 ns (mutex); with guards 4 ns
//! - the same, 256 blocks: add one and remove one: now 8 ns; with guards 880 ns (the list is copied)
//!
//! Cursors on the disk need to pin their blocks there, too. The run table and the lane table belong to one thread.
#![warn(missing_docs)]
#![cfg_attr(counterfoil_loom, allow(dead_code, reason = "the models need no recovery and no files"))]

#[cfg(not(target_os = "linux"))]
compile_error!("Counterfoil needs Linux: its logs use madvise, fallocate and io_uring");

mod arena;
#[cfg(not(counterfoil_loom))]
mod checksum;
mod chunk;
mod geometry;
mod lane;
mod lanes;
mod nouns;
mod options;
mod pool;
mod prefetch;
mod record;
mod sync;

#[cfg(not(counterfoil_loom))]
mod damage;
#[cfg(not(counterfoil_loom))]
mod local_log;
#[cfg(not(counterfoil_loom))]
mod private_file;
#[cfg(not(counterfoil_loom))]
mod recovered_lane;
#[cfg(not(counterfoil_loom))]
mod shared_log;
#[cfg(not(counterfoil_loom))]
mod state_memory;
#[cfg(not(counterfoil_loom))]
mod tier;

#[cfg(all(test, counterfoil_loom))]
mod loom_models;
#[cfg(all(test, counterfoil_shuttle))]
mod shuttle_model;

#[cfg(not(counterfoil_loom))]
pub use checksum::{crc32c, crc32c_append};
#[cfg(not(counterfoil_loom))]
pub use damage::{DamageError, SHARED_LOG_VERSION};
pub use geometry::Geometry;
pub use lane::{
    AckError, AppendError, ChunkId, ChunkImage, Claim, Cursor, CursorError, Disposition, Diverged, ImportError,
    LaneReader, LaneWriter, Record, Relocated, RepeatError, Run, SettledChunk, TruncateError, record_in_image,
};
pub use lanes::Lanes;
#[cfg(not(counterfoil_loom))]
pub use local_log::{Entry, LocalLog, LocalLogError};
pub use nouns::{Determinant, Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
pub use options::{BLOCK_BYTES_MIN, MEMORY_BYTES_MAX, OptionsError, PoolOptions};
pub use pool::{AllocError, Backpressure, Pool};
pub use prefetch::prefetch;
#[cfg(not(counterfoil_loom))]
pub use private_file::{
    PrivateFileError, check_private_dir, check_readable_dir, create_private_dir, create_private_file, join_private_dir,
    open_private_file, read_private_file, share_private_file,
};
pub use record::{BODY_BYTES_MAX, PREFIX_BYTES_MAX};
#[cfg(not(counterfoil_loom))]
pub use shared_log::{DeadLog, Owner, PoolError};
#[cfg(not(counterfoil_loom))]
pub use state_memory::{FoundState, SharedArray, StateMemory, StateMemoryError, has_state};
#[cfg(not(counterfoil_loom))]
pub use tier::{ProcessCrashSafe, Tier, TierError, Volatile};

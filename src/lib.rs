//! Counterfoil: a lock-free, sender-based message log.
//!
//! A counterfoil is the stub kept by a cheque's issuer. This crate does the same for messages: every rank keeps a copy
//! of each sent message. When a peer dies, its messages are replayed to the replacement, and the job need not be rolled
//! back as a whole.
//!
//! [`Log`] is one rank's log. A message is claimed, written in place and committed; the peer acknowledges it; a cursor
//! replays it to the peer's replacement; once a durable checkpoint of the peer covers it, it is collected:
//!
//! ```
//! use counterfoil::{Ack, Epoch, Log, Options, Phase, Rank, Ssn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (me, peer) = (Rank(0), Rank(1));
//! let mut log = Log::create(Options::new(me, 2))?;
//!
//! // Claim, write straight into the log, commit. The prefix is the caller's, for example a wire header.
//! for i in 0..10_000_u64 {
//!     let mut claim = log.try_claim(peer, 8, 1024)?;
//!     claim.prefix_mut().copy_from_slice(&i.to_le_bytes());
//!     claim.payload_mut().fill(i as u8);
//!     claim.commit(); // and send `record.wire()`, or the user's buffer
//! }
//!
//! // The peer acknowledges messages, with its epoch in which it received them.
//! log.acknowledge(peer, Ack { ssn: Ssn(9_000), epoch: Epoch::FIRST }, Phase::default())?;
//!
//! // The peer died and was replaced: send it everything again, in order.
//! let mut cursor = log.cursor(peer, Ssn::FIRST)?;
//! let mut replayed = 0;
//! while let Some(record) = cursor.read()? {
//!     assert_eq!(record.payload(), [(record.ssn().0 - 1) as u8; 1024]);
//!     replayed += 1;
//! }
//! assert_eq!(replayed, 10_000);
//! drop(cursor);
//!
//! // The peer's checkpoint covers most of them: free those.
//! log.receiver_covered(peer, Epoch(2), Ssn(8_000))?;
//! let collected = log.collect();
//! assert!(collected.chunks > 100);
//! assert!(log.cursor(peer, Ssn::FIRST).is_err()); // no longer kept
//! # Ok(())
//! # }
//! ```
//!
//! # Crates
//!
//! | crate | contents |
//! |---|---|
//! | `counterfoil-log-core` | lanes, chunks, claims, cursors, the two memory tiers, the local log |
//! | `counterfoil-ack-piggyback` | send and receive windows, the wire header, acknowledgement rules |
//! | `counterfoil-gc` | collection of retained records, report of held memory |
//! | `counterfoil-log-io` | segments, checkpoints and recovery on disk, io_uring |
//! | `counterfoil` | joins them: [`Log`], [`Options`], [`Stats`], [`Error`] |
//!
//! This crate re-exports the types in its signatures. For the rest, depend on the crate concerned.
//!
//! # Features
//!
//! | feature | contents | without it |
//! |---|---|---|
//! | `io-uring` (default) | disk reads and writes by io_uring, where the kernel permits it | pwrite |
//! | `lz4` (default) | compressed blocks on disk | [`StoreOptions::compress`], and a store that has some, are refused |
//! | `serde` | serialization of [`Tier`], [`Keep`] and [`OnFull`] | |
//!
//! # Shared words and memory orders
//!
//! One thread writes a log; any number of threads read it concurrently. `log-core/src/lane.rs` lists every shared word
//! with its writer, its readers, the ordering and the reason. Each has a loom model.
//!
//! # Cost of a claim
//!
//! A claim within its chunk, its commit and a release take no lock, no system call, no allocation, no clock and no
//! checksum over data. A chunk is begun or freed every 64 KiB: a few dozen nanoseconds, in steady state. The README has
//! figures; `counterfoil bench append` measures them on your machine.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod budget;
mod builder;
mod checkpoint;
mod choices;
mod contents;
mod cursor;
mod disk_index;
mod error;
mod log;
mod open;
mod options;
mod paths;
mod prefault;
mod read_only;
mod spill;
mod stats;
mod store;
mod waiting;

// The nouns.
pub use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
// Writing, reading and acknowledging records; the local log.
pub use counterfoil_ack_piggyback::{Ack, AckPolicy, SendWindow};
pub use counterfoil_log_core::{Claim, Entry, LocalLog, Record};
// Directories and disks.
pub use counterfoil_log_core::create_private_dir;
pub use counterfoil_log_io::{BackendChoice, StorageBackend};
// Reports.
pub use counterfoil_gc::{Blocker, Holder};
pub use counterfoil_log_io::DiskUsage;
// Errors and their contents.
pub use counterfoil_log_core::{
    AckError, AllocError, Backpressure, CursorError, Diverged, ImportError, LocalLogError, OptionsError, PoolError,
    PrivateFileError, RepeatError, TruncateError,
};
pub use counterfoil_log_io::{DirectoryError, StoreError};

pub use budget::Collected;
pub use builder::Builder;
pub use checkpoint::{PendingCheckpoint, Restored};
pub use choices::{Keep, OnFull, Tier, UnknownWord};
pub use contents::{Contents, TABLE_NAME_BYTES_MAX, TableError};
pub use cursor::{Cursor, Reader, ReplayError};
pub use error::{AppendError, CheckpointError, DestroyError, DiskRefused, Error, OpenError, SpillBehind};
pub use log::Log;
pub use open::{Recovered, RecoveredLane};
pub use options::{Options, StoreOptions};
pub use read_only::ReadOnlyLog;
pub use stats::{Stats, Usage};

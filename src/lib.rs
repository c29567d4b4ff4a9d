//! Counterfoil: a lock-free, sender-based message log.
//!
//! A counterfoil is the stub that the issuer of a cheque keeps. This is the same for messages: every rank keeps a copy of
//! what it sent, so that a peer that dies can be replayed instead of the whole job being rolled back.
//!
//! [`Log`] is one rank's log. A message is claimed, written in place and committed; the peer acknowledges it; a cursor
//! replays it to the peer's replacement; when a durable checkpoint of the peer covers it, it is collected:
//!
//! ```
//! use counterfoil::{Epoch, Log, Options, Phase, Rank, Ssn, ack::Ack};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (me, peer) = (Rank(0), Rank(1));
//! let mut log = Log::create(Options::new(me, 2))?;
//!
//! // Claim, write straight into the log, commit. The prefix is yours: a wire header, say.
//! for i in 0..10_000_u64 {
//!     let mut claim = log.try_claim(peer, 8, 1024)?;
//!     claim.prefix_mut().copy_from_slice(&i.to_le_bytes());
//!     claim.payload_mut().fill(i as u8);
//!     claim.commit(); // and send `record.wire()`, or the user's buffer
//! }
//!
//! // The peer says what it has received, and in which of its epochs.
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
//! // The peer's checkpoint covers most of it: that can go.
//! log.receiver_covered(peer, Epoch(2), Ssn(8_000))?;
//! let collected = log.collect();
//! assert!(collected.chunks > 100);
//! assert!(log.cursor(peer, Ssn::FIRST).is_err()); // gone, and it says so
//! # Ok(())
//! # }
//! ```
//!
//! # Who does what
//!
//! | crate | what it is for |
//! |---|---|
//! | `log-core` | lanes, chunks, claims, cursors, the two memory tiers, the local log |
//! | [`ack`] | send and receive windows, the wire header, when to acknowledge |
//! | [`gc`] | what may be freed, and who holds memory back |
//! | [`store`] | segments, checkpoints and recovery on disk, io_uring |
//! | this one | joins them: [`Log`], [`Options`], [`Stats`], [`Error`] |
//!
//! # Shared words and memory orders
//!
//! A log is written by one thread and read by any number beside it. This is everything that they share:
//!
//! | word | who writes | who reads | orderings | why |
//! |---|---|---|---|---|
//! | commit word of a record | the writer: a zero behind each claim, then the word itself | cursors, a recovery | zero: relaxed; word: release; read: acquire | publishes the body, the SSN, and the zero behind |
//! | link in a chunk's header | the writer, before the chunk's end word | cursors that saw the end word | release, acquire | publishes the next chunk |
//! | last SSN in a chunk's header | the writer, once | cursors looking for an SSN | release, acquire | a full chunk can be skipped |
//! | head and floor of a lane | the writer, before it looks at the pins | cursors being opened | release, acquire; and fences | what is below is going |
//! | pins of a lane | a cursor each | the writer, before it reuses a chunk | release, acquire; and SeqCst fences on both sides | either the writer sees the pin, or the cursor sees the new head |
//! | tops of the pool's free lists | the writers of all lanes | the same | push: release; pop: acquire; tagged | a chunk's old use happens before its new one |
//! | byte counts | writers | reports | relaxed | figures, nothing follows from them |
//!
//! The whole argument, word by word, stands in `log-core/src/lane/mod.rs`; each row has a loom model.
//!
//! # What a claim costs
//!
//! A claim that fits its chunk, its commit and a release take no lock, no system call, no allocation, no clock and no
//! checksum over data. A chunk is begun or given back every 64 KiB: a few dozen nanoseconds, in steady state. The figures
//! are in the README; `counterfoil bench append` measures them on your machine.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod budget;
mod checkpoint;
mod cursor;
mod disk_index;
mod error;
mod log;
#[doc(hidden)]
pub mod model;
mod open;
mod options;
mod spill;
mod stats;

pub use checkpoint::{CheckpointError, Contents, PendingCheckpoint, Restored};
pub use counterfoil_ack_piggyback as ack;
pub use counterfoil_gc as gc;
pub use counterfoil_log_core::{
    AckError, Backpressure, Claim, CursorError, Determinant, Disposition, Diverged, Entry, Envelope, Epoch,
    ImportError, Incarnation, LocalLog, LocalLogError, OptionsError, Phase, PoolError, Rank, Record, RepeatError, Ssn,
    TruncateError,
};
pub use counterfoil_log_core::{
    PrivateFileError, check_private_dir, create_private_dir, create_private_file, open_private_file,
};
pub use counterfoil_log_io as store;
pub use cursor::{Cursor, Reader, ReplayError};
pub use error::{AppendError, DiskRefused, Error, OpenError, SpillBehind};
pub use log::{Collected, Log};
pub use open::Recovered;
pub use options::{Keep, OnFull, Options, StoreOptions, Tier};
pub use stats::{Stats, Usage};

//! The wire header, and a channel's send and receive windows.
//!
//! The windows number messages, detect duplicates and acknowledge with as few extra messages as possible.
//!
//! | module | contents |
//! |---|---|
//! | [`header`] | [`WireHeader`]: 64 bytes before every payload |
//! | [`checksum`] | [`WireHeader::seal`] and [`WireHeader::verify`]: the end-to-end checksum |
//! | [`send_window`] | [`SendWindow`]: one for each destination; numbers messages, handles acks |
//! | [`recv_window`] | [`RecvWindow`]: one for each source; detects duplicates and dead incarnations, generates acks |
//! | [`received`] | [`ReceivedSet`]: the highest SSN received, with its exceptions |
//! | [`epochs`] | [`ReceiveEpochs`]: the epoch in which each SSN was received |
//! | [`policy`] | [`AckPolicy`]: all limits of the rules below |
//!
//! The crate does no I/O, reads no clock and starts no thread. In-order traffic costs O(1) a message and allocates
//! nothing once the windows are warm.
//!
//! # When an acknowledgement is sent
//!
//! The rules come from Guermouche et al., *Uncoordinated checkpointing without domino effect for send-deterministic MPI
//! applications* (IPDPS 2011), section V.A and Figure 5:
//!
//! 1. A small message is copied into the log and needs no ack of its own: the receiver piggybacks a cumulative
//!    ack on whatever it sends in the other direction ([`RecvWindow::piggyback`]).
//! 2. The first message from each sender's epoch to be received in a *later* epoch, and so to be logged, is
//!    acknowledged explicitly ([`RecvWindow::poll_ack`]).
//! 3. From that ack on the sender knows to log everything it sends until its own next epoch. It marks those messages
//!    [`Flags::LOGGED`] and they need no ack.
//! 4. A large message ([`Flags::LARGE`]) is always acknowledged explicitly, unless it is marked `LOGGED`.
//! 5. When more is unacknowledged than the policy allows, the sender requests an ack, once until it is answered
//!    ([`SendWindow::poll_ack_request`]).
//!
//! Plain sender-based logging has no epochs and never calls `begin_epoch`: rules 2 and 3 then never apply, and the
//! same windows work with piggybacked acks and requests alone.
//!
//! # Cases that the paper leaves open
//!
//! - **The epoch in an ack** is the receive epoch of *its* SSN, not the receiver's current one, and all SSNs newly
//!   covered by one ack share this epoch. The receiver therefore *splits* its cumulative acks wherever the receive
//!   epoch changes and sends the parts oldest first: see [`RecvWindow`].
//! - **Messages marked `LOGGED`** aren't exempt from cumulative acks, only from explicit ones: the next cumulative ack
//!   covers them, so their receive epochs become known for replay (Figure 3, line 65) and for collection.
//! - **A rollback of the receiver clears the mark**: [`SendWindow::receiver_rolled_back`].
//! - **Receive epochs become stale** when a receiver rolls back, because it may then receive the same messages in other
//!   epochs. Its acks beyond its restored checkpoint no longer count, and it acknowledges those messages anew. A sender
//!   that restores a checkpoint older than the rollback discards all receive epochs: [`SendWindow::restore`].
//! - **Duplicates are acknowledged again**, with their first receive epoch, so that a sender learns again after a
//!   rollback which messages must be logged (Figure 3, lines 29-32, never acks duplicates).
//! - **A re-executing sender** may send new messages before the acks for its duplicates reach it. The first new message
//!   to be logged is therefore acknowledged explicitly (rule 2) even if one of the duplicates was.
//! - **A message from a dead incarnation** is discarded before any other check.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod ack;
pub mod checksum;
pub mod epochs;
pub mod flags;
pub mod header;
mod parse;
pub mod policy;
pub mod received;
pub mod recv_window;
pub mod send_window;
pub mod state;
mod unacked;

pub use ack::{Ack, AckError, Acked};
pub use checksum::ChecksumError;
pub use epochs::ReceiveEpochs;
pub use flags::{Flags, Kind};
pub use header::{Origin, WireHeader};
pub use parse::HeaderError;
pub use policy::{AckPolicy, PolicyError};
pub use received::{ReceivedSet, TooManyExceptions};
pub use recv_window::{Arrival, RecvError, RecvWindow, Verdict};
pub use send_window::{SendWindow, Stamp, StampError};
pub use state::{EpochError, EpochRunState, ReceivedSetState, RecvWindowState, SendWindowState, StateError};

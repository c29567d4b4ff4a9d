//! What travels beside a payload: the wire header, and the two windows that number messages, recognise
//! duplicates and acknowledge with as few extra messages as possible.
//!
//! | module | what it is |
//! |---|---|
//! | [`header`] | [`WireHeader`]: 64 bytes in front of every message |
//! | [`checksum`] | [`WireHeader::seal`] and [`WireHeader::verify`]: what is sent is what arrives, and what was logged |
//! | [`send_window`] | [`SendWindow`]: one per destination; numbers messages, takes acks |
//! | [`recv_window`] | [`RecvWindow`]: one per source; recognises duplicates and dead incarnations, gives acks |
//! | [`received`] | [`ReceivedSet`]: the highest SSN received, with its exceptions |
//! | [`epochs`] | [`ReceiveEpochs`]: in which epoch each SSN was received |
//! | [`policy`] | [`AckPolicy`]: every number that the rules below depend on |
//!
//! Nothing here does I/O, reads a clock or starts a thread. In-order traffic costs O(1) a message and allocates
//! nothing once the windows are warm.
//!
//! # When an acknowledgement is sent
//!
//! The rules are those of Guermouche et al., *Uncoordinated checkpointing without domino effect for
//! send-deterministic MPI applications* (IPDPS 2011), section V.A and Figure 5:
//!
//! 1. A small message is copied into the log and needs no ack of its own: the receiver piggybacks a cumulative
//!    ack on whatever it sends in the other direction ([`RecvWindow::piggyback`]).
//! 2. The first message of each sender's epoch that turns out to be received in a *later* epoch, and so has to
//!    be logged, is acknowledged explicitly ([`RecvWindow::poll_ack`]).
//! 3. From that ack on the sender knows that everything it sends until its own next epoch has to be logged. It
//!    marks those messages [`Flags::LOGGED`] and they need no ack.
//! 4. A large message ([`Flags::LARGE`]) is always acknowledged explicitly, unless it is marked `LOGGED`.
//! 5. When too much is unacknowledged the sender asks, once until it is answered
//!    ([`SendWindow::poll_ack_request`]).
//!
//! Who doesn't use epochs (plain sender-based logging) never calls `begin_epoch`: rules 2 and 3 then never
//! apply, and the same windows work with piggybacked acks and requests alone.
//!
//! # What the paper leaves open
//!
//! - **Which epoch an ack carries.** The receive epoch of *its* SSN, not the receiver's current one, and all
//!   SSNs that one ack newly covers have that same receive epoch. The receiver therefore *cuts* its cumulative
//!   acks wherever the receive epoch changes and gives the cuts out oldest first: see [`RecvWindow`].
//! - **Messages marked `LOGGED`** aren't exempt from cumulative acks, only from explicit ones: the next cut
//!   covers them, so their receive epochs become known for replay (Figure 3, line 65) and for collection.
//! - **The mark must fall when the receiver rolls back**: [`SendWindow::receiver_rolled_back`].
//! - **Receive epochs go stale** when a receiver rolls back and then receives at other moments: what it had
//!   acknowledged beyond its restored checkpoint counts as unacknowledged and is acknowledged anew. A sender that
//!   restores a checkpoint older than that unlearns everything: [`SendWindow::restore`].
//! - **Duplicates are acknowledged again**, with the receive epoch that they had the first time, so that a
//!   sender that rolled back learns again what its log is for (Figure 3, lines 29-32, never acks them).
//! - **A sender that repeats itself** may send something new before it hears what was said of the duplicates. So the first new message
//!   that has to be logged is acknowledged explicitly (rule 2) even where one of the duplicates was.
//! - **Incarnations.** A message of a dead incarnation is discarded before anything else looks at it.
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

//! Counterfoil over MPI.
//!
//! The bindings are `mpi-sys`: every call's return code is looked at, and what MPI says of an error is in [`MpiError`]. MPI is
//! initialised once a process, by [`Universe`]; a [`Comm`] is a communicator of it.
//!
//! | module | what it has |
//! |---|---|
//! | [`universe`], [`comm`] | MPI as far as it is needed here, with errors in place of aborts |
//! | [`transport`], [`job`] | ranks of an MPI job under the runtime's endpoint and protocols, without failures |
//! | [`pairs`], [`ping_pong`] | what takes turns when it is measured, and what the programs share that do so |
//! | [`logged`] | for authors of applications: communicators whose messages are logged, with errors in place of aborts |
//! | [`room`] | who is asked for room in a full log, who answers when, and when a wait is given up |
//! | [`stream`], [`matching`], [`acks`] | what a log needs to know of messages that carry nothing: `docs/piggyback.md` says why that suffices |
//!
//! `unsafe` is here because MPI is a C interface; every block says what it rests on.

pub mod acks;
mod collective;
pub mod comm;
mod completion;
mod desk;
mod error;
pub mod job;
pub mod logged;
pub mod matching;
mod operation;
pub mod pairs;
pub mod ping_pong;
mod point_to_point;
mod request;
pub mod room;
pub mod stream;
mod topology;
pub mod transport;
pub mod universe;

pub use comm::{Comm, Matched, Sending};
pub use desk::JobResult;
pub use error::MpiError;
pub use operation::{Number, Operation, SystemOperation, UserOperation, reduce_local_into};
pub use point_to_point::Envelope;
pub use topology::{CartesianLayout, CommunicatorRelation};
pub use transport::MpiTransport;
pub use universe::{BUFFER_OVERHEAD, Threads, Universe};

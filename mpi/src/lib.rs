//! Counterfoil over MPI.
//!
//! The bindings are `mpi-sys`: every call's return code is looked at, and what MPI says of an error is in [`MpiError`]. MPI is
//! initialised once a process, by [`Universe`]; a [`Comm`] is a communicator of it.
//!
//! | module | what it has |
//! |---|---|
//! | [`universe`], [`comm`] | MPI as far as it is needed here, with errors in place of aborts |
//! | `transport`, `job` | ranks of an MPI job under the runtime's endpoint and protocols, which outlive failures (feature `job`) |
//! | [`logged`] | for authors of applications: communicators whose messages are logged, with errors in place of aborts (feature `job`) |
//! | [`recovery`], `recovering` | for authors of applications: killed processes are replaced (feature `job`) |
//! | [`control`] | the control communicator of the loggers ([`counterfoil_mpi_logger`]), process failures |
//!
//! `unsafe` is here because MPI is a C interface; every block says what it rests on.

#[cfg(feature = "job")]
mod collective;
pub mod comm;
#[cfg(feature = "job")]
mod completion;
pub mod control;
#[cfg(feature = "job")]
pub mod costs;
mod error;
#[cfg(feature = "job")]
pub mod job;
mod launcher;
#[cfg(feature = "job")]
pub mod logged;
#[cfg(feature = "job")]
pub mod membership;
#[cfg(feature = "job")]
pub mod native;
#[cfg(feature = "job")]
mod operation;
#[cfg(feature = "job")]
mod point_to_point;
#[cfg(feature = "job")]
mod recovering;
#[cfg(feature = "job")]
pub mod recovery;
#[cfg(feature = "job")]
mod request;
#[cfg(feature = "job")]
mod topology;
#[cfg(feature = "job")]
pub mod transport;
#[cfg(feature = "job")]
mod ulfm;
pub mod universe;

pub use comm::{Comm, Matched, Sending};
pub use error::MpiError;
#[cfg(feature = "job")]
pub use operation::{Number, Operation, SystemOperation, UserOperation, reduce_local_into};
#[cfg(feature = "job")]
pub use point_to_point::Envelope;
#[cfg(feature = "job")]
pub use topology::{CartesianLayout, CommunicatorRelation};
#[cfg(feature = "job")]
pub use transport::MpiTransport;
pub use universe::{BUFFER_OVERHEAD, Threads, Universe};

//! Counterfoil over MPI.
//!
//! - [`transport`], [`job`]: failure-tolerant ranks of an MPI job, under the runtime's endpoint and protocols
//! - [`logged`]: for application authors: communicators with logged messages, with errors in place of aborts
//! - [`recovery`], `recovering`: for application authors: killed processes are replaced
//!
//! MPI itself, as far as it is needed here, is [`counterfoil_mpi_core`].

pub mod costs;
pub mod error;
mod immediate;
pub mod job;
pub mod logged;
pub mod membership;
pub mod native;
pub mod recovering;
pub mod recovery;
pub mod transport;

pub use counterfoil_mpi_core::envelope::Envelope;
pub use counterfoil_mpi_core::operation::{Number, Operation, SystemOperation, UserOperation, reduce_local_into};
pub use counterfoil_mpi_core::topology::{CartesianLayout, CommunicatorRelation};
pub use counterfoil_mpi_core::universe::BUFFER_OVERHEAD;
pub use counterfoil_mpi_core::{Comm, MpiError, Threads, Universe};
pub use transport::MpiTransport;

//! What goes wrong with a message that is logged.

use counterfoil::{AppendError, CheckpointError, OpenError};

use crate::acks::ReleaseError;
use crate::error::MpiError;

/// Why a call of a [`LoggedCommunicator`](super::LoggedCommunicator) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggedError {
    /// MPI refused.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The log can't be made.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Other ranks can't make theirs.
    #[error("{ranks} other ranks can't make their logs")]
    Others {
        /// How many.
        ranks: u32,
    },
    /// The log takes no more, and was not told to wait. The message was not sent.
    #[error(transparent)]
    Append(#[from] Box<AppendError>),
    /// An acknowledgement can't be taken.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// The log can't be kept.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The communicator has no such rank.
    #[error("there is no rank {rank} in a communicator of {size}")]
    NoSuchRank {
        /// Which.
        rank: u32,
        /// How many there are.
        size: u32,
    },
    /// A message is no whole number of the elements that were asked for, or not as many. It was received, and is lost.
    #[error("a message of {len} bytes from rank {source_rank} was received as elements of {element} bytes")]
    Elements {
        /// Who sent it.
        source_rank: u32,
        /// How many bytes.
        len: usize,
        /// Of the elements.
        element: usize,
    },
    /// After [`finish`](super::LoggedUniverse::finish).
    #[error("the log is finished: nothing can be sent or received any more")]
    Finished,
}

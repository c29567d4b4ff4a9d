//! Errors of logged communicators.

use counterfoil::{AppendError, CheckpointError, OpenError};
use counterfoil_mpi_core::error::MpiError;
use counterfoil_mpi_logger::{DriverError, NumberTaken, ReleaseError, SpaceError};

use crate::error::OperationError;

/// Error from a call on a [`LoggedCommunicator`](super::LoggedCommunicator).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggedError {
    /// MPI returned an error.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// A call in a recovering job failed.
    ///
    /// Except after a wrong tag, open requests or too many of them, the rank can't go on.
    #[error(transparent)]
    Recovery(#[from] counterfoil_runtime::Error),
    /// Communicators in a recovering job lack the operation.
    #[error("{call} is not available in a job that recovers")]
    NotRecoverable {
        /// MPI function name.
        call: &'static str,
    },
    /// The operation is for recovering jobs.
    #[error("this job doesn't recover: `counterfoil_mpi::recovery::run_logged` runs one that does")]
    NotRecovering,
    /// No communicator on this rank has the number.
    #[error("there is no communicator with number {number}, and there was none at the last checkpoint")]
    NoSuchCommunicator {
        /// The number.
        number: u32,
    },
    /// Communicators or requests from a recovering job are used together with others.
    #[error("communicators and requests of a job that recovers can't be used together with others")]
    Mixed,
    /// The log can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Other ranks can't open their logs.
    #[error("{ranks} other ranks can't open their logs")]
    PeersOpen {
        /// Number of these ranks.
        ranks: u32,
    },
    /// The log is full, and sends have no time to wait (`set_deadlock_after`).
    ///
    /// The message was not sent.
    #[error(transparent)]
    Append(#[from] Box<AppendError>),
    /// The log is full, and no rank can make room.
    ///
    /// The message was not sent, or the operation not begun: the program may receive first and try again. If it can't,
    /// it has to end the job ([`abort`](super::LoggedCommunicator::abort)), since others may wait for this rank.
    #[error("{0}. `memory_bytes_max` gives the log more, `set_deadlock_after` gives the others more time")]
    Space(#[from] SpaceError),
    /// Two communicators of this process have the same number.
    #[error(transparent)]
    Number(#[from] NumberTaken),
    /// Another rank has dropped its log without [`finish`](super::LoggedUniverse::finish), like a program ending with
    /// an error.
    #[error("rank {rank} has dropped its log without finishing it")]
    PeerDropped {
        /// The other rank.
        rank: u32,
    },
    /// An acknowledgement can't be applied.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// The log can't be written to disk.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The communicator has no such rank.
    #[error("there is no rank {rank} in a communicator of {size}")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// Number of ranks in the communicator.
        size: u32,
    },
    /// A message's length doesn't fit the requested element type or number.
    ///
    /// The message was received, and is lost.
    #[error("a message of {len} bytes from rank {source_rank} was received as elements of {element} bytes")]
    Elements {
        /// The sender.
        source_rank: u32,
        /// Message length, in bytes.
        len: usize,
        /// Element size, in bytes.
        element: usize,
    },
    /// The root called the other ranks' form of an operation, or another rank called the root's.
    #[error("rank {rank} called the wrong form of an operation whose root is rank {root}")]
    NotRoot {
        /// The root.
        root: u32,
        /// The caller.
        rank: u32,
    },
    /// A receive was cancelled by the end of its scope.
    #[error("the receive was cancelled before a message arrived")]
    Cancelled,
    /// One of several requests failed, and is complete.
    #[error("request {index}: {error}")]
    Request {
        /// Request index.
        index: usize,
        /// Its error.
        #[source]
        error: Box<LoggedError>,
    },
    /// A part ends after the end of the memory, or there are not as many displacements as lengths.
    #[error("{counts} lengths and {places} displacements don't describe parts of {len} elements")]
    Partition {
        /// Number of lengths.
        counts: usize,
        /// Number of displacements.
        places: usize,
        /// Number of elements in the memory.
        len: usize,
    },
    /// A group has a rank that isn't in the communicator.
    #[error("rank {rank} of MPI_COMM_WORLD is in the group and not in the communicator")]
    NotInCommunicator {
        /// The rank, in MPI_COMM_WORLD.
        rank: u32,
    },
    /// A list of distinct ranks has a rank twice.
    #[error("rank {rank} is listed twice")]
    DuplicateRank {
        /// The rank.
        rank: u32,
    },
    /// The number of values differs from a grid's number of dimensions.
    #[error("{given} values were given for a grid of {dims} dimensions")]
    Dimensions {
        /// Number of values.
        given: usize,
        /// Number of dimensions.
        dims: usize,
    },
    /// A grid has no such dimension.
    #[error("there is no dimension {dimension} in a grid of {dims}")]
    NoSuchDimension {
        /// The dimension.
        dimension: usize,
        /// Number of dimensions.
        dims: usize,
    },
    /// A coordinate outside a grid.
    #[error("coordinate {coordinate} is outside a dimension of {ranks} ranks")]
    NoSuchCoordinate {
        /// The coordinate.
        coordinate: i32,
        /// Number of ranks in the dimension.
        ranks: u32,
    },
    /// The call came after [`finish`](super::LoggedUniverse::finish).
    #[error("the log is finished: no message can be sent or received")]
    Finished,
}

impl From<DriverError<MpiError>> for LoggedError {
    fn from(error: DriverError<MpiError>) -> LoggedError {
        match error {
            DriverError::Channel(error) => LoggedError::Mpi(error),
            DriverError::Release(error) => LoggedError::Release(error),
        }
    }
}

impl From<OperationError> for LoggedError {
    fn from(error: OperationError) -> LoggedError {
        match error {
            OperationError::Mpi(error) => LoggedError::Mpi(error),
            OperationError::Endpoint(error) => LoggedError::Recovery(error),
            OperationError::NotRecoverable { call } => LoggedError::NotRecoverable { call },
            OperationError::Mixed => LoggedError::Mixed,
            OperationError::Ended => LoggedError::Finished,
        }
    }
}

//! What goes wrong with a message that is logged.

use counterfoil::{AppendError, CheckpointError, OpenError};
use counterfoil_mpi_logger::{NumberTaken, ReleaseError, SpaceError};

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
    /// No space in the log will become free. The message was not sent, or the operation not begun: the program may receive first and try
    /// again. If it can't, it has to end the job ([`abort`](super::LoggedCommunicator::abort)), since others may wait for this rank.
    #[error("{0}. `memory_bytes_max` gives the log more, `set_deadlock_after` gives the others more time")]
    Space(#[from] SpaceError),
    /// Two communicators of this process have the same number.
    #[error(transparent)]
    Number(#[from] NumberTaken),
    /// Another rank doesn't come to the end: it has let go of its log without [`finish`](super::LoggedUniverse::finish), as a program does
    /// that ends with an error.
    #[error("rank {rank} has gone away without finishing its log")]
    Gone {
        /// Which.
        rank: u32,
    },
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
    /// The root called what the others call, or one of them what the root does.
    #[error("rank {rank} called the other side of what rank {root} is the root of")]
    NotRoot {
        /// The root.
        root: u32,
        /// Who called.
        rank: u32,
    },
    /// A receive was called off: by the end of its scope.
    #[error("the receive was called off before a message came")]
    CalledOff,
    /// One of several requests failed. It is over.
    #[error("request {index}: {error}")]
    Request {
        /// Which of them.
        index: usize,
        /// Why.
        #[source]
        error: Box<LoggedError>,
    },
    /// Parts that reach behind the memory that they are parts of, or not as many lengths as places.
    #[error("{counts} parts at {places} places of {len} elements: not all of them are there")]
    Partition {
        /// How many lengths there are.
        counts: usize,
        /// How many places.
        places: usize,
        /// How many elements.
        len: usize,
    },
    /// A group has a rank that the communicator doesn't have.
    #[error("the group has rank {rank} of MPI_COMM_WORLD, and the communicator doesn't")]
    NoMember {
        /// Which.
        rank: u32,
    },
    /// A rank was named twice where each can be named once.
    #[error("rank {rank} is named twice")]
    Twice {
        /// Which.
        rank: u32,
    },
    /// Not one number for each dimension of a grid.
    #[error("{given} numbers were given for a grid of {dims} dimensions")]
    Dimensions {
        /// How many were given.
        given: usize,
        /// How many there have to be.
        dims: usize,
    },
    /// A grid has no such dimension.
    #[error("there is no dimension {dimension} in a grid of {dims}")]
    NoSuchDimension {
        /// Which.
        dimension: usize,
        /// How many there are.
        dims: usize,
    },
    /// A place outside a grid.
    #[error("there is no place {coordinate} in a dimension of {ranks}")]
    NoSuchPlace {
        /// The place.
        coordinate: i32,
        /// How many ranks the dimension has.
        ranks: u32,
    },
    /// After [`finish`](super::LoggedUniverse::finish).
    #[error("the log is finished: nothing can be sent or received any more")]
    Finished,
}

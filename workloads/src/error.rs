//! Errors of a workload.

use counterfoil_runtime::saved::StateMemoryError;

use crate::{Class, StateError};

/// A rank's part of a workload failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of the communicator failed.
    #[error(transparent)]
    Communicator(#[from] counterfoil_runtime::Error),
    /// The number of ranks is invalid.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// This run can't resume from the saved state.
    #[error(transparent)]
    State(#[from] StateError),
    /// Too much is lost.
    #[error(transparent)]
    Unrecoverable(#[from] UnrecoverableError),
    /// A received message is invalid.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// A workload can't run on this number of ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// The number is not a power of two, as the 2-D process grid requires.
    #[error("{workload} needs a power of two of ranks, not {ranks}")]
    NotPowerOfTwo {
        /// The workload.
        workload: &'static str,
        /// The requested number of ranks.
        ranks: u32,
    },
    /// The workload needs more ranks.
    #[error("{workload} needs at least {at_least} ranks, not {ranks}")]
    TooFew {
        /// The workload.
        workload: &'static str,
        /// The requested number of ranks.
        ranks: u32,
        /// Smallest valid number.
        at_least: u32,
    },
    /// The grid of processes has another size.
    #[error("{workload} on a grid of {rows}x{columns} needs as many ranks, not {ranks}")]
    OtherGrid {
        /// The workload.
        workload: &'static str,
        /// The requested number of ranks.
        ranks: u32,
        /// Number of process rows.
        rows: usize,
        /// Number of process columns.
        columns: usize,
    },
    /// The workload has no work for so many ranks.
    #[error("{workload} of class {class} has work for at most {at_most} ranks, not {ranks}")]
    TooMany {
        /// The workload.
        workload: &'static str,
        /// Size of the problem.
        class: Class,
        /// The requested number of ranks.
        ranks: u32,
        /// Largest valid number.
        at_most: u32,
    },
}

/// More ranks are lost than checksums can rebuild.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "checksums rebuild one lost rank of each process row: ranks {ranks:?} of row {row} are lost, and their state with them"
)]
pub struct UnrecoverableError {
    /// The lost ranks of the process row.
    pub ranks: Vec<u32>,
    /// The process row.
    pub row: usize,
}

impl From<StateMemoryError> for Error {
    fn from(error: StateMemoryError) -> Error {
        counterfoil_runtime::Error::from(error).into()
    }
}

impl RanksError {
    /// Checks that `ranks` is a power of two.
    pub(crate) fn check_power_of_two(workload: &'static str, ranks: u32) -> Result<(), RanksError> {
        if ranks.is_power_of_two() { Ok(()) } else { Err(RanksError::NotPowerOfTwo { workload, ranks }) }
    }
}

/// A received message is not one that this program sends: a message was lost, modified or confused with another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} got {len} bytes with tag {tag} from rank {source_rank} where it expects {expected}")]
pub struct MessageError {
    /// Rank that received the message.
    pub rank: u32,
    /// Source of the message.
    pub source_rank: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Length of the message in bytes.
    pub len: usize,
    /// Expected contents.
    pub expected: &'static str,
}

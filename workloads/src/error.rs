//! Workload errors.

use counterfoil_runtime::saved::StateMemoryError;

use crate::{Class, StateError};

/// Failure of a rank's part of a workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A communicator call failed.
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

/// Number of ranks unsuitable for a workload.
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
    /// The process grid has another size.
    #[error("{workload} on a grid of {rows}x{columns} needs as many ranks, not {ranks}")]
    OtherGrid {
        /// The workload.
        workload: &'static str,
        /// The requested number of ranks.
        ranks: u32,
        /// Process rows.
        rows: usize,
        /// Process columns.
        columns: usize,
    },
    /// The workload has no work for so many ranks.
    #[error("{workload} of class {class} has work for at most {at_most} ranks, not {ranks}")]
    TooMany {
        /// The workload.
        workload: &'static str,
        /// Problem size.
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
    /// Lost ranks in the process row.
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

/// Received message never sent by this program: a message was lost, modified or confused with another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} got {len} bytes with tag {tag} from rank {source_rank} where it expects {expected}")]
pub struct MessageError {
    /// Receiving rank.
    pub rank: u32,
    /// Message source.
    pub source_rank: u32,
    /// Message tag.
    pub tag: i32,
    /// Message length in bytes.
    pub len: usize,
    /// Expected contents.
    pub expected: &'static str,
}

//! Why a workload couldn't be run.

use crate::{Class, StateError};

/// Why a rank's part of a workload ended without an outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of the communicator failed.
    #[error(transparent)]
    Communicator(#[from] counterfoil_runtime::Error),
    /// The workload doesn't run on that many ranks.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// The saved state is not one that this run can go on from.
    #[error(transparent)]
    State(#[from] StateError),
    /// A message that no rank of this program sends.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// A number of ranks that a workload cannot run on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// The 2-D process grid has a power of two of columns and of rows.
    #[error("cg needs a power of two of ranks, not {ranks}")]
    NotPowerOfTwo {
        /// How many ranks were asked for.
        ranks: u32,
    },
    /// Fewer than the workload has roles for.
    #[error("{workload} needs at least {at_least} ranks, not {ranks}")]
    TooFew {
        /// The workload.
        workload: &'static str,
        /// How many ranks were asked for.
        ranks: u32,
        /// How many there must be.
        at_least: u32,
    },
    /// More than the workload is made for: some ranks would have nothing to do.
    #[error("{workload} of class {class} has work for at most {at_most} ranks, not {ranks}")]
    TooMany {
        /// The workload.
        workload: &'static str,
        /// Its size.
        class: Class,
        /// How many ranks were asked for.
        ranks: u32,
        /// How many there may be.
        at_most: u32,
    },
}

/// A message that no rank of this program sends: it was lost, changed or mixed up on its way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank} got {len} bytes with tag {tag} from rank {source_rank} where it expects {expected}")]
pub struct MessageError {
    /// The rank that received it.
    pub rank: u32,
    /// The rank that it came from.
    pub source_rank: u32,
    /// Its tag.
    pub tag: i32,
    /// Its length in bytes.
    pub len: usize,
    /// What was expected instead.
    pub expected: &'static str,
}

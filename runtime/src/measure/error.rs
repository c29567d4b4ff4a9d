//! Why a job can't be measured.

use counterfoil::Rank;
use counterfoil_protocols::frame::{HelloError, ProtocolError};
use counterfoil_protocols::send_deterministic::{ClustersError, RecoveryError};
use thiserror::Error;

/// Why a job can't be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A message from or to a rank that doesn't exist, or from a rank to itself.
    #[error("a message from rank {from} to rank {to}, in a job of {ranks} ranks")]
    Hop {
        /// Its source.
        from: u32,
        /// Its destination.
        to: u32,
        /// How many ranks there are.
        ranks: u32,
    },
    /// Clusters of another job.
    #[error("clusters of {clusters} ranks for a job of {ranks}")]
    Clusters {
        /// How many ranks are in clusters.
        clusters: usize,
        /// How many there are.
        ranks: u32,
    },
    /// More clusters than there are epochs for.
    #[error(transparent)]
    Epochs(#[from] ClustersError),
    /// A state machine refused an event that a job without failures has: a defect of the rule.
    #[error("{rank} refused what a job without failures does: {source}")]
    Refused {
        /// Which rank.
        rank: Rank,
        /// What it said.
        source: ProtocolError,
    },
    /// The recovery process refused a report.
    #[error("the recovery process refused a report: {0}")]
    Recovery(#[from] RecoveryError),
    /// A Hello that its receiver couldn't read.
    #[error("{rank} said a Hello that can't be sent: {source}")]
    Hello {
        /// Which rank.
        rank: Rank,
        /// What is wrong with it.
        source: HelloError,
    },
    /// The rule did something that it does in recoveries only.
    #[error("{rank} did in a job without failures: {what}")]
    Unexpected {
        /// Which rank.
        rank: Rank,
        /// What it did.
        what: String,
    },
}

//! Error of this module.

use counterfoil_log_core::Rank;
use counterfoil_protocols::api::{CoordinatorError, HelloError, ProtocolError};
use counterfoil_protocols::send_deterministic::ClustersError;
use thiserror::Error;

/// Reason that a job can't be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// Message from or to a rank that doesn't exist, or from a rank to itself.
    #[error("a message from rank {from} to rank {to}, in a job of {ranks} ranks")]
    Hop {
        /// Source of the message.
        from: u32,
        /// Destination of the message.
        to: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// Clusters of another job.
    #[error("clusters of {clusters} ranks for a job of {ranks}")]
    Clusters {
        /// Number of ranks in clusters.
        clusters: usize,
        /// Number of ranks in the job.
        ranks: u32,
    },
    /// More clusters than there are epochs for.
    #[error(transparent)]
    Epochs(#[from] ClustersError),
    /// Event of a job without failures that a state machine refused: a defect of the rule.
    #[error("{rank} refused what a job without failures does: {source}")]
    Refused {
        /// Rank concerned.
        rank: Rank,
        /// Error of the state machine.
        source: ProtocolError,
    },
    /// Report that the recovery process refused.
    #[error("the recovery process refused a report: {0}")]
    Recovery(#[from] CoordinatorError),
    /// Hello that its receiver couldn't read.
    #[error("{rank} has a Hello that can't be sent: {source}")]
    Hello {
        /// Rank concerned.
        rank: Rank,
        /// Error of the Hello.
        source: HelloError,
    },
    /// Effect that the rule has in recoveries only.
    #[error("{rank} did in a job without failures: {what}")]
    Unexpected {
        /// Rank concerned.
        rank: Rank,
        /// Effect in question.
        what: String,
    },
}

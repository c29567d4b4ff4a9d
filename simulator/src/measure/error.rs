//! Errors in measurements.

use counterfoil_log_core::Rank;
use counterfoil_protocols::api::{CoordinatorError, HelloError, ProtocolError};
use counterfoil_protocols::send_deterministic::ClustersError;
use thiserror::Error;

/// Reason a job can't be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// Message from or to a nonexistent rank, or from a rank to itself.
    #[error("a message from rank {from} to rank {to}, in a job of {ranks} ranks")]
    Hop {
        /// Message source.
        from: u32,
        /// Message destination.
        to: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// Clusters for another job.
    #[error("clusters of {clusters} ranks for a job of {ranks}")]
    Clusters {
        /// Number of ranks in clusters.
        clusters: usize,
        /// Number of ranks in the job.
        ranks: u32,
    },
    /// More clusters than available epochs.
    #[error(transparent)]
    Epochs(#[from] ClustersError),
    /// Event in a job without failures refused by a state machine: a defect in the rule.
    #[error("{rank} refused what a job without failures does: {source}")]
    Refused {
        /// Rank concerned.
        rank: Rank,
        /// State machine error.
        source: ProtocolError,
    },
    /// Report refused by the recovery process.
    #[error("the recovery process refused a report: {0}")]
    Recovery(#[from] CoordinatorError),
    /// Hello unreadable for its receiver.
    #[error("{rank} has a Hello that can't be sent: {source}")]
    Hello {
        /// Rank concerned.
        rank: Rank,
        /// Hello error.
        source: HelloError,
    },
    /// Effect reserved for recoveries.
    #[error("{rank} did in a job without failures: {what}")]
    Unexpected {
        /// Rank concerned.
        rank: Rank,
        /// Effect in question.
        what: String,
    },
}

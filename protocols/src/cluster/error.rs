//! Error of this module.

use counterfoil_log_core::Rank;

/// Impossible clusters, or ones unfit for the traffic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No rank to put into a cluster.
    #[error("there are no ranks")]
    NoRanks,
    /// Clusters without ranks, or no clusters.
    #[error("there must be at least one cluster, and one rank in each")]
    NoClusters,
    /// More clusters than ranks, or than there are epochs for.
    #[error("{clusters} clusters are too many")]
    TooManyClusters {
        /// Requested number of clusters.
        clusters: u64,
    },
    /// Gap in the cluster numbers.
    #[error("no rank is in cluster {cluster}, but some are in clusters of higher number")]
    EmptyCluster {
        /// First number left out.
        cluster: u32,
    },
    /// Traffic for a nonexistent rank.
    #[error("{rank} is not one of {ranks} ranks")]
    NoSuchRank {
        /// Named rank.
        rank: Rank,
        /// Rank count.
        ranks: u32,
    },
    /// Sum of weights too large.
    #[error("the weights of the traffic sum up to more than {at_most}")]
    TooMuchTraffic {
        /// Largest sum allowed.
        at_most: u64,
    },
    /// Clusters and traffic from different jobs.
    #[error("the clusters are of {clusters} ranks, the traffic is of {traffic}")]
    Ranks {
        /// Ranks in the clusters.
        clusters: usize,
        /// Ranks in the traffic.
        traffic: usize,
    },
}

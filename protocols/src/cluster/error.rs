//! Why there are no clusters.

use counterfoil_log_core::Rank;

/// Clusters that can't be, or that don't fit the traffic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// There is nobody to put into a cluster.
    #[error("there are no ranks")]
    NoRanks,
    /// Clusters of no ranks, or no clusters.
    #[error("there must be at least one cluster, and one rank in each")]
    NoClusters,
    /// More clusters than ranks, or than there are epochs for.
    #[error("{clusters} clusters are too many")]
    TooManyClusters {
        /// How many were asked for.
        clusters: u64,
    },
    /// The numbers of the clusters have a gap.
    #[error("no rank is in cluster {cluster}, but some are in clusters of higher number")]
    EmptyCluster {
        /// The first number that is left out.
        cluster: u32,
    },
    /// Traffic of a rank that doesn't exist.
    #[error("{rank} is not one of {ranks} ranks")]
    NoSuchRank {
        /// The rank.
        rank: Rank,
        /// How many there are.
        ranks: u32,
    },
    /// Weights can't be added up.
    #[error("the weights of the traffic sum up to more than {at_most}")]
    TooMuchTraffic {
        /// The largest sum.
        at_most: u64,
    },
    /// Clusters and traffic are not of the same job.
    #[error("the clusters are of {clusters} ranks, the traffic is of {traffic}")]
    Ranks {
        /// Ranks in the clusters.
        clusters: usize,
        /// Ranks in the traffic.
        traffic: usize,
    },
}

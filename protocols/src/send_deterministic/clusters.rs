//! Rank clusters with epochs kept apart, so that messages from a lower to a higher one are logged.

use counterfoil_log_core::{Epoch, Rank};
use thiserror::Error;

/// Cluster of each rank, and the distance between the clusters' first epochs (Guermouche 2011, section V.E.3).
///
/// The paper begins clusters two epochs apart, so that they don't meet while one takes a checkpoint. This holds only
/// while no cluster takes two checkpoints before the next one takes one. Here it is enforced: a rank in cluster c
/// begins an epoch only if it is below the smallest durable epoch in cluster c + 1, as the last collection found it
/// (before the first, and after a failure until the next: below where c + 1 begins). The highest cluster is free.
///
/// A rollback may take ranks in c + 1 back to epochs already reached by c. Until they have executed again as far,
/// messages from c to them are not logged, and a failure rolls more ranks back. To keep clusters apart there too, c
/// would have to stay below the floors of c + 1, which trail by some checkpoints for each cluster below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    of: Vec<u32>,
    gap: u32,
}

/// Error from [`Clusters::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClustersError {
    /// With a gap below 2 only the highest cluster could ever take the first checkpoint.
    #[error("clusters {gap} epochs apart; at least 2 are needed")]
    Gap {
        /// Gap asked for.
        gap: u32,
    },
    /// A cluster would begin beyond [`Epoch::MAX`].
    #[error("cluster {cluster} would begin beyond the last epoch")]
    Cluster {
        /// Cluster number.
        cluster: u32,
    },
}

impl Clusters {
    /// Puts rank r into cluster `of[r]`; cluster c begins in epoch 1 + c times `gap`.
    ///
    /// Costs 4 bytes a rank.
    ///
    /// # Errors
    /// Gap below 2, or a cluster beginning beyond [`Epoch::MAX`].
    pub fn new(of: Vec<u32>, gap: u32) -> Result<Clusters, ClustersError> {
        if gap < 2 {
            return Err(ClustersError::Gap { gap });
        }
        let limit = (Epoch::MAX.0 - Epoch::FIRST.0) / gap;
        match of.iter().find(|&&cluster| cluster >= limit) {
            Some(&cluster) => Err(ClustersError::Cluster { cluster }),
            None => Ok(Clusters { of, gap }),
        }
    }

    /// Divides the ranks into `clusters` clusters of neighbours, equal in size as far as possible; at least one, and at
    /// most one for each rank.
    ///
    /// # Errors
    /// See [`Clusters::new`].
    pub fn contiguous(ranks: u32, clusters: u32, gap: u32) -> Result<Clusters, ClustersError> {
        let (ranks, clusters) = (u64::from(ranks), u64::from(clusters.clamp(1, ranks.max(1))));
        Clusters::new((0..ranks).map(|rank| (rank * clusters / ranks) as u32).collect(), gap)
    }

    /// Returns a rank's cluster; an unnamed rank is in cluster 0.
    #[must_use]
    pub fn cluster_of(&self, rank: Rank) -> u32 {
        self.of.get(rank.index()).copied().unwrap_or(0)
    }

    /// Returns the first epoch of a cluster.
    #[must_use]
    pub fn first_epoch(&self, cluster: u32) -> Epoch {
        Epoch(Epoch::FIRST.0 + cluster * self.gap)
    }

    /// Returns [`Config::first_epoch`](super::Config::first_epoch) and [`Config::ceiling`](super::Config::ceiling) for
    /// a rank.
    #[must_use]
    pub fn epochs_of(&self, rank: Rank) -> (Epoch, Epoch) {
        let cluster = self.cluster_of(rank);
        let next = self.of.iter().copied().filter(|&other| other > cluster).min();
        (self.first_epoch(cluster), next.map_or(Epoch::MAX, |next| self.first_epoch(next)))
    }

    /// Returns for each rank the minimum of `epochs` in the next cluster above its own; `u32::MAX` in the highest.
    pub(super) fn ceilings(&self, epochs: &[u32]) -> Vec<u32> {
        let mut smallest = std::collections::BTreeMap::new();
        for (rank, &epoch) in (0..).map(Rank).zip(epochs) {
            let entry = smallest.entry(self.cluster_of(rank)).or_insert(epoch);
            *entry = epoch.min(*entry);
        }
        let above = |cluster: u32| smallest.range(cluster + 1..).next().map_or(u32::MAX, |(_, &epoch)| epoch);
        (0..).map(Rank).zip(epochs).map(|(rank, _)| above(self.cluster_of(rank))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_begin_apart_and_are_bounded_by_the_next_one() {
        let clusters = Clusters::new(vec![0, 2, 0, 2], 2).unwrap();
        assert_eq!(clusters.epochs_of(Rank(0)), (Epoch(1), Epoch(5)));
        assert_eq!(clusters.epochs_of(Rank(1)), (Epoch(5), Epoch::MAX));
        assert_eq!(clusters.ceilings(&[1, 8, 2, 6]), [6, u32::MAX, 6, u32::MAX]);
    }

    #[test]
    fn a_gap_of_one_and_a_cluster_beyond_the_last_epoch_are_refused() {
        assert_eq!(Clusters::new(vec![0, 1], 1), Err(ClustersError::Gap { gap: 1 }));
        assert_eq!(Clusters::new(vec![u32::MAX], 2), Err(ClustersError::Cluster { cluster: u32::MAX }));
    }

    #[test]
    fn contiguous_clusters_are_neighbours_and_of_equal_size() {
        let of = |ranks, clusters| Clusters::contiguous(ranks, clusters, 2).unwrap().of;
        assert_eq!(of(8, 2), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(of(5, 2), [0, 0, 0, 1, 1]);
        assert_eq!((of(3, 9), of(2, 0)), (vec![0, 1, 2], vec![0, 0]));
        assert_eq!(of(0, 3), []);
    }
}

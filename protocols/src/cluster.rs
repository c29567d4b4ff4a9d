//! Rank clusters and their first epochs (Guermouche 2011, section V.E.3).
//!
//! A message from a lower to a higher epoch is logged; any other ties its receiver to its sender's rollback. So ranks
//! with much mutual traffic should share an epoch, and only the few messages from one cluster to another with a higher
//! epoch are logged. Clusters start two epochs apart, so one taking a checkpoint doesn't reach the next one's epoch.
//! (They stay apart only while no cluster takes two checkpoints more than its neighbour; the checkpoint scheduler must
//! ensure that.)
//!
//! [`Clusters::blocks`] are the paper's clusters; [`propose`] finds some from measured traffic; [`Share`] measures the
//! logged share of the traffic.
//!
//! ```
//! use counterfoil_log_core::{Epoch, Rank};
//! use counterfoil_protocols::cluster::{Clusters, Share, Traffic};
//! // A ring of four ranks, one message each: of the two that leave a cluster, one goes to a higher epoch.
//! let ring = (0..4).map(|rank| (Rank(rank), Rank((rank + 1) % 4), 1));
//! let traffic = Traffic::new(4, ring)?;
//! let clusters = Clusters::blocks(4, 2)?;
//! assert_eq!(clusters.epoch_of(Rank(3)), Some(Epoch(3)));
//! assert_eq!(Share::of(&traffic, &clusters)?, Share { total: 4, between: 2, logged: 1 });
//! # Ok::<(), counterfoil_protocols::cluster::ClusterError>(())
//! ```

mod agglomerate;
mod error;
mod graph;
mod grow;
mod order;
mod propose;
mod refine;
mod share;
mod traffic;

use counterfoil_log_core::{Epoch, Rank};

pub use error::ClusterError;
pub use propose::propose;
pub use share::Share;
pub use traffic::Traffic;

/// Distance between the first epochs of successive clusters (section V.E.3).
pub const EPOCH_DISTANCE: u32 = 2;

/// Cluster of each rank, and a cluster order: the first starts in the lowest epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// Cluster of each rank, from 0, without gaps.
    of: Vec<u32>,
    /// Place of each cluster in the epoch order, from 0.
    place: Vec<u32>,
}

impl Clusters {
    /// Maximum number of clusters: each needs an epoch, [`EPOCH_DISTANCE`] apart, and room to take checkpoints.
    pub const MAX: u32 = 1 << 30;

    /// Maximum number of clusters for which [`Clusters::ordered`] finds the best order.
    pub const EXACT_ORDER_MAX: usize = 16;

    /// Groups `block` successive ranks each, the remainder in the last cluster; epochs ascend with ranks.
    ///
    /// These are the clusters in the paper's Table I: for 64 ranks and 4 clusters, `block` is 16. The table's rollback
    /// shares for BT at '128' belong to 121 ranks in blocks of 32, 16 and 8, the last one shorter.
    ///
    /// # Errors
    /// [`ClusterError::NoRanks`], [`ClusterError::NoClusters`] if `block` is 0, [`ClusterError::TooManyClusters`].
    pub fn blocks(ranks: u32, block: u32) -> Result<Clusters, ClusterError> {
        if block == 0 {
            return Err(ClusterError::NoClusters);
        }
        Clusters::from_assignment((0..ranks).map(|rank| rank / block).collect())
    }

    /// Takes the cluster of rank 0, 1, ...; epochs ascend with the cluster numbers.
    ///
    /// # Errors
    /// [`ClusterError::NoRanks`], [`ClusterError::EmptyCluster`] if numbers are left out,
    /// [`ClusterError::TooManyClusters`].
    pub fn from_assignment(of: Vec<u32>) -> Result<Clusters, ClusterError> {
        let last = of.iter().copied().max().ok_or(ClusterError::NoRanks)?;
        if last >= Clusters::MAX || u32::try_from(of.len()).is_err() {
            return Err(ClusterError::TooManyClusters { clusters: u64::from(last) + 1 });
        }
        let mut numbers = of.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let gap = (0_u32..).zip(&numbers).find(|&(expected, &number)| number != expected);
        if let Some((cluster, _)) = gap {
            return Err(ClusterError::EmptyCluster { cluster });
        }
        Ok(Clusters { of, place: (0..=last).collect() })
    }

    /// Returns the same clusters, ordered so that few messages go from a cluster to one with a higher epoch.
    ///
    /// Up to [`Clusters::EXACT_ORDER_MAX`] clusters the order is one with the fewest such messages, in time
    /// proportional to 2^k * k for k clusters. Above, it is the better of the given order and its reverse, improved by
    /// moving one cluster at a time while that helps (at most 32 rounds of k^2 steps): at most half the messages
    /// between clusters are logged, as the paper says at the end of section V.E.3.
    ///
    /// # Errors
    /// [`ClusterError::Ranks`] if the traffic has another number of ranks.
    pub fn ordered(self, traffic: &Traffic) -> Result<Clusters, ClusterError> {
        self.check(traffic)?;
        let order = order::min_forward(&self, traffic);
        let mut place = vec![0; order.len()];
        for (position, cluster) in (0..).zip(order) {
            place[cluster as usize] = position;
        }
        Ok(Clusters { of: self.of, place })
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.of.len()
    }

    /// Returns the number of clusters, at least one.
    pub fn count(&self) -> usize {
        self.place.len()
    }

    /// Returns a rank's cluster, from 0; `None` if there is no such rank.
    pub fn cluster_of(&self, rank: Rank) -> Option<u32> {
        self.of.get(rank.index()).copied()
    }

    /// Returns a rank's first epoch; `None` if there is no such rank.
    pub fn epoch_of(&self, rank: Rank) -> Option<Epoch> {
        let cluster = self.cluster_of(rank)?;
        let place = self.place.get(cluster as usize)?;
        Some(Epoch(Epoch::FIRST.0 + EPOCH_DISTANCE * place))
    }

    /// Returns each rank's cluster as its place in the epoch order, from 0, for a protocol numbering clusters by their
    /// epochs: the rank starts in epoch `Epoch::FIRST` + [`EPOCH_DISTANCE`] * place.
    pub fn places(&self) -> Vec<u32> {
        self.of.iter().map(|&cluster| self.place[cluster as usize]).collect()
    }

    /// Returns the cluster sizes in ranks, by cluster number.
    pub fn sizes(&self) -> Vec<u32> {
        let mut sizes = vec![0; self.count()];
        for &cluster in &self.of {
            sizes[cluster as usize] += 1;
        }
        sizes
    }

    fn check(&self, traffic: &Traffic) -> Result<(), ClusterError> {
        if self.ranks() == traffic.ranks() as usize {
            Ok(())
        } else {
            Err(ClusterError::Ranks { clusters: self.ranks(), traffic: traffic.ranks() as usize })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_contiguous_and_two_epochs_apart() {
        let clusters = Clusters::blocks(121, 32).unwrap();
        assert_eq!(clusters.sizes(), [32, 32, 32, 25]);
        assert_eq!(clusters.epoch_of(Rank(31)), Some(Epoch(1)));
        assert_eq!(clusters.epoch_of(Rank(32)), Some(Epoch(3)));
        assert_eq!(clusters.epoch_of(Rank(120)), Some(Epoch(7)));
        assert_eq!(clusters.epoch_of(Rank(121)), None);
    }

    #[test]
    fn another_order_changes_epochs_and_not_clusters() {
        let pairs = [(Rank(0), Rank(2), 5), (Rank(2), Rank(1), 1)];
        let traffic = Traffic::new(4, pairs).unwrap();
        let clusters = Clusters::blocks(4, 2).unwrap().ordered(&traffic).unwrap();
        assert_eq!(clusters.cluster_of(Rank(0)), Some(0));
        assert_eq!(clusters.places(), [1, 1, 0, 0]);
        assert_eq!(clusters.epoch_of(Rank(0)), Some(Epoch(3)));
        assert_eq!(Share::of(&traffic, &clusters).unwrap(), Share { total: 6, between: 6, logged: 1 });
    }

    #[test]
    fn invalid_clusters_are_refused() {
        assert_eq!(Clusters::blocks(8, 0), Err(ClusterError::NoClusters));
        assert_eq!(Clusters::blocks(0, 4), Err(ClusterError::NoRanks));
        assert_eq!(Clusters::from_assignment(vec![0, 2]), Err(ClusterError::EmptyCluster { cluster: 1 }));
        assert_eq!(Clusters::from_assignment(vec![1, 2]), Err(ClusterError::EmptyCluster { cluster: 0 }));
        let too_many = Clusters::from_assignment(vec![u32::MAX]);
        assert_eq!(too_many, Err(ClusterError::TooManyClusters { clusters: 1 << 32 }));
        let traffic = Traffic::new(3, []).unwrap();
        let refused = Clusters::blocks(4, 2).unwrap().ordered(&traffic);
        assert_eq!(refused, Err(ClusterError::Ranks { clusters: 4, traffic: 3 }));
    }
}

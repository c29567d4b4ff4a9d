//! Share of traffic logged because of clusters.

use super::{ClusterError, Clusters, Traffic};

/// Traffic leaving its cluster, and the part going to a higher epoch, which is logged.
///
/// Valid while all clusters have taken equally many checkpoints, so their epochs keep their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// All traffic.
    pub total: u64,
    /// Traffic between ranks in different clusters (sets B and C in section V.E.3).
    pub between: u64,
    /// Traffic from a lower epoch to a higher one (set B).
    pub logged: u64,
}

impl Share {
    /// Measures this traffic with these clusters.
    ///
    /// # Errors
    /// [`ClusterError::Ranks`] if the two have different rank counts.
    pub fn of(traffic: &Traffic, clusters: &Clusters) -> Result<Share, ClusterError> {
        clusters.check(traffic)?;
        let mut share = Share::default();
        for (source, destination, weight) in traffic.pairs() {
            let (from, to) = (clusters.epoch_of(source), clusters.epoch_of(destination));
            share.total += weight;
            share.between += if from != to { weight } else { 0 };
            share.logged += if from < to { weight } else { 0 };
        }
        Ok(share)
    }

    /// Returns the logged traffic in per cent of all: %log in the paper's Table I. 0 if there is no traffic.
    pub fn logged_percent(&self) -> f64 {
        percent(self.logged, self.total)
    }

    /// Returns the traffic between clusters in per cent of all. 0 if there is none.
    pub fn between_percent(&self) -> f64 {
        percent(self.between, self.total)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_per_cent_of_all_traffic() {
        let share = Share { total: 8, between: 6, logged: 1 };
        assert_eq!((share.between_percent(), share.logged_percent()), (75.0, 12.5));
        let none = Share::default();
        assert_eq!((none.between_percent(), none.logged_percent()), (0.0, 0.0));
    }
}

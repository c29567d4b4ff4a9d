//! Checkpoint times of the clusters.

/// Plan of checkpoints in rounds: in each, every cluster takes one, spread evenly over the round's iterations.
///
/// Guermouche 2011 says only that clusters are checkpointed at different times (section V.E.3). All ranks in a cluster
/// take theirs between the same two iterations. The lowest epochs begin; with a round between two collections no
/// cluster takes two checkpoints before the one above takes one, which the rule wouldn't allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of rounds, at least 1.
    ///
    /// The part before a cluster's first checkpoint differs from the rest (nothing was sent in an earlier epoch), so a
    /// long run's tables need at least two.
    pub rounds: u32,
    /// Number of iterations in a round, at least 1.
    pub iterations: u32,
}

impl Default for Plan {
    /// Returns two rounds of eight iterations.
    fn default() -> Plan {
        Plan { rounds: 2, iterations: 8 }
    }
}

impl Plan {
    /// Returns the iteration in a round, from 0, after which the cluster at `place` among `clusters` takes its
    /// checkpoint.
    #[must_use]
    pub fn checkpoint_after(self, place: u32, clusters: u32) -> u32 {
        let after = u64::from(place) * u64::from(self.iterations) / u64::from(clusters.max(1));
        // Below `iterations`, because `place` is below `clusters`.
        u32::try_from(after).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_spread_over_the_round() {
        let plan = Plan { rounds: 2, iterations: 8 };
        let after = |clusters| (0..clusters).map(|place| plan.checkpoint_after(place, clusters)).collect::<Vec<_>>();
        assert_eq!(after(4), [0, 2, 4, 6]);
        assert_eq!(after(16), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
    }
}

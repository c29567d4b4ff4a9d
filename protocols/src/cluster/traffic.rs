//! Sparse communication matrix.

use std::collections::BTreeMap;

use counterfoil_log_core::Rank;

use super::ClusterError;

/// Weight sent by each rank to each other: messages or bytes, in an iteration or a whole run, as the caller chooses.
///
/// Memory: 16 bytes for each ordered pair that communicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// For each source: destinations, ascending, and weights.
    rows: Vec<Vec<(Rank, u64)>>,
    ranks: u32,
}

impl Traffic {
    /// Maximum sum of all weights: a move's gains and losses have to fit into an `i64`.
    pub const TOTAL_MAX: u64 = 1 << 60;

    /// Takes the traffic among `ranks` ranks: (source, destination, weight), in any order.
    ///
    /// Weights for the same pair are added up; a rank's messages to itself and zero weights don't count.
    ///
    /// # Errors
    /// [`ClusterError::NoSuchRank`], [`ClusterError::TooMuchTraffic`] above [`Traffic::TOTAL_MAX`].
    pub fn new(ranks: u32, pairs: impl IntoIterator<Item = (Rank, Rank, u64)>) -> Result<Traffic, ClusterError> {
        let mut rows: Vec<BTreeMap<Rank, u64>> = vec![BTreeMap::new(); ranks as usize];
        let mut total = 0_u64;
        for (source, destination, weight) in pairs {
            if let Some(rank) = [source, destination].into_iter().find(|rank| rank.0 >= ranks) {
                return Err(ClusterError::NoSuchRank { rank, ranks });
            }
            if source == destination || weight == 0 {
                continue;
            }
            total = total
                .checked_add(weight)
                .filter(|&total| total <= Traffic::TOTAL_MAX)
                .ok_or(ClusterError::TooMuchTraffic { at_most: Traffic::TOTAL_MAX })?;
            *rows[source.index()].entry(destination).or_default() += weight;
        }
        Ok(Traffic { rows: rows.into_iter().map(|row| row.into_iter().collect()).collect(), ranks })
    }

    /// Returns the rank count.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns (source, destination, weight) for each communicating ordered pair, ascending.
    pub fn pairs(&self) -> impl Iterator<Item = (Rank, Rank, u64)> {
        (0..).zip(&self.rows).flat_map(|(source, row)| row.iter().map(move |&(to, weight)| (Rank(source), to, weight)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_pair_are_added_up_and_self_messages_left_out() {
        let traffic = Traffic::new(3, [(2, 0, 5), (0, 1, 1), (1, 1, 9), (0, 1, 2), (1, 0, 0)].map(ranks)).unwrap();
        assert_eq!(traffic.pairs().collect::<Vec<_>>(), [(0, 1, 3), (2, 0, 5)].map(ranks));
    }

    #[test]
    fn traffic_that_cannot_be_counted_is_refused() {
        let stranger = Traffic::new(2, [(0, 2, 1)].map(ranks));
        assert_eq!(stranger, Err(ClusterError::NoSuchRank { rank: Rank(2), ranks: 2 }));
        let much = Traffic::new(2, [(0, 1, Traffic::TOTAL_MAX), (1, 0, 1)].map(ranks));
        assert_eq!(much, Err(ClusterError::TooMuchTraffic { at_most: Traffic::TOTAL_MAX }));
        assert!(Traffic::new(2, [(0, 1, u64::MAX)].map(ranks)).is_err());
    }

    fn ranks((source, destination, weight): (u32, u32, u64)) -> (Rank, Rank, u64) {
        (Rank(source), Rank(destination), weight)
    }
}

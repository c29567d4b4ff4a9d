//! Undirected traffic: weights in both directions count against separating two ranks.

use std::collections::BTreeMap;

use super::Traffic;

/// Neighbours of each rank, with the total weight in both directions.
#[derive(Debug)]
pub(super) struct Graph {
    edges: Vec<Vec<(u32, i64)>>,
}

impl Graph {
    pub(super) fn new(traffic: &Traffic) -> Graph {
        let mut edges: Vec<BTreeMap<u32, i64>> = vec![BTreeMap::new(); traffic.ranks() as usize];
        for (source, destination, weight) in traffic.pairs() {
            let weight = weight.cast_signed();
            *edges[source.index()].entry(destination.0).or_default() += weight;
            *edges[destination.index()].entry(source.0).or_default() += weight;
        }
        Graph { edges: edges.into_iter().map(|row| row.into_iter().collect()).collect() }
    }

    pub(super) fn ranks(&self) -> u32 {
        // The traffic's rank count is a u32.
        self.edges.len() as u32
    }

    /// Returns `rank`'s neighbours, ascending, with their weights.
    pub(super) fn edges(&self, rank: u32) -> &[(u32, i64)] {
        &self.edges[rank as usize]
    }

    /// Returns each pair of neighbours once: the lower rank, the higher one, the weight.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (u32, u32, i64)> {
        (0..).zip(&self.edges).flat_map(|(rank, row)| {
            row.iter().filter(move |&&(peer, _)| rank < peer).map(move |&(peer, weight)| (rank, peer, weight))
        })
    }

    /// Returns the weight between different clusters.
    pub(super) fn cut(&self, of: &[u32]) -> i64 {
        self.pairs().filter(|&(a, b, _)| of[a as usize] != of[b as usize]).map(|(_, _, weight)| weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Rank;

    use super::*;

    #[test]
    fn a_pair_has_the_weight_of_both_directions_and_is_listed_once() {
        let pairs = [(0, 1, 1), (1, 0, 2), (2, 0, 4), (2, 1, 8), (1, 1, 16)];
        let traffic = Traffic::new(4, pairs.map(|(a, b, weight)| (Rank(a), Rank(b), weight))).unwrap();
        let graph = Graph::new(&traffic);
        assert_eq!(graph.pairs().collect::<Vec<_>>(), [(0, 1, 3), (0, 2, 4), (1, 2, 8)]);
        assert_eq!((graph.cut(&[0, 0, 1, 1]), graph.cut(&[0, 1, 2, 2])), (12, 15));
    }
}

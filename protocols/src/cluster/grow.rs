//! Refinement start: one cluster after the other, grown from a rank next to the finished ones.
//!
//! A cluster always takes in the rank with the most traffic to it, ties going to the earliest candidate. The next
//! cluster begins with the rank with the most traffic to all assigned ranks. Where ranks have a geometry, clusters
//! grown like this are compact and adjacent, and no remainders are left between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::graph::Graph;

/// Rank with its traffic: most traffic first, then earliest candidate.
type Candidate = (i64, Reverse<u64>, u32);

/// Returns each rank's cluster: `count` clusters, with sizes differing by at most one.
///
/// `count` is 1 to the number of ranks.
pub(super) fn grown(graph: &Graph, count: u32) -> Vec<u32> {
    let ranks = graph.ranks();
    let mut growth = Growth { graph, of: vec![None; ranks as usize], with_all: vec![0; ranks as usize], seen: 0 };
    // All ranks are in the queue from the start, so it doesn't run dry before all have a cluster.
    let mut frontier: BinaryHeap<Candidate> = (0..ranks).map(|rank| (0, Reverse(rank.into()), rank)).collect();
    growth.seen = ranks.into();
    let mut with_cluster = vec![0; ranks as usize];
    for cluster in 0..count {
        let size = ranks / count + u32::from(cluster < ranks % count);
        let mut adjacent: BinaryHeap<Candidate> = BinaryHeap::new();
        let mut touched: Vec<u32> = Vec::new();
        for _ in 0..size {
            let inside = growth.take(&mut adjacent, &with_cluster);
            let Some(rank) = inside.or_else(|| growth.take_frontier(&mut frontier)) else { break };
            growth.of[rank as usize] = Some(cluster);
            for &(peer, weight) in growth.graph.edges(rank) {
                if growth.of[peer as usize].is_some() {
                    continue;
                }
                with_cluster[peer as usize] += weight;
                growth.with_all[peer as usize] += weight;
                growth.seen += 1;
                adjacent.push((with_cluster[peer as usize], Reverse(growth.seen), peer));
                frontier.push((growth.with_all[peer as usize], Reverse(growth.seen), peer));
                touched.push(peer);
            }
        }
        for rank in touched {
            with_cluster[rank as usize] = 0;
        }
    }
    // The sizes add up to the ranks, so no rank is left without a cluster.
    growth.of.into_iter().map(|cluster| cluster.unwrap_or_default()).collect()
}

struct Growth<'a> {
    graph: &'a Graph,
    of: Vec<Option<u32>>,
    /// Traffic between each rank without a cluster and all ranks with one.
    with_all: Vec<i64>,
    seen: u64,
}

impl Growth<'_> {
    /// Returns the first rank in the queue without a cluster yet and with its newest entry.
    fn take(&self, queue: &mut BinaryHeap<Candidate>, weights: &[i64]) -> Option<u32> {
        let newest =
            |&(weight, _, rank): &Candidate| self.of[rank as usize].is_none() && weights[rank as usize] == weight;
        std::iter::from_fn(|| queue.pop()).find(newest).map(|(_, _, rank)| rank)
    }

    fn take_frontier(&self, queue: &mut BinaryHeap<Candidate>) -> Option<u32> {
        self.take(queue, &self.with_all)
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Rank;

    use super::*;
    use crate::cluster::Traffic;

    fn graph(ranks: u32, pairs: &[(u32, u32, u64)]) -> Graph {
        let pairs = pairs.iter().map(|&(a, b, weight)| (Rank(a), Rank(b), weight));
        Graph::new(&Traffic::new(ranks, pairs).unwrap())
    }

    /// The first cluster is ranks 0 and 1.
    ///
    /// Rank 4 has more traffic with one than rank 5, and less with both.
    #[test]
    fn a_cluster_begins_with_the_rank_that_has_most_traffic_with_the_finished_ones() {
        let graph = graph(6, &[(0, 1, 9), (0, 4, 3), (0, 5, 2), (1, 5, 2), (5, 3, 1), (2, 4, 1)]);
        assert_eq!(grown(&graph, 3), [0, 0, 2, 1, 2, 1]);
    }

    /// Rank 3 has less traffic with rank 0 than rank 2 has, and more with ranks 0 and 1 together.
    #[test]
    fn a_cluster_takes_in_the_rank_that_has_most_traffic_with_it() {
        assert_eq!(grown(&graph(6, &[(0, 1, 5), (0, 2, 3), (0, 3, 2), (1, 3, 2)]), 2), [0, 0, 1, 0, 1, 1]);
    }

    #[test]
    fn of_ranks_with_equal_traffic_the_one_that_became_a_candidate_first_is_taken() {
        assert_eq!(grown(&graph(4, &[(0, 1, 1), (0, 2, 1)]), 2), [0, 0, 1, 1]);
    }
}

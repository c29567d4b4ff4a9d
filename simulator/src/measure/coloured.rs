//! Epoch order in which a failure reaches few clusters.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use counterfoil_log_core::Rank;
use counterfoil_protocols::cluster::{ClusterError, Clusters};

use super::Iteration;

/// Returns the same clusters with their epochs in the order of a colouring.
///
/// Clusters exchanging messages have different colours, and the first colour's are below all of the second, and so on.
///
/// A failure rolls back its cluster and all clusters reachable by chains of messages with ascending epochs (Guermouche
/// 2011, section V.E.3). With k colours such a chain has at most k clusters, while with ascending numbers, as in the
/// paper, it may have all. Where as many messages go one way as the other, the logged share is half of the messages
/// between clusters in any order, so fewer rollbacks cost nothing.
///
/// The colouring is greedy, the clusters with most neighbours first (Welsh and Powell 1967): at worst one colour more
/// than the most neighbours of a cluster; a ring, a grid or a torus of even extents with equal clusters may get more
/// than the two that would suffice. Takes time in proportion to messages and to clusters squared.
///
/// # Errors
/// [`ClusterError::Ranks`] if the clusters are for another number of ranks.
pub fn coloured(clusters: &Clusters, iteration: &Iteration) -> Result<Clusters, ClusterError> {
    if clusters.ranks() != iteration.ranks() as usize {
        return Err(ClusterError::Ranks { clusters: clusters.ranks(), traffic: iteration.ranks() as usize });
    }
    let of: Vec<u32> = (0..iteration.ranks()).filter_map(|rank| clusters.cluster_of(Rank(rank))).collect();
    let mut neighbours = vec![BTreeSet::new(); clusters.count()];
    for (one, other) in iteration.connections() {
        let (one, other) = (of[one as usize], of[other as usize]);
        if one != other {
            neighbours[one as usize].insert(other);
            neighbours[other as usize].insert(one);
        }
    }
    let mut order: Vec<usize> = (0..neighbours.len()).collect();
    order.sort_by_key(|&cluster| Reverse(neighbours[cluster].len()));
    let mut colours: Vec<Option<usize>> = vec![None; neighbours.len()];
    for cluster in order {
        let taken: BTreeSet<usize> = neighbours[cluster].iter().filter_map(|&other| colours[other as usize]).collect();
        colours[cluster] = (0..).find(|colour| !taken.contains(colour));
    }
    let mut by_colour: Vec<usize> = (0..colours.len()).collect();
    by_colour.sort_by_key(|&cluster| colours[cluster]);
    let mut places = vec![0; by_colour.len()];
    for (place, cluster) in (0..).zip(by_colour) {
        places[cluster] = place;
    }
    Clusters::from_assignment(of.into_iter().map(|cluster| places[cluster as usize]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Hop, Plan, measure};

    /// Messages in both directions between neighbours in a row of ranks.
    fn row(ranks: u32) -> Iteration {
        let pair = |rank| [(rank, rank + 1), (rank + 1, rank)];
        let hop = |(source, destination)| Hop { step: 0, source, destination, bytes: 8 };
        Iteration::new(ranks, (0..ranks - 1).flat_map(pair).map(hop)).unwrap()
    }

    #[test]
    fn a_row_has_two_colours_logs_the_same_and_rolls_back_three_clusters_at_most() {
        let (iteration, plan) = (row(16), Plan { rounds: 2, iterations: 8 });
        let ascending = Clusters::blocks(16, 2).unwrap();
        let alternating = coloured(&ascending, &iteration).unwrap();
        // The middle six have most neighbours, so the second cluster is coloured first.
        assert_eq!(alternating.places(), [4, 4, 0, 0, 5, 5, 1, 1, 6, 6, 2, 2, 7, 7, 3, 3]);
        let [paper, here] =
            [&ascending, &alternating].map(|clusters| measure(&iteration, clusters, plan, |_| {}).unwrap());
        assert_eq!(paper.logged.logged, here.logged.logged);
        assert_eq!(paper.rolled_back.percent(), 56.25);
        // Four with the higher colour roll back alone; with the lower one three have two neighbours, one has one.
        assert_eq!(here.rolled_back.percent(), 100.0 * (4.0 + 3.0 * 3.0 + 2.0) / 64.0);
    }

    #[test]
    fn clusters_that_all_talk_to_each_other_keep_their_order() {
        let all = (0..6).flat_map(|source| (0..6).map(move |to| (source, to))).filter(|(source, to)| source != to);
        let hops = all.map(|(source, destination)| Hop { step: 0, source, destination, bytes: 8 });
        let iteration = Iteration::new(6, hops).unwrap();
        let clusters = Clusters::blocks(6, 2).unwrap();
        assert_eq!(coloured(&clusters, &iteration).unwrap(), clusters);
        assert!(coloured(&Clusters::blocks(4, 2).unwrap(), &iteration).is_err());
    }
}

//! Clusters from measured traffic.

use super::graph::Graph;
use super::{ClusterError, Clusters, Traffic, agglomerate, grow, refine};

/// Proposes `count` equally large clusters (within one rank) with little traffic between them, ordered so that little
/// of it goes to higher epochs ([`Clusters::ordered`]).
///
/// A heuristic: the problem is NP-hard. Three starts are each refined by moves between two clusters at a time
/// (Kernighan and Lin 1970, with the queues of Fiduccia and Mattheyses 1982): successive ranks, as suggested by a
/// program's own numbering; groups merged where the traffic is heaviest; clusters grown one after the other. The result
/// with the least traffic between clusters is taken, so it is never worse than successive ranks in clusters differing
/// in size by at most one. The same traffic gives the same clusters.
///
/// Cost for n ranks, e communicating pairs, clusters of s ranks: memory in proportion to n + e; time to e log e for
/// each of about log2 s rounds of merging (s at worst), and for each of at most 12 rounds of refinement, for each pair
/// of clusters with traffic between them, their ranks' pairs times log s.
///
/// # Errors
/// [`ClusterError::NoRanks`], [`ClusterError::NoClusters`] if `count` is 0, [`ClusterError::TooManyClusters`] if there
/// are fewer ranks.
pub fn propose(traffic: &Traffic, count: u32) -> Result<Clusters, ClusterError> {
    let ranks = traffic.ranks();
    if ranks == 0 {
        return Err(ClusterError::NoRanks);
    }
    if count == 0 {
        return Err(ClusterError::NoClusters);
    }
    if count > ranks {
        return Err(ClusterError::TooManyClusters { clusters: u64::from(count) });
    }
    let graph = Graph::new(traffic);
    let starts = [successive(ranks, count), agglomerate::merged(&graph, count), grow::grown(&graph, count)];
    let refined = starts.map(|start| refine::refined(&graph, start, count));
    let best = refined.into_iter().min_by_key(|of| graph.cut(of)).unwrap_or_default();
    Clusters::from_assignment(renumbered(best, count))?.ordered(traffic)
}

/// Groups successive ranks, the first clusters one rank larger.
pub(super) fn successive(ranks: u32, count: u32) -> Vec<u32> {
    let (size, larger) = (ranks / count, ranks % count);
    let sizes = (0..count).map(|cluster| size + u32::from(cluster < larger));
    (0..).zip(sizes).flat_map(|(cluster, size)| (0..size).map(move |_| cluster)).collect()
}

/// Numbers the clusters by their lowest ranks.
fn renumbered(of: Vec<u32>, count: u32) -> Vec<u32> {
    let mut numbers: Vec<Option<u32>> = vec![None; count as usize];
    let mut next = 0;
    let renumber = |cluster: u32| {
        *numbers[cluster as usize].get_or_insert_with(|| {
            next += 1;
            next - 1
        })
    };
    of.into_iter().map(renumber).collect()
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Rank;

    use super::*;
    use crate::cluster::Share;

    /// Traffic with weight 1 in both directions on each link.
    fn both_ways(ranks: u32, links: impl IntoIterator<Item = (u32, u32)>) -> Traffic {
        let directed = links.into_iter().flat_map(|(a, b)| [(Rank(a), Rank(b), 1), (Rank(b), Rank(a), 1)]);
        Traffic::new(ranks, directed).unwrap()
    }

    /// Returns pseudo-random numbers below a bound, the same in every run.
    fn numbers(mut seed: u64) -> impl FnMut(u32) -> u32 {
        move |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % u64::from(below)) as u32
        }
    }

    #[test]
    fn cliques_are_found_however_they_are_numbered() {
        // Rank r is in clique r % 4; one link joins each clique to the next.
        let cliques = (0..32_u32).flat_map(|a| (0..a).filter(move |b| a % 4 == b % 4).map(move |b| (a, b)));
        let traffic = both_ways(32, cliques.chain([(0, 1), (1, 2), (2, 3)]));
        let clusters = propose(&traffic, 4).unwrap();
        assert_eq!(Share::of(&traffic, &clusters).unwrap().between, 6);
        assert!((4..32).all(|rank| clusters.cluster_of(Rank(rank)) == clusters.cluster_of(Rank(rank % 4))));
    }

    #[test]
    fn a_ring_is_cut_once_for_each_cluster() {
        for (ranks, count) in [(12, 3), (13, 3), (64, 8), (121, 16)] {
            // Numbered so that neighbours are far apart.
            let at = |index: u32| (index % ranks) * 5 % ranks;
            let traffic = both_ways(ranks, (0..ranks).map(|index| (at(index), at(index + 1))));
            let clusters = propose(&traffic, count).unwrap();
            assert_eq!(Share::of(&traffic, &clusters).unwrap().between, 2 * u64::from(count), "{ranks} in {count}");
        }
    }

    #[test]
    fn sizes_differ_by_at_most_one_whatever_the_traffic() {
        let mut below = numbers(7);
        for case in 0..300 {
            let ranks = 1 + below(40);
            let count = 1 + below(ranks);
            let links = below(4 * ranks);
            let pairs: Vec<_> =
                (0..links).map(|_| (Rank(below(ranks)), Rank(below(ranks)), u64::from(below(9)))).collect();
            let traffic = Traffic::new(ranks, pairs).unwrap();
            let clusters = propose(&traffic, count).unwrap();
            let sizes = clusters.sizes();
            assert_eq!(sizes.len(), count as usize, "case {case}");
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "case {case}: {sizes:?}");
            let successive = Clusters::from_assignment(successive(ranks, count)).unwrap();
            let [found, plain] = [&clusters, &successive].map(|clusters| Share::of(&traffic, clusters).unwrap());
            assert!(found.between <= plain.between, "case {case}: {found:?}, successive ranks {plain:?}");
            assert!(2 * found.logged <= found.between, "case {case}: {found:?}");
        }
    }

    #[test]
    fn halves_of_small_graphs_are_nearly_always_the_best() {
        let mut below = numbers(11);
        let (mut found_sum, mut best_sum) = (0, 0);
        for _ in 0..60 {
            let links: Vec<_> = (0..24).map(|_| (below(10), below(10))).filter(|(a, b)| a != b).collect();
            let traffic = both_ways(10, links);
            let found = Share::of(&traffic, &propose(&traffic, 2).unwrap()).unwrap().between;
            let halves = (0_u32..1 << 10).filter(|half| half.count_ones() == 5);
            let cut = |half: u32| {
                let of = (0..10).map(|rank| half >> rank & 1).collect();
                Share::of(&traffic, &Clusters::from_assignment(of).unwrap()).unwrap().between
            };
            let best = halves.map(cut).min().unwrap();
            assert!(found >= best);
            found_sum += found;
            best_sum += best;
        }
        assert!(found_sum * 100 <= best_sum * 103, "{found_sum} between halves, {best_sum} would do");
    }

    #[test]
    fn clusters_of_a_large_torus_are_cubes() {
        let rank = |x: u32, y: u32, z: u32| x % 16 + 16 * (y % 16) + 256 * (z % 16);
        let links = (0..4_096_u32).flat_map(|at| {
            let (x, y, z) = (at % 16, at / 16 % 16, at / 256);
            [(at, rank(x + 1, y, z)), (at, rank(x, y + 1, z)), (at, rank(x, y, z + 1))]
        });
        let traffic = both_ways(4_096, links);
        // Of 64 successive ranks, 4 rows in a plane, 41.7 % of the messages leave; of a 4 x 4 x 4 cube, a quarter.
        let found = Share::of(&traffic, &propose(&traffic, 64).unwrap()).unwrap();
        assert_eq!(4 * found.between, found.total, "{found:?}");
    }

    #[test]
    fn no_clusters_and_too_many_are_refused() {
        let traffic = both_ways(3, [(0, 1)]);
        assert_eq!(propose(&traffic, 0), Err(ClusterError::NoClusters));
        assert_eq!(propose(&traffic, 4), Err(ClusterError::TooManyClusters { clusters: 4 }));
        assert_eq!(propose(&both_ways(0, []), 1), Err(ClusterError::NoRanks));
    }
}

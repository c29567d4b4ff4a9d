//! The cluster order with the least forward traffic, that is, traffic from a cluster to one with a higher epoch.

use std::collections::BTreeMap;

use super::{Clusters, Traffic};

/// Maximum number of rounds moving single clusters.
const ROUNDS_MAX: usize = 32;

/// Returns the clusters in ascending epoch order.
///
/// See [`Clusters::ordered`].
pub(super) fn min_forward(clusters: &Clusters, traffic: &Traffic) -> Vec<u32> {
    let flows = Flows::new(clusters, traffic);
    if clusters.count() <= Clusters::EXACT_ORDER_MAX {
        exact(&flows)
    } else {
        improved(&flows, current_order(clusters))
    }
}

/// Returns the present order of the clusters.
fn current_order(clusters: &Clusters) -> Vec<u32> {
    let mut order: Vec<u32> = (0..).take(clusters.count()).collect();
    order.sort_by_key(|&cluster| clusters.place[cluster as usize]);
    order
}

/// Traffic between clusters.
#[derive(Debug)]
struct Flows {
    /// For each cluster and neighbour: traffic received and sent.
    with: Vec<BTreeMap<u32, (i64, i64)>>,
}

impl Flows {
    fn new(clusters: &Clusters, traffic: &Traffic) -> Flows {
        let mut with: Vec<BTreeMap<u32, (i64, i64)>> = vec![BTreeMap::new(); clusters.count()];
        for (source, destination, weight) in traffic.pairs() {
            let (from, to) = (clusters.of[source.index()], clusters.of[destination.index()]);
            if from != to {
                with[to as usize].entry(from).or_default().0 += weight.cast_signed();
                with[from as usize].entry(to).or_default().1 += weight.cast_signed();
            }
        }
        Flows { with }
    }

    fn count(&self) -> usize {
        self.with.len()
    }

    /// Returns the forward traffic of this order.
    fn forward(&self, order: &[u32]) -> i64 {
        let mut place = vec![0; order.len()];
        for (position, &cluster) in order.iter().enumerate() {
            place[cluster as usize] = position;
        }
        let gets = |cluster: u32| {
            let earlier = self.with[cluster as usize]
                .iter()
                .filter(|&(&other, _)| place[other as usize] < place[cluster as usize]);
            earlier.map(|(_, &(gets, _))| gets).sum::<i64>()
        };
        order.iter().map(|&cluster| gets(cluster)).sum()
    }
}

/// Returns an order with the least forward traffic: over all sets of clusters, the best order for the set at the
/// beginning, from the best orders for the sets without one of its clusters (Held and Karp's way).
///
/// Ties go to the lower number last.
fn exact(flows: &Flows) -> Vec<u32> {
    let count = flows.count();
    // For each set: the forward traffic within its best order, and the last cluster in that order.
    let mut best: Vec<(i64, u32)> = vec![(0, 0); 1 << count];
    for set in 1..1_usize << count {
        let members = (0_u32..).take(count).filter(|cluster| set >> cluster & 1 == 1);
        let with_last = members.map(|last| {
            let earlier = flows.with[last as usize].iter().filter(|&(&other, _)| set >> other & 1 == 1);
            let gets: i64 = earlier.map(|(_, &(gets, _))| gets).sum();
            (best[set & !(1 << last)].0 + gets, last)
        });
        best[set] = with_last.min_by_key(|&(forward, last)| (forward, std::cmp::Reverse(last))).unwrap_or_default();
    }
    let mut order = Vec::with_capacity(count);
    let mut set = (1 << count) - 1;
    while set != 0 {
        let last = best[set].1;
        order.push(last);
        set &= !(1 << last);
    }
    order.reverse();
    order
}

/// Returns the better of `order` and its reverse, with single clusters moved to where the forward traffic is least
/// while that helps.
fn improved(flows: &Flows, mut order: Vec<u32>) -> Vec<u32> {
    let reverse: Vec<u32> = order.iter().rev().copied().collect();
    if flows.forward(&reverse) < flows.forward(&order) {
        order = reverse;
    }
    for _ in 0..ROUNDS_MAX {
        let mut moved = false;
        for cluster in (0_u32..).take(flows.count()) {
            moved |= reinsert(flows, &mut order, cluster);
        }
        if !moved {
            break;
        }
    }
    order
}

/// Moves `cluster` to where the forward traffic is least; returns `true` if that is less than before.
fn reinsert(flows: &Flows, order: &mut Vec<u32>, cluster: u32) -> bool {
    let Some(was) = order.iter().position(|&other| other == cluster) else { return false };
    order.remove(was);
    let with = &flows.with[cluster as usize];
    // At the front, all it sends goes forward; after another cluster, traffic from the other goes forward instead of
    // traffic to it.
    let front: i64 = with.values().map(|&(_, sends)| sends).sum();
    let after_each = order.iter().scan(front, |forward, other| {
        let (gets, sends) = with.get(other).copied().unwrap_or_default();
        *forward += gets - sends;
        Some(*forward)
    });
    let forward: Vec<i64> = std::iter::once(front).chain(after_each).collect();
    let best = (0..forward.len()).min_by_key(|&at| (forward[at], at != was, at)).unwrap_or(was);
    order.insert(best, cluster);
    best != was
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Rank;

    use super::*;
    use crate::cluster::Share;

    /// One rank in each cluster; the same weights in every run.
    fn random_traffic(ranks: u32, seed: u64) -> (Traffic, Clusters) {
        let mut state = seed;
        let pairs = (0..ranks).flat_map(|a| (0..ranks).map(move |b| (Rank(a), Rank(b)))).map(|(a, b)| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (a, b, (state >> 33) % 100)
        });
        (Traffic::new(ranks, pairs.collect::<Vec<_>>()).unwrap(), Clusters::blocks(ranks, 1).unwrap())
    }

    fn permutations(items: &[u32]) -> Vec<Vec<u32>> {
        if items.is_empty() {
            return vec![Vec::new()];
        }
        let with_first = |first: u32| {
            let others: Vec<u32> = items.iter().copied().filter(|&item| item != first).collect();
            permutations(&others).into_iter().map(move |rest| [vec![first], rest].concat())
        };
        items.iter().copied().flat_map(with_first).collect()
    }

    #[test]
    fn few_clusters_get_an_order_with_the_least_forward_traffic() {
        for seed in 0..20 {
            let (traffic, clusters) = random_traffic(6, seed);
            let flows = Flows::new(&clusters, &traffic);
            let least = permutations(&[0, 1, 2, 3, 4, 5]).iter().map(|order| flows.forward(order)).min().unwrap();
            let ordered = clusters.ordered(&traffic).unwrap();
            let logged = Share::of(&traffic, &ordered).unwrap().logged;
            assert_eq!(logged, least.cast_unsigned(), "seed {seed}");
        }
    }

    #[test]
    fn moving_single_clusters_comes_near_the_best_order() {
        for seed in 0..20 {
            let (traffic, clusters) = random_traffic(10, seed);
            let flows = Flows::new(&clusters, &traffic);
            let best = flows.forward(&exact(&flows));
            let found = flows.forward(&improved(&flows, current_order(&clusters)));
            assert!(best <= found && found * 100 <= best * 105, "seed {seed}: {found} forward, {best} would do");
        }
    }

    #[test]
    fn a_chain_of_many_clusters_is_put_into_reverse() {
        let chain = |ranks: u32| Traffic::new(ranks, (1..ranks).map(|rank| (Rank(rank - 1), Rank(rank), 1))).unwrap();
        for ranks in [5, 16, 17, 40] {
            let ordered = Clusters::blocks(ranks, 1).unwrap().ordered(&chain(ranks)).unwrap();
            assert_eq!(Share::of(&chain(ranks), &ordered).unwrap().logged, 0, "{ranks} clusters");
            assert!((1..ranks).all(|rank| ordered.epoch_of(Rank(rank)) < ordered.epoch_of(Rank(rank - 1))));
        }
    }
    /// Moving single clusters doesn't always find the best order from its reverse.
    #[test]
    fn the_better_of_the_given_order_and_its_reverse_is_improved() {
        for seed in 0..20 {
            let (traffic, clusters) = random_traffic(10, seed);
            let flows = Flows::new(&clusters, &traffic);
            let best = exact(&flows);
            let reverse: Vec<u32> = best.iter().rev().copied().collect();
            assert_eq!(improved(&flows, best.clone()), best, "seed {seed}");
            assert_eq!(improved(&flows, reverse), best, "seed {seed}");
        }
    }

    #[test]
    fn traffic_that_is_the_same_in_both_directions_leaves_the_order_as_it_is() {
        for ranks in [5, 16, 17, 40] {
            let ring = (0..ranks).map(|rank| (rank, (rank + 1) % ranks));
            let pairs = ring.flat_map(|(a, b)| [(Rank(a), Rank(b), 3), (Rank(b), Rank(a), 3)]);
            let clusters = Clusters::blocks(ranks, 1).unwrap();
            let ordered = clusters.clone().ordered(&Traffic::new(ranks, pairs).unwrap()).unwrap();
            assert_eq!(ordered, clusters, "{ranks} clusters");
        }
    }

    #[test]
    fn a_cluster_moves_only_to_where_less_traffic_goes_forward() {
        let traffic = Traffic::new(3, [(0, 1, 1), (1, 2, 1)].map(|(a, b, weight)| (Rank(a), Rank(b), weight))).unwrap();
        let flows = Flows::new(&Clusters::blocks(3, 1).unwrap(), &traffic);
        let mut order = vec![0, 1, 2];
        assert!(reinsert(&flows, &mut order, 0));
        assert_eq!(order, [1, 0, 2]);
        assert!(!reinsert(&flows, &mut order, 0));
        assert_eq!(order, [1, 0, 2]);
    }
}

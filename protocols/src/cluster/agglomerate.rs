//! Refinement start: ranks merged where the traffic is heaviest.
//!
//! In rounds: the pairs of groups with the most traffic between them are merged, each group once in a round, as long as
//! the result is no larger than a cluster. So groups double in size, and ranks with the most mutual traffic end up
//! together. Finally, groups that no longer fit together are assigned to clusters, whole if there is room, else rank by
//! rank.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::graph::Graph;

/// Returns each rank's cluster: `count` clusters, with sizes differing by at most one.
///
/// `count` is 1 to the number of ranks.
pub(super) fn merged(graph: &Graph, count: u32) -> Vec<u32> {
    let size = (graph.ranks() / count) as usize;
    let mut groups: Vec<Vec<u32>> = (0..graph.ranks()).map(|rank| vec![rank]).collect();
    loop {
        let before = groups.len();
        groups = round(graph, groups, size);
        if groups.len() == before {
            break;
        }
    }
    assign_groups(graph, groups, count as usize)
}

/// Merges once, into groups with at most `size` ranks.
fn round(graph: &Graph, mut groups: Vec<Vec<u32>>, size: usize) -> Vec<Vec<u32>> {
    let mut group_of = vec![0; graph.ranks() as usize];
    for (group, members) in groups.iter().enumerate() {
        for &rank in members {
            group_of[rank as usize] = group;
        }
    }
    let mut weights: BTreeMap<(usize, usize), i64> = BTreeMap::new();
    for (a, b, weight) in graph.pairs() {
        let (a, b) = (group_of[a as usize], group_of[b as usize]);
        if a != b && groups[a].len() + groups[b].len() <= size {
            *weights.entry((a.min(b), a.max(b))).or_default() += weight;
        }
    }
    let mut heaviest: Vec<_> = weights.into_iter().collect();
    heaviest.sort_by_key(|&((a, b), weight)| (Reverse(weight), groups[a].len() + groups[b].len(), a, b));

    let mut taken = vec![false; groups.len()];
    for ((a, b), _) in heaviest {
        if !taken[a] && !taken[b] {
            taken[a] = true;
            taken[b] = true;
            let members = std::mem::take(&mut groups[b]);
            groups[a].extend(members);
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Puts groups into `count` clusters, largest first, each into the cluster with room and the most traffic with it.
fn assign_groups(graph: &Graph, mut groups: Vec<Vec<u32>>, count: usize) -> Vec<u32> {
    let ranks = graph.ranks() as usize;
    groups.sort_by_key(|group| Reverse(group.len()));
    let mut assignment = Assignment {
        graph,
        of: vec![None; ranks],
        capacity: (0..count).map(|cluster| ranks / count + usize::from(cluster < ranks % count)).collect(),
    };
    // The largest groups begin a cluster each, and none is larger than a cluster; there may be fewer groups than
    // clusters.
    let others = groups.split_off(count.min(groups.len()));
    for (cluster, group) in groups.into_iter().enumerate() {
        assignment.assign(&group, cluster);
    }
    for group in others {
        if let Some(cluster) = assignment.heaviest(&group, group.len()) {
            assignment.assign(&group, cluster);
            continue;
        }
        for rank in group {
            if let Some(cluster) = assignment.heaviest(&[rank], 1) {
                assignment.assign(&[rank], cluster);
            }
        }
    }
    // Capacities add up to the ranks, so no rank is left without a cluster.
    assignment.of.into_iter().map(|cluster| cluster.unwrap_or_default()).collect()
}

struct Assignment<'a> {
    graph: &'a Graph,
    of: Vec<Option<u32>>,
    /// Remaining room in each cluster, in ranks.
    capacity: Vec<usize>,
}

impl Assignment<'_> {
    fn assign(&mut self, group: &[u32], cluster: usize) {
        for &rank in group {
            // Fewer clusters than ranks, which are numbered in a u32.
            self.of[rank as usize] = Some(cluster as u32);
        }
        self.capacity[cluster] -= group.len();
    }

    /// Returns the cluster with room for `len` and the most traffic with the group, ties going to the one with the most
    /// room.
    fn heaviest(&self, group: &[u32], len: usize) -> Option<usize> {
        let mut weights: BTreeMap<u32, i64> = BTreeMap::new();
        for &(peer, weight) in group.iter().flat_map(|&rank| self.graph.edges(rank)) {
            if let Some(cluster) = self.of[peer as usize] {
                *weights.entry(cluster).or_default() += weight;
            }
        }
        let weight = |cluster: usize| weights.get(&(cluster as u32)).copied().unwrap_or_default();
        let fitting = (0..self.capacity.len()).filter(|&cluster| self.capacity[cluster] >= len);
        fitting.max_by_key(|&cluster| (weight(cluster), self.capacity[cluster], Reverse(cluster)))
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Rank;

    use super::*;
    use crate::cluster::Traffic;

    /// Two groups of three begin a cluster of four each; the ranks of the third group have to part.
    #[test]
    fn a_rank_left_over_joins_the_cluster_that_it_has_most_traffic_with() {
        let pairs = [(0, 1, 10), (0, 2, 10), (1, 2, 10), (3, 4, 10), (3, 5, 10), (4, 5, 10), (6, 7, 5)];
        let across = [(3, 6, 2), (0, 6, 1), (7, 0, 1)];
        let pairs = pairs.into_iter().chain(across).map(|(a, b, weight)| (Rank(a), Rank(b), weight));
        let graph = Graph::new(&Traffic::new(8, pairs).unwrap());
        let of = merged(&graph, 2);
        assert_eq!((of[1], of[2], of[4], of[5]), (of[0], of[0], of[3], of[3]), "{of:?}");
        assert_eq!((of[6], of[7]), (of[3], of[0]), "{of:?}");
    }
}

//! Refinement: less traffic between clusters, by moving ranks between two of them at a time.
//!
//! A pass over two clusters moves every rank once, always from the larger cluster the one with the highest gain (or
//! lowest loss), and then keeps the move prefix with the highest gain and both sizes in bounds (Kernighan and Lin
//! 1970). Gains are in a queue for each side and are updated for the neighbours of a moved rank (Fiduccia and
//! Mattheyses 1982).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::graph::Graph;

/// Maximum number of rounds over all cluster pairs; usually three or four find nothing more.
const ROUNDS_MAX: usize = 12;

/// Returns `of` with no more traffic between its `count` clusters, usually less.
///
/// Sizes stay within one rank.
pub(super) fn refined(graph: &Graph, of: Vec<u32>, count: u32) -> Vec<u32> {
    let mut members = vec![Vec::new(); count as usize];
    for (rank, &cluster) in (0..graph.ranks()).zip(&of) {
        members[cluster as usize].push(rank);
    }
    let ranks = of.len();
    let mut refinement = Refinement { graph, gains: vec![0; ranks], locked: vec![true; ranks], of, members };
    for _ in 0..ROUNDS_MAX {
        let improved = refinement.adjacent_pairs().into_iter().map(|(a, b)| refinement.pass(a, b));
        if improved.sum::<i64>() == 0 {
            break;
        }
    }
    refinement.of
}

struct Refinement<'a> {
    graph: &'a Graph,
    of: Vec<u32>,
    members: Vec<Vec<u32>>,
    /// Traffic reduction between the two clusters in the pass if the rank moves to the other.
    gains: Vec<i64>,
    /// `true` for a rank without a part, or any further part, in the pass.
    locked: Vec<bool>,
}

impl Refinement<'_> {
    /// Returns the cluster pairs with mutual traffic, the lower one first.
    fn adjacent_pairs(&self) -> BTreeSet<(u32, u32)> {
        let clusters = self.graph.pairs().map(|(a, b, _)| (self.of[a as usize], self.of[b as usize]));
        clusters.filter(|(a, b)| a != b).map(|(a, b)| (a.min(b), a.max(b))).collect()
    }

    /// Makes one pass over two clusters; returns by how much the traffic between clusters fell.
    fn pass(&mut self, a: u32, b: u32) -> i64 {
        let sides = [a, b];
        let mut sizes = sides.map(|side| self.members[side as usize].len());
        let (smallest, largest) = (sizes[0].min(sizes[1]), sizes[0].max(sizes[1]));
        let mut queues = [self.queue(a, b), self.queue(b, a)];
        let mut moves: Vec<u32> = Vec::new();
        let (mut gained, mut best_gained, mut best_moves) = (0, 0, 0);
        while let Some((from, rank)) = self.next_move(&mut queues, sizes) {
            gained += self.gains[rank as usize];
            self.locked[rank as usize] = true;
            self.of[rank as usize] = sides[1 - from];
            sizes[from] -= 1;
            sizes[1 - from] += 1;
            self.update(rank, sides, &mut queues);
            moves.push(rank);
            if gained > best_gained && sizes.iter().all(|size| (smallest..=largest).contains(size)) {
                (best_gained, best_moves) = (gained, moves.len());
            }
        }
        for &rank in &moves[best_moves..] {
            let cluster = &mut self.of[rank as usize];
            *cluster = if *cluster == a { b } else { a };
        }
        self.finish_pass(sides);
        best_gained
    }

    /// Unlocks the members of `side` for a move to `other` and queues them by gain, best first.
    fn queue(&mut self, side: u32, other: u32) -> BinaryHeap<(i64, Reverse<u32>)> {
        for &rank in &self.members[side as usize] {
            let weight = |cluster: u32| -> i64 {
                let edges = self.graph.edges(rank).iter();
                edges.filter(|&&(peer, _)| self.of[peer as usize] == cluster).map(|&(_, weight)| weight).sum()
            };
            self.gains[rank as usize] = weight(other) - weight(side);
            self.locked[rank as usize] = false;
        }
        self.members[side as usize].iter().map(|&rank| (self.gains[rank as usize], Reverse(rank))).collect()
    }

    /// Returns the best move from the larger side, from either if they are equal; `None` if that side has none left.
    fn next_move(&self, queues: &mut [BinaryHeap<(i64, Reverse<u32>)>; 2], sizes: [usize; 2]) -> Option<(usize, u32)> {
        for queue in queues.iter_mut() {
            // Drop entries replaced by a later one.
            while let Some(&(gain, Reverse(rank))) = queue.peek()
                && (self.locked[rank as usize] || self.gains[rank as usize] != gain)
            {
                queue.pop();
            }
        }
        let from = match sizes[0].cmp(&sizes[1]) {
            std::cmp::Ordering::Greater => 0,
            std::cmp::Ordering::Less => 1,
            std::cmp::Ordering::Equal => usize::from(queues[1].peek() > queues[0].peek()),
        };
        queues[from].pop().map(|(_, Reverse(rank))| (from, rank))
    }

    /// Updates the neighbours after `rank` moved to its present side: a neighbour there gains less by leaving, one on
    /// the other side gains more.
    fn update(&mut self, rank: u32, sides: [u32; 2], queues: &mut [BinaryHeap<(i64, Reverse<u32>)>; 2]) {
        for &(peer, weight) in self.graph.edges(rank) {
            let at = peer as usize;
            if self.locked[at] {
                continue;
            }
            let change = if self.of[at] == self.of[rank as usize] { -2 * weight } else { 2 * weight };
            self.gains[at] += change;
            queues[usize::from(self.of[at] == sides[1])].push((self.gains[at], Reverse(peer)));
        }
    }

    /// Ends a pass: lists the members again, ascending, and locks the unmoved ones.
    fn finish_pass(&mut self, sides: [u32; 2]) {
        let [a, b] = sides.map(|side| std::mem::take(&mut self.members[side as usize]));
        let mut ranks = a;
        ranks.extend(b);
        ranks.sort_unstable();
        for rank in ranks {
            self.locked[rank as usize] = true;
            self.members[self.of[rank as usize] as usize].push(rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Rank;

    use super::*;
    use crate::cluster::{Traffic, propose::successive};

    fn graph(ranks: u32, pairs: impl IntoIterator<Item = (u32, u32, u64)>) -> Graph {
        let pairs = pairs.into_iter().map(|(a, b, weight)| (Rank(a), Rank(b), weight));
        Graph::new(&Traffic::new(ranks, pairs).unwrap())
    }

    /// Returns a graph of 24 ranks with weights from 1 to 9, the same in every run.
    fn random_graph(seed: u64) -> Graph {
        let mut state = seed;
        let mut below = move |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let pairs: Vec<_> = (0..60).map(|_| (below(24) as u32, below(24) as u32, 1 + below(9))).collect();
        graph(24, pairs)
    }

    fn refinement(graph: &Graph, of: Vec<u32>) -> Refinement<'_> {
        let ranks = of.len();
        let mut members = vec![Vec::new(); 1 + of.iter().max().copied().unwrap_or_default() as usize];
        for (rank, &cluster) in (0..).zip(&of) {
            members[cluster as usize].push(rank);
        }
        Refinement { graph, gains: vec![0; ranks], locked: vec![true; ranks], of, members }
    }

    #[test]
    fn a_pass_returns_by_how_much_the_traffic_between_clusters_fell() {
        let mut fell = 0;
        for seed in 0..20 {
            let graph = random_graph(seed);
            let mut refinement = refinement(&graph, successive(24, 3));
            for (a, b) in [(0, 1), (1, 2), (0, 2), (0, 1)] {
                let before = graph.cut(&refinement.of);
                let gained = refinement.pass(a, b);
                assert_eq!(before - graph.cut(&refinement.of), gained, "seed {seed}, clusters {a} and {b}");
                fell += gained;
            }
        }
        assert!(fell > 0);
    }

    #[test]
    fn the_refinement_ends_when_no_pass_finds_anything() {
        for seed in 0..20 {
            let graph = random_graph(seed);
            let once = refined(&graph, successive(24, 4), 4);
            let twice = refined(&graph, once.clone(), 4);
            assert_eq!(graph.cut(&twice), graph.cut(&once), "seed {seed}");
        }
    }

    /// All moves in a pass together exchange the two halves of the ring, which gains nothing.
    #[test]
    fn ranks_stay_where_moving_them_gains_nothing() {
        let ring = graph(4, [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 0, 1)]);
        assert_eq!(refined(&ring, vec![0, 0, 1, 1], 2), [0, 0, 1, 1]);
    }

    #[test]
    fn of_two_sides_of_equal_size_the_better_move_is_made() {
        // Rank 3, on the second side, gains most by leaving; numbered the other way round, rank 0 on the first.
        for (pairs, best) in [([(0, 1, 1), (0, 2, 2), (1, 3, 5)], (1, 3)), ([(3, 2, 1), (3, 1, 2), (2, 0, 5)], (0, 0))]
        {
            let graph = graph(4, pairs);
            let mut refinement = refinement(&graph, vec![0, 0, 1, 1]);
            let mut queues = [refinement.queue(0, 1), refinement.queue(1, 0)];
            assert_eq!(refinement.next_move(&mut queues, [2, 2]), Some(best));
        }
    }
}

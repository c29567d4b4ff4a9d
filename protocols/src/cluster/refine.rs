//! Refinement: less traffic between clusters, by moving ranks between two of them at a time.
//!
//! A pass over two clusters moves every rank once, always from the larger cluster the one whose move gains the most (or
//! loses the least), and then keeps the prefix of moves that gained the most with both sizes in bounds (Kernighan and
//! Lin 1970). Gains are in a queue for each side and are brought up to date for the neighbours of a rank that moved
//! (Fiduccia and Mattheyses 1982).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::graph::Graph;

/// Largest number of rounds over all pairs of clusters; usually three or four find nothing more.
const ROUNDS_MAX: usize = 12;

/// Returns `of` with no more traffic between its `count` clusters, usually less. Sizes stay within one rank of each
/// other.
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
    /// Reduction of the traffic between the two clusters of the pass if the rank moves to the other.
    gains: Vec<i64>,
    /// `true` for a rank that takes no part, or no further part, in the pass.
    locked: Vec<bool>,
}

impl Refinement<'_> {
    /// Returns the pairs of clusters with traffic between them, the lower one first.
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
            // Drop entries that a later one has replaced.
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

    /// Ends a pass: lists the members again, ascending, and locks those that didn't move.
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

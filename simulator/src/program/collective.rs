//! Collective operations as their point-to-point messages.

use super::{ProgramBuilder, Step};

impl ProgramBuilder {
    /// Adds one operation, from or to any rank.
    pub(super) fn collective(&mut self) {
        let root = self.random.below(self.ranks.into()) as u32;
        match self.random.below(5) {
            0 => self.broadcast(root),
            1 => self.reduce(root),
            2 => self.barrier(),
            3 => self.exchange(),
            _ => {
                self.reduce(root);
                self.broadcast(root);
            }
        }
    }

    /// Broadcasts down a binomial tree over ever smaller distances.
    fn broadcast(&mut self, root: u32) {
        const TAG: i32 = 0;
        for place in Tree::places(root, self.ranks) {
            if let Some(above) = place.above() {
                self.push(place.rank(), Step::Receive { source: above, tag: TAG });
            }
            for below in place.below().into_iter().rev() {
                self.send(place.rank(), below, TAG);
            }
        }
    }

    /// Reduces up the same tree; the parts are taken in any order.
    fn reduce(&mut self, root: u32) {
        const TAG: i32 = 1;
        for place in Tree::places(root, self.ranks) {
            let parts: Vec<(u32, i32)> = place.below().into_iter().map(|below| (below, TAG)).collect();
            if !parts.is_empty() {
                self.push(place.rank(), Step::Gather(parts));
            }
            if let Some(above) = place.above() {
                self.send(place.rank(), above, TAG);
            }
        }
    }

    /// Synchronises by dissemination: the distance of each word's receiver doubles from step to step.
    fn barrier(&mut self) {
        const TAG: i32 = 2;
        let ranks = self.ranks;
        let mut distance = 1;
        while distance < ranks {
            for rank in 0..ranks {
                self.send(rank, (rank + distance) % ranks, TAG);
                self.push(rank, Step::Receive { source: (rank + ranks - distance) % ranks, tag: TAG });
            }
            distance *= 2;
        }
    }

    /// Sends from all to all, and takes in any order.
    fn exchange(&mut self) {
        const TAG: i32 = 3;
        let ranks = self.ranks;
        for rank in 0..ranks {
            let others = (1..ranks).map(|distance| (rank + distance) % ranks);
            for to in others.clone() {
                self.send(rank, to, TAG);
            }
            self.push(rank, Step::Gather(others.map(|source| (source, TAG)).collect()));
        }
    }
}

/// Place in a binomial tree over all ranks.
#[derive(Clone, Copy, Debug)]
struct Tree {
    root: u32,
    ranks: u32,
    /// Distance from the root, ascending by rank.
    distance: u32,
}

impl Tree {
    fn places(root: u32, ranks: u32) -> impl Iterator<Item = Tree> {
        (0..ranks).map(move |distance| Tree { root, ranks, distance })
    }

    fn rank(self) -> u32 {
        (self.root + self.distance) % self.ranks
    }

    /// Returns the lowest bit of the distance: all places below this one are nearer to it than that.
    fn reach(self) -> u32 {
        if self.distance == 0 { self.ranks.next_power_of_two() } else { 1 << self.distance.trailing_zeros() }
    }

    fn above(self) -> Option<u32> {
        let above = Tree { distance: self.distance.checked_sub(self.reach())?, ..self };
        Some(above.rank())
    }

    /// Returns the places below, the nearest first.
    fn below(self) -> Vec<u32> {
        let steps = std::iter::successors(Some(1), |step| Some(step * 2)).take_while(|&step| step < self.reach());
        let places = steps.map(|step| Tree { distance: self.distance + step, ..self });
        places.filter(|place| place.distance < place.ranks).map(Tree::rank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Pattern, Program, Shape};

    #[test]
    fn every_place_of_a_tree_but_the_root_is_below_the_one_that_is_above_it() {
        for ranks in 2..=32 {
            let places: Vec<Tree> = Tree::places(5 % ranks, ranks).collect();
            let mut below: Vec<u32> = places.iter().flat_map(|place| place.below()).collect();
            below.sort_unstable();
            let root = places[0].rank();
            assert_eq!(below, (0..ranks).filter(|&rank| rank != root).collect::<Vec<_>>());
            for place in &places {
                let above = place.above().map(|above| places.iter().find(|place| place.rank() == above));
                assert!(above.is_none_or(|above| above.is_some_and(|above| above.below().contains(&place.rank()))));
            }
        }
    }

    /// Each of the five takes all its sent messages, whatever the number of ranks: no rank waits for a message never
    /// sent.
    #[test]
    fn as_many_messages_are_taken_as_sent() {
        for ranks in 2..=32 {
            for seed in 0..20 {
                let shape = Shape {
                    pattern: Pattern::Collective,
                    ranks,
                    rounds: 1,
                    seed,
                    checkpoint_one_in: 0,
                    ordered: false,
                };
                let program = Program::draw(&shape);
                let mut balance = std::collections::BTreeMap::<(u32, u32, i32), i64>::new();
                for (rank, steps) in (0..).zip(&program.steps) {
                    for step in steps {
                        let taken = match step {
                            Step::Send { to, tag } => {
                                *balance.entry((rank, *to, *tag)).or_default() += 1;
                                continue;
                            }
                            Step::Receive { source, tag } => vec![(*source, *tag)],
                            Step::Gather(wanted) => wanted.clone(),
                            Step::Checkpoint | Step::Call => continue,
                        };
                        taken
                            .into_iter()
                            .for_each(|(source, tag)| *balance.entry((source, rank, tag)).or_default() -= 1);
                    }
                }
                assert!(program.messages() > 0 && balance.values().all(|&left| left == 0), "{balance:?}");
            }
        }
    }
}

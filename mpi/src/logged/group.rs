//! Some ranks in an order, of which a communicator can be made.

use std::cell::RefCell;
use std::rc::Rc;

use super::engine::Engine;
use super::error::LoggedError;

/// Some ranks of the job, each once, in an order: a rank of the group is a place in it.
///
/// Groups are values: nothing is asked of MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Ranks in MPI_COMM_WORLD.
    world: Vec<u32>,
    /// This process's.
    own: u32,
}

/// How two groups are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRelation {
    /// The same ranks in the same order.
    Identical,
    /// The same ranks in another order.
    Similar,
    /// Other ranks.
    Unequal,
}

impl Group {
    pub(super) fn of(world: Vec<u32>, engine: &Rc<RefCell<Engine>>) -> Group {
        Group { world, own: engine.borrow().rank }
    }

    fn with(&self, world: impl Iterator<Item = u32>) -> Group {
        Group { world: world.collect(), own: self.own }
    }

    fn has(&self, rank: &u32) -> bool {
        self.world.contains(rank)
    }

    /// How many ranks it has.
    pub fn size(&self) -> u32 {
        self.world.len() as u32
    }

    /// This process's rank in it; `None` if it isn't in it.
    pub fn rank(&self) -> Option<u32> {
        place(&self.world, self.own)
    }

    /// All of this group, and behind them those of the other one that aren't in this.
    pub fn union(&self, other: &Group) -> Group {
        self.with(self.world.iter().chain(other.world.iter().filter(|rank| !self.has(rank))).copied())
    }

    /// Those of this group that are in the other one, too.
    pub fn intersection(&self, other: &Group) -> Group {
        self.with(self.world.iter().filter(|rank| other.has(rank)).copied())
    }

    /// Those of this group that aren't in the other one.
    pub fn difference(&self, other: &Group) -> Group {
        self.with(self.world.iter().filter(|rank| !other.has(rank)).copied())
    }

    /// These ranks of it, in this order.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`], [`LoggedError::Twice`].
    pub fn include(&self, ranks: &[u32]) -> Result<Group, LoggedError> {
        self.are_ranks(ranks)?;
        Ok(self.with(ranks.iter().map(|rank| self.world[*rank as usize])))
    }

    /// All but these ranks of it.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`], [`LoggedError::Twice`].
    pub fn exclude(&self, ranks: &[u32]) -> Result<Group, LoggedError> {
        self.are_ranks(ranks)?;
        let others = (0..self.size()).filter(|rank| !ranks.contains(rank));
        Ok(self.with(others.map(|rank| self.world[rank as usize])))
    }

    fn are_ranks(&self, ranks: &[u32]) -> Result<(), LoggedError> {
        for (at, &rank) in ranks.iter().enumerate() {
            if rank >= self.size() {
                return Err(LoggedError::NoSuchRank { rank, size: self.size() });
            }
            if ranks[..at].contains(&rank) {
                return Err(LoggedError::Twice { rank });
            }
        }
        Ok(())
    }

    /// What a rank of it is in another group; `None` if it isn't in that.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`].
    pub fn translate_rank(&self, rank: u32, other: &Group) -> Result<Option<u32>, LoggedError> {
        self.are_ranks(&[rank])?;
        Ok(place(&other.world, self.world[rank as usize]))
    }

    /// As [`translate_rank`](Self::translate_rank), of several.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`].
    pub fn translate_ranks(&self, ranks: &[u32], other: &Group) -> Result<Vec<Option<u32>>, LoggedError> {
        ranks.iter().map(|rank| self.translate_rank(*rank, other)).collect()
    }

    /// Whether it has the same ranks as another one.
    pub fn compare(&self, other: &Group) -> GroupRelation {
        if self.world == other.world {
            GroupRelation::Identical
        } else if self.size() == other.size() && self.world.iter().all(|rank| other.has(rank)) {
            GroupRelation::Similar
        } else {
            GroupRelation::Unequal
        }
    }

    /// The ranks that they are in a communicator of these ranks in MPI_COMM_WORLD.
    pub(super) fn ranks_in(&self, world: &[u32]) -> Result<Vec<u32>, LoggedError> {
        self.world.iter().map(|&rank| place(world, rank).ok_or(LoggedError::NoMember { rank })).collect()
    }
}

fn place(ranks: &[u32], rank: u32) -> Option<u32> {
    ranks.iter().position(|other| *other == rank).map(|place| place as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(world: &[u32]) -> Group {
        Group { world: world.to_vec(), own: 5 }
    }

    #[test]
    fn groups_are_joined_in_the_order_of_the_standard() {
        let (one, other) = (group(&[7, 5, 1]), group(&[1, 2, 5]));
        assert_eq!(one.union(&other), group(&[7, 5, 1, 2]));
        assert_eq!(one.intersection(&other), group(&[5, 1]));
        assert_eq!(one.difference(&other), group(&[7]));
        assert_eq!((one.rank(), one.difference(&other).rank()), (Some(1), None));
    }

    #[test]
    fn ranks_of_a_group_are_places_in_it() {
        let all = group(&[7, 5, 1, 2]);
        assert_eq!(all.include(&[3, 0]).unwrap(), group(&[2, 7]));
        assert_eq!(all.exclude(&[3, 0]).unwrap(), group(&[5, 1]));
        assert!(matches!(all.include(&[4]), Err(LoggedError::NoSuchRank { rank: 4, size: 4 })));
        assert!(matches!(all.exclude(&[1, 0, 1]), Err(LoggedError::Twice { rank: 1 })));
        let other = group(&[2, 9, 7]);
        assert_eq!(all.translate_ranks(&[0, 1, 3], &other).unwrap(), [Some(2), None, Some(0)]);
        assert_eq!(all.ranks_in(&[1, 2, 3, 5, 7]).unwrap(), [4, 3, 0, 1]);
        assert!(matches!(all.ranks_in(&[1, 2, 5]), Err(LoggedError::NoMember { rank: 7 })));
    }

    #[test]
    fn groups_are_compared() {
        let one = group(&[7, 5]);
        assert_eq!(one.compare(&group(&[7, 5])), GroupRelation::Identical);
        assert_eq!(one.compare(&group(&[5, 7])), GroupRelation::Similar);
        assert_eq!(one.compare(&group(&[5, 7, 8])), GroupRelation::Unequal);
        assert_eq!(one.compare(&group(&[5, 8])), GroupRelation::Unequal);
    }
}

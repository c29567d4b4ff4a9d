//! Ordered sets of ranks, to make communicators from.

use super::error::LoggedError;

/// Ordered set of ranks in the job.
///
/// A process's rank in the group is its index.
///
/// Groups are plain values: their methods don't call MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Members, by their ranks in `MPI_COMM_WORLD`.
    world: Vec<u32>,
    /// This process's rank in `MPI_COMM_WORLD`.
    own: u32,
}

/// Relation between two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRelation {
    /// The same ranks in the same order.
    Identical,
    /// The same ranks in another order.
    Similar,
    /// Different ranks.
    Unequal,
}

impl Group {
    /// Makes the group of these ranks; `own` is this process's index.
    pub(super) fn of(world: Vec<u32>, own: u32) -> Group {
        Group { own: world.get(own as usize).copied().unwrap_or_default(), world }
    }

    fn with(&self, world: impl Iterator<Item = u32>) -> Group {
        Group { world: world.collect(), own: self.own }
    }

    fn has(&self, rank: &u32) -> bool {
        self.world.contains(rank)
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.world.len() as u32
    }

    /// Returns this process's rank in the group; `None` if it isn't a member.
    pub fn rank(&self) -> Option<u32> {
        index_of(&self.world, self.own)
    }

    /// Returns all of this group's members, followed by the additional members of `other`.
    pub fn union(&self, other: &Group) -> Group {
        self.with(self.world.iter().chain(other.world.iter().filter(|rank| !self.has(rank))).copied())
    }

    /// Returns the members common to this group and `other`.
    pub fn intersection(&self, other: &Group) -> Group {
        self.with(self.world.iter().filter(|rank| other.has(rank)).copied())
    }

    /// Returns this group's members not in `other`.
    pub fn difference(&self, other: &Group) -> Group {
        self.with(self.world.iter().filter(|rank| !other.has(rank)).copied())
    }

    /// Returns the group with these ranks from this group, in this order.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`], [`LoggedError::DuplicateRank`].
    pub fn include(&self, ranks: &[u32]) -> Result<Group, LoggedError> {
        self.check_ranks(ranks)?;
        Ok(self.with(ranks.iter().map(|rank| self.world[*rank as usize])))
    }

    /// Returns the group without these ranks.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`], [`LoggedError::DuplicateRank`].
    pub fn exclude(&self, ranks: &[u32]) -> Result<Group, LoggedError> {
        self.check_ranks(ranks)?;
        let others = (0..self.size()).filter(|rank| !ranks.contains(rank));
        Ok(self.with(others.map(|rank| self.world[rank as usize])))
    }

    fn check_ranks(&self, ranks: &[u32]) -> Result<(), LoggedError> {
        for (at, &rank) in ranks.iter().enumerate() {
            if rank >= self.size() {
                return Err(LoggedError::NoSuchRank { rank, size: self.size() });
            }
            if ranks[..at].contains(&rank) {
                return Err(LoggedError::DuplicateRank { rank });
            }
        }
        Ok(())
    }

    /// Translates a rank in this group to its rank in `other`; `None` if it isn't a member of `other`.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`].
    pub fn translate_rank(&self, rank: u32, other: &Group) -> Result<Option<u32>, LoggedError> {
        self.check_ranks(&[rank])?;
        Ok(index_of(&other.world, self.world[rank as usize]))
    }

    /// Translates several ranks, as [`translate_rank`](Self::translate_rank) does.
    ///
    /// # Errors
    /// [`LoggedError::NoSuchRank`].
    pub fn translate_ranks(&self, ranks: &[u32], other: &Group) -> Result<Vec<Option<u32>>, LoggedError> {
        ranks.iter().map(|rank| self.translate_rank(*rank, other)).collect()
    }

    /// Returns the relation between this group and another one.
    pub fn compare(&self, other: &Group) -> GroupRelation {
        if self.world == other.world {
            GroupRelation::Identical
        } else if self.size() == other.size() && self.world.iter().all(|rank| other.has(rank)) {
            GroupRelation::Similar
        } else {
            GroupRelation::Unequal
        }
    }

    /// Returns the members' ranks in a communicator with the ranks `world` in `MPI_COMM_WORLD`.
    pub(super) fn ranks_in(&self, world: &[u32]) -> Result<Vec<u32>, LoggedError> {
        self.world.iter().map(|&rank| index_of(world, rank).ok_or(LoggedError::NotInCommunicator { rank })).collect()
    }
}

fn index_of(ranks: &[u32], rank: u32) -> Option<u32> {
    ranks.iter().position(|other| *other == rank).map(|index| index as u32)
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
    fn ranks_of_a_group_are_indices() {
        let all = group(&[7, 5, 1, 2]);
        assert_eq!(all.include(&[3, 0]).unwrap(), group(&[2, 7]));
        assert_eq!(all.exclude(&[3, 0]).unwrap(), group(&[5, 1]));
        assert!(matches!(all.include(&[4]), Err(LoggedError::NoSuchRank { rank: 4, size: 4 })));
        assert!(matches!(all.exclude(&[1, 0, 1]), Err(LoggedError::DuplicateRank { rank: 1 })));
        let other = group(&[2, 9, 7]);
        assert_eq!(all.translate_ranks(&[0, 1, 3], &other).unwrap(), [Some(2), None, Some(0)]);
        assert_eq!(all.ranks_in(&[1, 2, 3, 5, 7]).unwrap(), [4, 3, 0, 1]);
        assert!(matches!(all.ranks_in(&[1, 2, 5]), Err(LoggedError::NotInCommunicator { rank: 7 })));
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

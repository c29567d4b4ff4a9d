//! Cartesian grids, with the last dimension varying fastest as in MPI (MPI 4.1, section 8.2).

use serde::{Deserialize, Serialize};

/// Dimensions of a grid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grid {
    /// Number of ranks in each dimension.
    pub dims: Vec<u32>,
    /// For each dimension, true if its last rank is a neighbour of its first.
    pub periods: Vec<bool>,
}

/// Returns the number of places in a grid with these dimensions.
pub(super) fn places(dims: &[u32]) -> u64 {
    dims.iter().fold(1, |places: u64, ranks| places.saturating_mul(u64::from(*ranks)))
}

impl Grid {
    /// Returns a rank's coordinates.
    pub fn coords_of(&self, rank: u32) -> Vec<u32> {
        let mut rest = rank;
        let mut coords: Vec<u32> = self
            .dims
            .iter()
            .rev()
            .map(|&ranks| {
                let at = rest % ranks.max(1);
                rest /= ranks.max(1);
                at
            })
            .collect();
        coords.reverse();
        coords
    }

    /// Returns the rank at these coordinates, which wrap around in periodic dimensions; `None` outside the grid.
    pub fn rank_at(&self, coords: &[i64]) -> Option<u32> {
        let axes = coords.iter().zip(&self.dims).zip(&self.periods);
        axes.into_iter().try_fold(0, |rank, ((&at, &ranks), &is_periodic)| {
            let at = if is_periodic { at.rem_euclid(i64::from(ranks).max(1)) } else { at };
            let at = u32::try_from(at).ok().filter(|at| *at < ranks)?;
            Some(rank * ranks + at)
        })
    }

    /// Returns the ranks at distance `by` from `rank` in a dimension: below, and above.
    pub fn shift(&self, rank: u32, dimension: usize, by: i32) -> (Option<u32>, Option<u32>) {
        let at = |by: i64| {
            let mut coords: Vec<i64> = self.coords_of(rank).into_iter().map(i64::from).collect();
            *coords.get_mut(dimension)? += by;
            self.rank_at(&coords)
        };
        (at(-i64::from(by)), at(i64::from(by)))
    }

    /// Returns the grid with the dimensions marked in `retain`, and the index of `rank`'s subgrid among these.
    pub fn sub(&self, rank: u32, retain: &[bool]) -> (Grid, u32) {
        let (mut dims, mut periods, mut number) = (Vec::new(), Vec::new(), 0);
        for (((ranks, is_periodic), at), is_retained) in
            self.dims.iter().zip(&self.periods).zip(self.coords_of(rank)).zip(retain)
        {
            if *is_retained {
                dims.push(*ranks);
                periods.push(*is_periodic);
            } else {
                number = number * ranks + at;
            }
        }
        (Grid { dims, periods }, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid { dims: vec![2, 3], periods: vec![false, true] }
    }

    #[test]
    fn ranks_and_coordinates_are_inverse() {
        for rank in 0..6 {
            let coords: Vec<i64> = grid().coords_of(rank).into_iter().map(i64::from).collect();
            assert_eq!(grid().rank_at(&coords), Some(rank));
        }
        assert_eq!((grid().coords_of(4), grid().rank_at(&[1, -2])), (vec![1, 1], Some(4)));
        assert_eq!(grid().rank_at(&[2, 0]), None);
    }

    #[test]
    fn shifts_end_at_the_borders_of_dimensions_that_are_not_periodic() {
        assert_eq!(grid().shift(1, 0, 1), (None, Some(4)));
        assert_eq!(grid().shift(3, 1, 1), (Some(5), Some(4)));
        assert_eq!(grid().shift(3, 1, -2), (Some(5), Some(4)));
    }

    #[test]
    fn subgrids_have_the_retained_dimensions() {
        let rows = Grid { dims: vec![3], periods: vec![true] };
        assert_eq!((grid().sub(2, &[false, true]), grid().sub(5, &[false, true])), ((rows.clone(), 0), (rows, 1)));
        assert_eq!(grid().sub(5, &[true, false]), (Grid { dims: vec![2], periods: vec![false] }, 2));
    }
}

//! 2-D process grid, and the distribution of matrix and vectors over it.
//!
//! There are as many process columns as process rows, or twice as many. The matrix rows are divided into one block for
//! each process row. Its columns are divided at the same places, and with twice as many process columns each of these
//! blocks is halved. So a process row's sums, in a matrix-vector product, are the next vector's part needed by some
//! process column: each process has exactly one partner to swap with (the 'transpose exchange').

use std::ops::Range;

use super::NAME;
use crate::RanksError;

/// One process's place in the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Number of matrix rows and columns.
    order: usize,
    process_rows: u32,
    process_columns: u32,
    row: u32,
    column: u32,
}

impl Grid {
    /// Returns the place of `rank` among `ranks`, for a matrix with `order` rows and columns.
    pub(super) fn new(order: usize, rank: u32, ranks: u32) -> Result<Grid, RanksError> {
        RanksError::check_power_of_two(NAME, ranks)?;
        let process_rows = 1 << (ranks.ilog2() / 2);
        let process_columns = ranks / process_rows;
        let (row, column) = (rank / process_columns, rank % process_columns);
        Ok(Grid { order, process_rows, process_columns, row, column })
    }

    /// Returns `true` if row blocks are divided between two process columns.
    fn is_halved(&self) -> bool {
        self.process_columns != self.process_rows
    }

    /// Returns this process's matrix rows.
    pub(super) fn rows(&self) -> Range<usize> {
        self.block(self.row)
    }

    /// Returns this process's matrix columns, which are also its part of every vector.
    pub(super) fn columns(&self) -> Range<usize> {
        if !self.is_halved() {
            return self.block(self.column);
        }
        let block = self.block(self.column / 2);
        let half = Grid::half(block.len(), self.column % 2);
        block.start + half.start..block.start + half.end
    }

    /// Returns the part of [`Grid::rows`], relative to its start, summed up by this process for its partner.
    pub(super) fn summed(&self) -> Range<usize> {
        let len = self.rows().len();
        if self.is_halved() { Grid::half(len, self.column % 2) } else { 0..len }
    }

    /// Returns the process in the same row summing up the other half, if blocks are halved.
    pub(super) fn neighbour(&self) -> Option<u32> {
        self.is_halved().then(|| self.rank_at(self.row, self.column ^ 1))
    }

    /// Returns the processes in this row summing up the same part, in the order of exchanges after which each has the
    /// total.
    pub(super) fn sum_peers(&self) -> Vec<u32> {
        let first = if self.is_halved() { 1 } else { 0 };
        self.row_peers(first)
    }

    /// Like [`Grid::sum_peers`], over all processes in the row.
    pub(super) fn dot_peers(&self) -> Vec<u32> {
        self.row_peers(0)
    }

    /// Returns the process to swap the sums with in the transpose exchange, possibly this one.
    pub(super) fn partner(&self) -> u32 {
        if self.is_halved() {
            self.rank_at(self.column / 2, 2 * self.row + self.column % 2)
        } else {
            self.rank_at(self.column, self.row)
        }
    }

    fn row_peers(&self, first_bit: u32) -> Vec<u32> {
        let bits = first_bit..self.process_columns.ilog2();
        bits.rev().map(|bit| self.rank_at(self.row, self.column ^ (1 << bit))).collect()
    }

    fn rank_at(&self, row: u32, column: u32) -> u32 {
        row * self.process_columns + column
    }

    /// Returns block `index` of `process_rows`; the first ones are one longer if the order isn't divisible.
    fn block(&self, index: u32) -> Range<usize> {
        let (blocks, index) = (self.process_rows as usize, index as usize);
        let (len, longer) = (self.order / blocks, self.order % blocks);
        let start = index * len + index.min(longer);
        start..start + len + usize::from(index < longer)
    }

    /// Returns the first (longer) or second half of a block with length `len`.
    fn half(len: usize, which: u32) -> Range<usize> {
        let middle = len.div_ceil(2);
        if which == 0 { 0..middle } else { middle..len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grids(order: usize, ranks: u32) -> Vec<Grid> {
        (0..ranks).map(|rank| Grid::new(order, rank, ranks).unwrap()).collect()
    }

    #[test]
    fn every_matrix_element_belongs_to_one_process() {
        for (order, ranks) in [(13, 1), (13, 2), (13, 4), (10, 8), (23, 8), (33, 16), (37, 32)] {
            let grids = grids(order, ranks);
            for (row, column) in (0..order).flat_map(|row| (0..order).map(move |column| (row, column))) {
                let owners = grids.iter().filter(|grid| grid.rows().contains(&row) && grid.columns().contains(&column));
                assert_eq!(owners.count(), 1, "element ({row}, {column}) on {ranks} ranks");
            }
        }
    }

    #[test]
    fn partners_are_mutual_and_sum_up_what_the_other_needs() {
        for (order, ranks) in [(13, 1), (13, 2), (13, 4), (23, 8), (33, 16), (37, 32), (71, 128)] {
            let grids = grids(order, ranks);
            for (rank, grid) in (0..).zip(&grids) {
                let partner = &grids[grid.partner() as usize];
                assert_eq!(partner.partner(), rank);
                let start = grid.rows().start;
                let summed = start + grid.summed().start..start + grid.summed().end;
                assert_eq!(summed, partner.columns(), "rank {rank} of {ranks}");
            }
        }
    }

    #[test]
    fn exchanges_reach_every_process_of_the_row_once() {
        let reached = |start: u32, peers: &dyn Fn(u32) -> Vec<u32>| {
            let mut reached = vec![start];
            for step in 0..peers(start).len() {
                reached.extend(reached.clone().into_iter().map(|rank| peers(rank)[step]));
            }
            reached.sort_unstable();
            reached
        };
        let grids = grids(100, 8); // 2 rows of 4
        assert_eq!(reached(5, &|rank| grids[rank as usize].dot_peers()), [4, 5, 6, 7]);
        assert_eq!(reached(5, &|rank| grids[rank as usize].sum_peers()), [5, 7]);
        assert_eq!(grids[5].neighbour(), Some(4));
        assert_eq!(Grid::new(100, 5, 16).unwrap().neighbour(), None);
    }

    #[test]
    fn numbers_of_ranks_other_than_powers_of_two_are_refused() {
        for ranks in [0, 3, 6, 12] {
            assert_eq!(Grid::new(10, 0, ranks), Err(RanksError::NotPowerOfTwo { workload: NAME, ranks }));
        }
    }
}

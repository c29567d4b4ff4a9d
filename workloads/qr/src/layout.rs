//! Placement of matrix blocks and their checksums.

use std::ops::Range;

/// Matrix and block sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Matrix rows.
    pub rows: usize,
    /// Matrix columns.
    pub columns: usize,
    /// Rows and columns in a block; blocks at the border may be smaller.
    pub block: usize,
}

/// Shape of the process grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Process rows.
    pub rows: usize,
    /// Process columns.
    pub columns: usize,
}

/// A process's place in the grid, row by row from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Process row.
    pub row: usize,
    /// Process column.
    pub column: usize,
}

/// Checksums kept up to date by a factorization.
///
/// Each survives one lost process in each process row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// None.
    Unprotected,
    /// Two equal checksums for as many block columns as there are process columns (Du et al. 2012, as in Bland et al.
    /// 2013, section 4.1): 2/Q more memory and arithmetic on Q process columns.
    Duplicated,
    /// One checksum, on the process column with none of its block columns (as RAID 5): 1/(Q - 1) more.
    Rotating,
    /// Checksums placed as for `Rotating`, but not updated.
    ///
    /// The block columns are summed up every so many iterations, and survivors go back to the last sums. 1/(Q - 1) more
    /// memory, and no more arithmetic.
    Periodic(usize),
}

/// Data block columns with a common checksum, all on different process columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The data block columns.
    pub members: Range<usize>,
    /// Process columns with its checksums.
    pub holders: Vec<usize>,
}

impl Stripe {
    /// Returns the last data block column.
    pub fn last(&self) -> usize {
        self.members.end - 1
    }
}

/// Reason for an impossible layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A number is 0.
    #[error("the numbers of rows and columns, of a matrix, its blocks and the grid, and a period must not be 0")]
    Empty,
    /// A checksum would be on the same process as its data.
    #[error("checksums need 2 process columns")]
    OneColumn,
}

/// Distribution of a matrix, and of its checksums, over a process grid.
///
/// Block row i is on process row i mod P. Data block columns are on process columns d mod Q, but with
/// [`Protection::Rotating`] and [`Protection::Periodic`] each stripe of Q - 1 leaves one out for its checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    size: Size,
    grid: Grid,
    stripes: Vec<Stripe>,
    /// Each data block column's process column.
    columns: Vec<usize>,
    /// Data block columns in a stripe.
    stripe_len: usize,
    /// Iterations from one summation of the block columns to the next.
    period: Option<usize>,
}

impl Layout {
    /// Lays a matrix out.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn new(size: Size, grid: Grid, protection: Protection) -> Result<Layout, LayoutError> {
        let period = if let Protection::Periodic(period) = protection { Some(period) } else { None };
        if [size.rows, size.columns, size.block, grid.rows, grid.columns].contains(&0) || period == Some(0) {
            return Err(LayoutError::Empty);
        }
        if grid.columns == 1 && protection != Protection::Unprotected {
            return Err(LayoutError::OneColumn);
        }
        let (blocks, wide) = (size.columns.div_ceil(size.block), grid.columns);
        let leaves_one_out = matches!(protection, Protection::Rotating | Protection::Periodic(_));
        let stripe_len = if leaves_one_out { wide - 1 } else { wide };
        let stripes = blocks.div_ceil(stripe_len);
        let (mut columns, mut all) = (Vec::with_capacity(blocks), Vec::with_capacity(stripes));
        for stripe in 0..stripes {
            let members = stripe * stripe_len..((stripe + 1) * stripe_len).min(blocks);
            let holders = match protection {
                Protection::Unprotected => Vec::new(),
                Protection::Duplicated => {
                    // To the right of the data, the first stripe's last: each iteration updates adjacent columns.
                    let first = stripes * wide + 2 * (stripes - 1 - stripe);
                    vec![first % wide, (first + 1) % wide]
                }
                Protection::Rotating | Protection::Periodic(_) => vec![wide - 1 - stripe % wide],
            };
            let is_free = |column: &usize| !leaves_one_out || !holders.contains(column);
            columns.extend((0..wide).filter(is_free).take(members.len()));
            all.push(Stripe { members, holders });
        }
        Ok(Layout { size, grid, stripes: all, columns, stripe_len, period })
    }

    /// Returns the matrix size.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the grid.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Returns the stripes.
    pub fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// Returns the number of data block columns.
    pub fn blocks(&self) -> usize {
        self.columns.len()
    }

    /// Returns the number of panels: a factorization's iterations.
    pub fn panels(&self) -> usize {
        self.size.rows.min(self.size.columns).div_ceil(self.size.block)
    }

    /// Returns a data block column's process column.
    pub fn column_of(&self, block: usize) -> usize {
        self.columns[block]
    }

    /// Returns a process column's data block columns, ascending.
    pub fn blocks_of(&self, column: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.blocks()).filter(move |block| self.column_of(*block) == column)
    }

    /// Returns a data block column's stripe.
    pub fn stripe_of(&self, block: usize) -> usize {
        block / self.stripe_len
    }

    /// Returns a data block column's matrix columns.
    pub fn columns(&self, block: usize) -> Range<usize> {
        let first = block * self.size.block;
        first..(first + self.size.block).min(self.size.columns)
    }

    /// Returns a panel's number of reflectors: its columns, or its rows if these are fewer.
    pub fn reflectors(&self, panel: usize) -> usize {
        self.columns(panel).len().min(self.size.rows - panel * self.size.block)
    }

    /// Returns the number of matrix rows above row `row` in a process row.
    pub fn rows_above(&self, process_row: usize, row: usize) -> usize {
        let row = row.min(self.size.rows);
        let (block, rest) = (row / self.size.block, row % self.size.block);
        let whole = (block + self.grid.rows - 1 - process_row) / self.grid.rows * self.size.block;
        whole + if block % self.grid.rows == process_row { rest } else { 0 }
    }

    /// Returns the number of matrix rows in a process row.
    pub fn local_rows(&self, process_row: usize) -> usize {
        self.rows_above(process_row, self.size.rows)
    }

    /// Returns the matrix row at a place in a process row.
    pub fn row_at(&self, process_row: usize, place: usize) -> usize {
        let (block, rest) = (place / self.size.block, place % self.size.block);
        (block * self.grid.rows + process_row) * self.size.block + rest
    }

    /// Returns a process row's matrix rows, ascending.
    pub fn rows_of(&self, process_row: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.local_rows(process_row)).map(move |place| self.row_at(process_row, place))
    }

    /// Returns `true` if a process column has work in an iteration.
    pub fn takes_part(&self, column: usize, panel: usize) -> bool {
        let has_data = || (panel..self.blocks()).any(|block| self.columns[block] == column);
        let holds = |stripe: &Stripe| stripe.holders.contains(&column);
        let has_checksum = || match self.period {
            None => self.stripes.iter().any(|stripe| stripe.last() >= panel && holds(stripe)),
            Some(_) => holds(&self.stripes[self.stripe_of(panel)]),
        };
        panel < self.panels() && (has_data() || has_checksum())
    }

    /// Returns `true` if checksums are updated in each iteration; then a process column without work in one has none in
    /// the following ones.
    pub fn updates_checksums(&self) -> bool {
        self.period.is_none()
    }

    /// Returns the iteration of the previous sums, if block columns are summed up before iteration `panel`.
    pub(crate) fn sums_before(&self, panel: usize) -> Option<usize> {
        let period = self.period?;
        let is_due = panel > 0 && (panel.is_multiple_of(period) || panel == self.panels());
        is_due.then(|| (panel - 1) / period * period)
    }

    /// Returns the largest number of iterations to go back: no process gets ahead of another by more.
    pub fn window(&self) -> usize {
        2 * self.grid.columns + self.period.unwrap_or(0)
    }

    /// Returns the number of iterations for which block column sums are kept.
    pub(crate) fn sums_window(&self) -> usize {
        self.window() + 2 * self.period.unwrap_or(0)
    }

    /// Returns the largest number of kept sums for a stripe on one process.
    pub(crate) fn sums_max(&self) -> usize {
        self.period.map_or(0, |period| self.sums_window() / period + 3)
    }

    /// Returns all places in the grid.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let Grid { rows, columns } = self.grid;
        (0..rows).flat_map(move |row| (0..columns).map(move |column| Place { row, column }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRIDS: [(usize, usize); 6] = [(1, 2), (1, 4), (2, 2), (2, 3), (2, 4), (3, 2)];

    fn layouts() -> impl Iterator<Item = Layout> {
        let sizes = [(18, 18, 4), (5, 40, 3), (40, 5, 3), (7, 7, 7), (1, 1, 4), (32, 24, 1)];
        sizes.into_iter().flat_map(|(rows, columns, block)| {
            GRIDS.into_iter().flat_map(move |(p, q)| {
                let all =
                    [Protection::Unprotected, Protection::Duplicated, Protection::Rotating, Protection::Periodic(3)];
                all.map(|protection| {
                    Layout::new(Size { rows, columns, block }, Grid { rows: p, columns: q }, protection).unwrap()
                })
            })
        })
    }

    #[test]
    fn a_process_column_has_one_block_column_of_a_stripe_and_another_one_a_checksum() {
        for layout in layouts() {
            let mut covered = 0;
            for (number, stripe) in layout.stripes().iter().enumerate() {
                assert_eq!(stripe.members.start, covered);
                covered = stripe.members.end;
                let mut columns: Vec<usize> = stripe.members.clone().map(|block| layout.column_of(block)).collect();
                assert!(stripe.members.clone().all(|block| layout.stripe_of(block) == number));
                columns.sort_unstable();
                columns.dedup();
                assert_eq!(columns.len(), stripe.members.len());
                for lost in columns.into_iter().filter(|_| !stripe.holders.is_empty()) {
                    assert!(stripe.holders.iter().any(|holder| *holder != lost), "{layout:?}");
                }
            }
            assert_eq!(covered, layout.blocks());
        }
    }

    #[test]
    fn rows_are_numbered_in_each_process_row() {
        for layout in layouts() {
            let Grid { rows, .. } = layout.grid();
            let mut found = Vec::new();
            for process_row in 0..rows {
                let own: Vec<usize> =
                    (0..layout.local_rows(process_row)).map(|place| layout.row_at(process_row, place)).collect();
                for row in 0..=layout.size().rows {
                    let above = own.iter().filter(|own| **own < row).count();
                    assert_eq!(layout.rows_above(process_row, row), above, "{layout:?}");
                }
                found.extend(own);
            }
            found.sort_unstable();
            assert!(found.into_iter().eq(0..layout.size().rows));
        }
    }

    #[test]
    fn a_process_column_that_stops_has_no_work_later() {
        for layout in layouts().filter(Layout::updates_checksums) {
            for column in 0..layout.grid().columns {
                let works: Vec<bool> = (0..=layout.panels()).map(|panel| layout.takes_part(column, panel)).collect();
                assert!(works.is_sorted_by(|before, after| before >= after), "{layout:?}");
            }
        }
    }

    #[test]
    fn checksums_need_two_process_columns() {
        let (size, one) = (Size { rows: 4, columns: 4, block: 2 }, Grid { rows: 2, columns: 1 });
        assert!(Layout::new(size, one, Protection::Unprotected).is_ok());
        assert_eq!(Layout::new(size, one, Protection::Rotating), Err(LayoutError::OneColumn));
        assert_eq!(Layout::new(Size { block: 0, ..size }, one, Protection::Unprotected), Err(LayoutError::Empty));
        let two = Grid { rows: 1, columns: 2 };
        assert_eq!(Layout::new(size, two, Protection::Periodic(0)), Err(LayoutError::Empty));
    }
}

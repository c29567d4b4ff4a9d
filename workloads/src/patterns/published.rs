//! Table I in Guermouche 2011, as printed.

use super::{Kernel, Pattern, PatternError};

/// Cell in Table I (Guermouche 2011, section V.E.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Table row.
    pub kernel: Kernel,
    /// Size: 64, 128 or 256.
    ///
    /// BT ran on fewer ranks if this is no square.
    pub ranks: u32,
    /// Number of clusters: 4, 8 or 16.
    pub clusters: u32,
    /// %log as printed: percentage of logged messages.
    pub logged_percent: f64,
    /// %rl as printed: percentage of ranks rolled back, averaged over failures.
    pub rolled_back_percent: f64,
}

impl Cell {
    /// Iterates over all forty cells, row by row.
    pub fn all() -> impl Iterator<Item = Cell> {
        ROWS.into_iter().flat_map(|(kernel, logged, rolled_back)| {
            COLUMNS.into_iter().zip(logged).zip(rolled_back).map(
                move |(((ranks, clusters), logged_percent), rolled_back_percent)| Cell {
                    kernel,
                    ranks,
                    clusters,
                    logged_percent,
                    rolled_back_percent,
                },
            )
        })
    }

    /// Returns the cell's pattern: the kernel on the largest valid number of ranks.
    ///
    /// # Errors
    /// [`PatternError::Ranks`] if there are too few ranks; never for [`Cell::all`].
    pub fn pattern(&self) -> Result<Pattern, PatternError> {
        Pattern::nas(self.kernel, self.kernel.ranks_within(self.ranks).unwrap_or(self.ranks))
    }

    /// Returns the number of successive ranks in a cluster; BT's last cluster at 128 has fewer.
    pub const fn ranks_in_cluster(&self) -> u32 {
        self.ranks / self.clusters
    }
}

/// Table columns: ranks and clusters.
const COLUMNS: [(u32, u32); 8] = [(64, 4), (64, 8), (128, 4), (128, 8), (128, 16), (256, 4), (256, 8), (256, 16)];

/// Table rows: %log and %rl in each column.
const ROWS: [(Kernel, [f64; 8], [f64; 8]); 5] = [
    (Kernel::Mg, [16.59, 25.0, 9.5, 17.1, 25.4, 9.1, 16.9, 24.9], [62.5, 46.9, 62.5, 56.3, 42.1, 62.5, 55.7, 41.7]),
    (Kernel::Lu, [10.72, 25.0, 10.35, 24.14, 25.9, 5.0, 11.7, 25.03], [62.5, 56.2, 62.5, 56.3, 42.1, 62.5, 56.1, 53.1]),
    (Kernel::Ft, [37.2, 43.6, 37.3, 43.6, 46.8, 37.4, 43.6, 46.8], [62.4, 59.0, 62.5, 56.0, 53.0, 62.3, 55.8, 52.5]),
    (Kernel::Cg, [3.8, 4.4, 2.9, 3.4, 15.0, 2.9, 3.4, 3.6], [62.5, 56.3, 62.5, 56.3, 43.8, 62.5, 56.3, 53.1]),
    (Kernel::Bt, [16.7, 33.3, 13.0, 25.2, 36.7, 8.3, 16.7, 33.3], [62.5, 56.3, 62.6, 56.4, 53.3, 62.5, 56.25, 53.12]),
];

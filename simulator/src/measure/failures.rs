//! Rollbacks when a rank fails.

use counterfoil_protocols::send_deterministic::{RankTable, recovery_line};

/// Number of ranks rolling back, summed over failures.
///
/// Follows the paper's method (Guermouche 2011, section V.E.1): tables are taken at some moments of a run without
/// failures, and for each of them the recovery line is found for the failure of each rank alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolledBack {
    /// Number of failures.
    pub failures: u64,
    /// Ranks rolling back, the failed one included, over all failures.
    pub rolled_back: u64,
    /// Ranks of the job, over all failures.
    pub ranks: u64,
}

impl RolledBack {
    /// Adds the failure of each rank in `failing`, from its newest checkpoint, with these tables.
    ///
    /// Each takes as long as [`recovery_line`].
    pub fn add(&mut self, tables: &[RankTable], failing: impl IntoIterator<Item = u32>) {
        let mut failed: Vec<Option<u32>> = vec![None; tables.len()];
        for rank in failing.into_iter().map(|rank| rank as usize).filter(|&rank| rank < tables.len()) {
            failed[rank] = Some(tables[rank].epoch);
            let line = recovery_line(tables, &failed);
            failed[rank] = None;
            self.count(&line);
        }
    }

    /// Adds a recovery line computed elsewhere.
    pub fn count(&mut self, line: &[Option<u32>]) {
        self.failures += 1;
        self.rolled_back += line.iter().flatten().count() as u64;
        self.ranks += line.len() as u64;
    }

    /// Returns the ranks rolling back as a percentage of all: %rl of Table I. 0 without failures.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.ranks == 0 { 0.0 } else { 100.0 * self.rolled_back as f64 / self.ranks as f64 }
    }
}

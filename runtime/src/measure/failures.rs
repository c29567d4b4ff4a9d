//! Who rolls back when a rank fails.

use counterfoil_protocols::send_deterministic::{RankTable, recovery_line};

/// How many ranks roll back, summed over failures.
///
/// The paper's method (Guermouche 2011, section V.E.1): tables are taken at some moments of a run without failures, and
/// for each of them the recovery line is found for the failure of each rank alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolledBack {
    /// How many failures were asked about.
    pub failures: u64,
    /// Ranks that roll back, the failed one among them, over all failures.
    pub rolled_back: u64,
    /// Ranks that there were, over all failures.
    pub ranks: u64,
}

impl RolledBack {
    /// Asks for the failure of each rank of `failing`, from its newest checkpoint, with these tables. Each takes as long
    /// as [`recovery_line`].
    pub fn add(&mut self, tables: &[RankTable], failing: impl IntoIterator<Item = u32>) {
        let mut failed: Vec<Option<u32>> = vec![None; tables.len()];
        for rank in failing.into_iter().map(|rank| rank as usize).filter(|&rank| rank < tables.len()) {
            failed[rank] = Some(tables[rank].epoch);
            let line = recovery_line(tables, &failed);
            failed[rank] = None;
            self.count(&line);
        }
    }

    /// Counts a recovery line that was found otherwise.
    pub fn count(&mut self, line: &[Option<u32>]) {
        self.failures += 1;
        self.rolled_back += line.iter().flatten().count() as u64;
        self.ranks += line.len() as u64;
    }

    /// Ranks that roll back in per cent of all: %rl of Table I. 0 if nothing was asked.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.ranks == 0 { 0.0 } else { 100.0 * self.rolled_back as f64 / self.ranks as f64 }
    }
}

//! Kill matrix cells.

use super::{Call, Pattern, Program, Protocol};
use crate::soak::listed::Listed;
use crate::workspace::TaskError;

/// Kill matrix cell; a run's other parameters are random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::soak) struct Cell<'a> {
    pub(super) workload: &'a Program,
    pub(super) protocol: &'a Protocol,
    pub(super) pattern: Pattern,
}

pub(super) const PATTERNS: [Pattern; 10] = [
    Pattern::OneRank,
    Pattern::SameRankAgain,
    Pattern::TwoAtOnce,
    Pattern::DuringRepair,
    Pattern::DuringRecovery,
    Pattern::InCall(Call::Send),
    Pattern::InCall(Call::Receive),
    Pattern::InCall(Call::Collective),
    Pattern::InCall(Call::Checkpoint),
    Pattern::PowerCut,
];
impl<'a> Cell<'a> {
    /// Returns the cells for one protocol, or for all, ordered so that every few successive cells have several
    /// workloads, protocols and patterns.
    ///
    /// # Errors
    /// [`TaskError::Protocol`].
    pub(in crate::soak) fn of(listed: &'a Listed, protocol: Option<&str>) -> Result<Vec<Self>, TaskError> {
        let protocols = listed.protocols(protocol)?;
        let mut cells = Vec::new();
        for pattern in PATTERNS {
            for workload in &listed.programs {
                for &protocol in &protocols {
                    let is_impossible = (protocol.needs_send_determinism && !workload.send_deterministic)
                        || matches!(pattern, Pattern::InCall(call) if !workload.makes(call));
                    if !is_impossible {
                        cells.push(Self { workload, protocol, pattern });
                    }
                }
            }
        }
        // Coprime to the number of cells, and several patterns away.
        let stride = (cells.len() * 3 / 8..).find(|stride| gcd(*stride, cells.len()) == 1).unwrap_or(1);
        Ok((0..cells.len()).map(|at| cells[at * stride % cells.len()]).collect())
    }
}

/// Returns the greatest common divisor.
fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

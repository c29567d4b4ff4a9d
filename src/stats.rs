//! What a log did and holds.

use counterfoil_gc::Holder;

/// Counters of a log, since it was opened, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages committed (imported and recovered ones not counted).
    pub messages_logged: u64,
    /// Bytes of records appended, headers and pads included.
    pub bytes_logged: u64,
    /// Bytes of chunks in use by lanes.
    pub used_bytes: usize,
    /// Bytes of memory in use or kept ready.
    pub resident_bytes: usize,
    /// The budget.
    pub max_bytes: usize,
    /// Lanes that have been used.
    pub lanes: usize,
    /// Entries of the local log.
    pub local_entries: usize,
    /// Who holds retained bytes back, most first.
    pub holders: Vec<Holder>,
    /// Whether logging was stopped at the budget: nothing is recoverable from then on.
    pub stopped_logging: bool,
}

//! What a log did and holds.

use counterfoil_gc::Holder;
use counterfoil_log_io::DiskUsage;

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
    /// Bytes of memory that were given back because their records are on disk.
    pub spilled_bytes: u64,
    /// What the store takes, where there is one.
    pub disk: Option<DiskUsage>,
    /// How the store reaches its disk, and why not in a faster way, in words: `io_uring, 8 registered buffers`, or
    /// `pwrite (io_uring is not permitted ...)`.
    pub backend: Option<String>,
}

/// How much a log holds: what [`Stats`] says of it that costs nothing to find out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of chunks in use by lanes.
    pub used_bytes: usize,
    /// Bytes of memory in use or kept ready.
    pub resident_bytes: usize,
    /// Bytes of memory that were given back because their records are on disk.
    pub spilled_bytes: u64,
    /// Whether logging was stopped at the budget.
    pub stopped_logging: bool,
}

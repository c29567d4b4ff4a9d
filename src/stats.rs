//! Statistics of a log.

use std::time::Duration;

use counterfoil_gc::Holder;
use counterfoil_log_io::DiskUsage;

/// Counters of a log since it was opened, and its current usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Committed messages, without imported and recovered ones.
    pub messages_logged: u64,
    /// Bytes of records appended, headers and pads included.
    pub bytes_logged: u64,
    /// Bytes of chunks in use by lanes.
    pub used_bytes: usize,
    /// Bytes of memory in use or kept for reuse.
    pub resident_bytes: usize,
    /// Memory budget in bytes.
    pub max_bytes: usize,
    /// Bytes of memory that claims had to commit, with page faults: neither prefaulted nor committed ahead.
    pub late_commit_bytes: usize,
    /// Number of lanes that have been used.
    pub lanes: usize,
    /// Number of entries of the local log.
    pub local_entries: usize,
    /// Lanes that hold memory, most bytes first.
    pub holders: Vec<Holder>,
    /// True if logging was stopped at the budget: nothing is recoverable from then on.
    pub stopped_logging: bool,
    /// Bytes of memory freed because their records are on disk.
    pub spilled_bytes: u64,
    /// Processor time of the thread that writes spilled records; it competes with the program for cores.
    pub spill_cpu: Duration,
    /// Disk usage of the store, if there is one.
    pub disk: Option<DiskUsage>,
    /// I/O backend of the store, and the reason if it isn't the faster one: `io_uring, 8 registered buffers`, or
    /// `pwrite (io_uring is not permitted ...)`.
    pub backend: Option<String>,
}

/// Memory usage of a log: the part of [`Stats`] that costs only a few loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes of chunks in use by lanes.
    pub used_bytes: usize,
    /// Bytes of memory in use or kept for reuse.
    pub resident_bytes: usize,
    /// Bytes of memory that claims had to commit, with page faults: neither prefaulted nor committed ahead.
    pub late_commit_bytes: usize,
    /// Bytes of memory freed because their records are on disk.
    pub spilled_bytes: u64,
    /// Processor time of the thread that writes spilled records; it competes with the program for cores.
    pub spill_cpu: Duration,
    /// True if logging was stopped at the budget.
    pub stopped_logging: bool,
}

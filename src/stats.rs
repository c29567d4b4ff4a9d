//! Statistics of a log.

use std::time::Duration;

use counterfoil_gc::Holder;
use counterfoil_log_io::DiskUsage;

/// Log counters since opening, and current usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Committed messages, without imported and recovered ones.
    pub messages_logged: u64,
    /// Appended record bytes, headers and pads included.
    pub bytes_logged: u64,
    /// Chunk bytes in use by lanes.
    pub used_bytes: usize,
    /// Bytes of memory in use or kept for reuse.
    pub resident_bytes: usize,
    /// Memory budget in bytes.
    pub max_bytes: usize,
    /// Memory committed by claims, with page faults, in bytes: neither prefaulted nor committed ahead.
    pub late_commit_bytes: usize,
    /// Number of used lanes.
    pub lanes: usize,
    /// Number of local log entries.
    pub local_entries: usize,
    /// Lanes holding memory, most bytes first.
    pub holders: Vec<Holder>,
    /// True if logging was stopped at the budget: nothing is recoverable from then on.
    pub stopped_logging: bool,
    /// Memory freed in bytes because their records are on disk.
    pub spilled_bytes: u64,
    /// Processor time of the thread writing spilled records; it competes with the program for cores.
    pub spill_cpu: Duration,
    /// The store's disk usage, if there is one.
    pub disk: Option<DiskUsage>,
    /// The store's I/O backend, and the reason if it isn't the faster one: `io_uring, 8 registered buffers`, or `pwrite
    /// (io_uring is not permitted ...)`.
    pub backend: Option<String>,
}

/// Memory usage of a log: the part of [`Stats`] costing only a few loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Chunk bytes in use by lanes.
    pub used_bytes: usize,
    /// Bytes of memory in use or kept for reuse.
    pub resident_bytes: usize,
    /// Memory committed by claims, with page faults, in bytes: neither prefaulted nor committed ahead.
    pub late_commit_bytes: usize,
    /// Memory freed in bytes because their records are on disk.
    pub spilled_bytes: u64,
    /// Processor time of the thread writing spilled records; it competes with the program for cores.
    pub spill_cpu: Duration,
    /// True if logging was stopped at the budget.
    pub stopped_logging: bool,
}

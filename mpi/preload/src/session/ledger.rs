//! What a rank did.

use std::time::Duration;

use counterfoil::Usage;
use counterfoil_profile::Sizes;

use crate::Operation;

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Traffic {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Traffic {
    /// Those to or from all ranks.
    pub(crate) fn sum(of: &[Traffic]) -> Traffic {
        of.iter().fold(Traffic::default(), |sum, one| Traffic {
            messages: sum.messages + one.messages,
            bytes: sum.bytes + one.bytes,
        })
    }

    #[inline]
    fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

/// In place of a rank, where none is meant.
const NOBODY: u32 = u32::MAX;

/// Counters of one rank.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// To each rank of MPI_COMM_WORLD.
    pub(crate) logged: Vec<Traffic>,
    /// How long these messages were.
    pub(crate) sizes: Sizes,
    /// Whom the last message went to, if it was one that left.
    latest: u32,
    /// From each rank of MPI_COMM_WORLD.
    pub(crate) received: Vec<Traffic>,
    /// Of each collective operation: how often it was called, and how many bytes were kept.
    pub(crate) collectives: Vec<Traffic>,
    /// What was kept of them.
    pub(crate) contributions: Traffic,
    /// Outcomes that the program left to MPI, and that were recorded.
    pub(crate) determinants: u64,
    /// Bytes of memory that the log took, at most.
    pub(crate) memory_peak: usize,
    pub(crate) spilled: u64,
    /// For how long sends waited for room.
    pub(crate) waited: Duration,
    /// Sends, and collective operations, that failed because the log had no room.
    pub(crate) sends_refused: u64,
    pub(crate) has_said_that_it_waits: bool,
    pub(crate) has_stopped: bool,
    pub(crate) gave_up: Option<String>,
}

impl Ledger {
    pub(crate) fn new(ranks: u32) -> Ledger {
        let none = || vec![Traffic::default(); ranks as usize];
        Ledger {
            logged: none(),
            sizes: Sizes::default(),
            latest: NOBODY,
            received: none(),
            collectives: vec![Traffic::default(); Operation::ALL.len()],
            contributions: Traffic::default(),
            determinants: 0,
            memory_peak: 0,
            spilled: 0,
            waited: Duration::ZERO,
            sends_refused: 0,
            has_said_that_it_waits: false,
            has_stopped: false,
            gave_up: None,
        }
    }

    #[inline]
    pub(crate) fn logged(&mut self, to: u32, bytes: usize) {
        if let Some(traffic) = self.logged.get_mut(to as usize) {
            traffic.add(bytes);
        }
        self.sizes.add(bytes as u64);
        self.latest = to;
    }

    /// Whom the last message went to; `None` if the last one came from somebody.
    pub(crate) fn latest(&self) -> Option<u32> {
        (self.latest != NOBODY).then_some(self.latest)
    }

    pub(crate) fn has_logged(&self, to: u32) -> bool {
        self.logged.get(to as usize).is_some_and(|traffic| traffic.messages > 0)
    }

    #[inline]
    pub(crate) fn received(&mut self, from: u32, bytes: usize) {
        if let Some(traffic) = self.received.get_mut(from as usize) {
            traffic.add(bytes);
        }
        self.latest = NOBODY;
    }

    pub(crate) fn collective(&mut self, operation: Operation, bytes: Option<usize>) {
        self.collectives[operation as usize].add(bytes.unwrap_or(0));
        if let Some(bytes) = bytes {
            self.contributions.add(bytes);
        }
    }

    /// How many collective operations there were.
    pub(crate) fn all_collectives(&self) -> u64 {
        Traffic::sum(&self.collectives).messages
    }

    /// How the log is.
    pub(crate) fn note(&mut self, usage: Usage) {
        self.memory_peak = self.memory_peak.max(usage.resident_bytes);
        self.spilled = usage.spilled_bytes;
        self.has_stopped |= usage.stopped_logging;
    }
}

//! What a rank did.

use std::time::Duration;

use counterfoil::Usage;
use counterfoil_profile::{Sizes, Word};

use super::live::Live;
use crate::Operation;

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Traffic {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Traffic {
    /// All of them together.
    pub(crate) fn sum(of: impl IntoIterator<Item = Traffic>) -> Traffic {
        of.into_iter().fold(Traffic::default(), |sum, one| Traffic {
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
    /// Messages to and from each rank of MPI_COMM_WORLD, and what else others may see of these counters at any time.
    live: Live,
    /// How long the messages were that were logged.
    pub(crate) sizes: Sizes,
    /// Whom the last message went to, if it was one that left.
    latest: u32,
    /// Of each collective operation: how often it was called, and how many bytes were kept.
    pub(crate) collectives: Vec<Traffic>,
    /// What was kept of them.
    pub(crate) contributions: Traffic,
    /// Outcomes that the program left to MPI, and that were recorded.
    pub(crate) determinants: u64,
    /// Records that somebody has said to have received.
    acknowledged: u64,
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
    pub(super) fn new(live: Live) -> Ledger {
        Ledger {
            live,
            sizes: Sizes::default(),
            latest: NOBODY,
            collectives: vec![Traffic::default(); Operation::ALL.len()],
            contributions: Traffic::default(),
            determinants: 0,
            acknowledged: 0,
            memory_peak: 0,
            spilled: 0,
            waited: Duration::ZERO,
            sends_refused: 0,
            has_said_that_it_waits: false,
            has_stopped: false,
            gave_up: None,
        }
    }

    #[inline(always)]
    pub(crate) fn logged(&mut self, to: u32, bytes: usize) {
        self.live.add_logged(to, bytes);
        self.sizes.add(bytes as u64);
        self.latest = to;
    }

    /// Whom the last message went to, said once; `None` if the last one [came](Self::has_arrived) from somebody.
    pub(crate) fn take_latest(&mut self) -> Option<u32> {
        let latest = std::mem::replace(&mut self.latest, NOBODY);
        (latest != NOBODY).then_some(latest)
    }

    pub(crate) fn has_logged(&self, to: u32) -> bool {
        self.live.logged(to).messages > 0
    }

    /// To each rank.
    pub(crate) fn all_logged(&self) -> Vec<Traffic> {
        self.live.ranks().map(|to| self.live.logged(to)).collect()
    }

    /// From each rank.
    pub(crate) fn all_received(&self) -> Vec<Traffic> {
        self.live.ranks().map(|from| self.live.received(from)).collect()
    }

    #[inline(always)]
    pub(crate) fn received(&mut self, from: u32, bytes: usize) {
        self.live.add_received(from, bytes);
    }

    /// The message that is looked after next came from somebody.
    #[inline]
    pub(crate) fn has_arrived(&mut self) {
        self.latest = NOBODY;
    }

    pub(crate) fn collective(&mut self, operation: Operation, bytes: Option<usize>) {
        self.collectives[operation as usize].add(bytes.unwrap_or(0));
        if let Some(bytes) = bytes {
            self.contributions.add(bytes);
            self.live.set(Word::Contributions, self.contributions.messages);
            self.live.set(Word::ContributedBytes, self.contributions.bytes);
        }
        self.live.set(Word::Collectives, self.all_collectives());
    }

    /// An outcome that was recorded.
    pub(crate) fn decided(&mut self) {
        self.determinants += 1;
        self.live.set(Word::Determinants, self.determinants);
    }

    /// How many collective operations there were.
    pub(crate) fn all_collectives(&self) -> u64 {
        Traffic::sum(self.collectives.iter().copied()).messages
    }

    /// How the log is; `None` if it was given up.
    pub(crate) fn note(&mut self, log: Option<Usage>) {
        self.live.set(Word::HasLog, u64::from(log.is_some()));
        let Some(usage) = log else { return };
        self.memory_peak = self.memory_peak.max(usage.resident_bytes);
        self.spilled = usage.spilled_bytes;
        self.has_stopped |= usage.stopped_logging;
        self.live.set(Word::Memory, usage.resident_bytes as u64);
        self.live.set(Word::MemoryPeak, self.memory_peak as u64);
        self.live.set(Word::Spilled, self.spilled);
    }

    /// So many more records that somebody has said to have received.
    pub(crate) fn acknowledged(&mut self, records: u64) {
        self.acknowledged += records;
        self.live.set(Word::Acknowledged, self.acknowledged);
    }

    /// Sends have waited for room, and another one still does.
    pub(crate) fn wait_on(&self, now: Duration) {
        let waited = (self.waited + now).as_millis();
        self.live.set(Word::WaitedMs, u64::try_from(waited).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_the_last_message_went_to_is_said_once_and_not_behind_one_that_came() {
        let mut ledger = Ledger::new(Live::begin(None, 0, 3));
        assert_eq!(ledger.take_latest(), None);
        ledger.logged(2, 10);
        // What came before it is counted behind it.
        ledger.received(1, 5);
        assert_eq!((ledger.take_latest(), ledger.take_latest()), (Some(2), None));
        ledger.logged(1, 20);
        ledger.has_arrived();
        assert_eq!(ledger.take_latest(), None);
        assert_eq!((ledger.all_logged()[2].bytes, ledger.all_received()[1].messages), (10, 1));
    }
}

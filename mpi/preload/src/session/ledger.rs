//! A rank's operation counters.

use std::time::Duration;

use counterfoil::Usage;
use counterfoil_profile::{Sizes, Traffic, Word};

use super::live::Live;
use crate::Operation;

/// Stand-in for a missing rank.
const NO_RANK: u32 = u32::MAX;

/// Reason for missing records in the log, so that the rank can't be replayed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// The program has turned logging off.
    TurnedOff,
    /// Messages to a failed rank were released, since there was no other space.
    Discarded,
}

impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gap::TurnedOff => "the program has turned logging off for a while (MPI_Pcontrol)",
            Gap::Discarded => "messages to a failed rank were dropped from a full log",
        })
    }
}

/// One rank's counters.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Messages to and from each rank in MPI_COMM_WORLD, and the other counters readable while the program runs.
    live: Live,
    /// Lengths of logged messages.
    pub(crate) sizes: Sizes,
    /// Receiver of the last message, if it was sent.
    latest: u32,
    /// By collective operation: calls, and bytes of contributions.
    pub(crate) collectives: Vec<Traffic>,
    /// Contributions logged.
    pub(crate) contributions: Traffic,
    /// Peak memory of the log, in bytes.
    pub(crate) memory_peak: usize,
    /// Bytes of it committed while a message was logged.
    pub(crate) late_commit: usize,
    pub(crate) spilled: u64,
    /// Processor time of the thread writing spilled records.
    pub(crate) spill_cpu: Duration,
    /// Time spent by sends waiting for space.
    pub(crate) waited: Duration,
    /// Sends and collective operations that failed because the log had no space.
    pub(crate) sends_refused: u64,
    pub(crate) has_said_that_it_waits: bool,
    pub(crate) has_stopped: bool,
    pub(crate) gave_up: Option<String>,
    gaps: Vec<Gap>,
}

impl Ledger {
    pub(super) fn new(live: Live) -> Ledger {
        Ledger {
            live,
            sizes: Sizes::default(),
            latest: NO_RANK,
            collectives: vec![Traffic::default(); Operation::ALL.len()],
            contributions: Traffic::default(),
            memory_peak: 0,
            late_commit: 0,
            spilled: 0,
            spill_cpu: Duration::ZERO,
            waited: Duration::ZERO,
            sends_refused: 0,
            has_said_that_it_waits: false,
            has_stopped: false,
            gave_up: None,
            gaps: Vec::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn logged(&mut self, to: u32, bytes: usize) {
        self.live.add_logged(to, bytes);
        self.sizes.add(bytes as u64);
        self.latest = to;
    }

    /// Takes the receiver of the last message; `None` if the last one was [received](Self::clear_latest).
    pub(crate) fn take_latest(&mut self) -> Option<u32> {
        let latest = std::mem::replace(&mut self.latest, NO_RANK);
        (latest != NO_RANK).then_some(latest)
    }

    /// Returns the messages to each rank.
    pub(crate) fn all_logged(&self) -> Vec<Traffic> {
        self.live.ranks().map(|to| self.live.logged(to)).collect()
    }

    /// Returns the messages from each rank.
    pub(crate) fn all_received(&self) -> Vec<Traffic> {
        self.live.ranks().map(|from| self.live.received(from)).collect()
    }

    #[inline(always)]
    pub(crate) fn received(&mut self, from: u32, bytes: usize) {
        self.live.add_received(from, bytes);
    }

    /// Notes that the last message was received.
    #[inline]
    pub(crate) fn clear_latest(&mut self) {
        self.latest = NO_RANK;
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

    pub(crate) fn set_determinants(&mut self, determinants: u64) {
        self.live.set(Word::Determinants, determinants);
    }

    /// Notes a gap in the log; returns `true` for the first of its kind.
    pub(crate) fn note_gap(&mut self, gap: Gap) -> bool {
        let is_new = !self.gaps.contains(&gap);
        if is_new {
            self.gaps.push(gap);
        }
        is_new
    }

    pub(crate) fn gaps(&self) -> impl Iterator<Item = Gap> {
        self.gaps.iter().copied()
    }

    /// Returns the number of collective operations called.
    pub(crate) fn all_collectives(&self) -> u64 {
        Traffic::sum(self.collectives.iter().copied()).messages
    }

    /// Shows the number of acknowledged records.
    #[inline]
    pub(crate) fn show_acknowledged(&self, records: u64) {
        self.live.set(Word::Acknowledged, records);
    }

    /// Notes the log's usage, `None` if it was dropped.
    pub(crate) fn note(&mut self, log: Option<Usage>) {
        self.live.set(Word::HasLog, u64::from(log.is_some()));
        let Some(usage) = log else { return };
        self.memory_peak = self.memory_peak.max(usage.resident_bytes);
        self.late_commit = usage.late_commit_bytes;
        (self.spilled, self.spill_cpu) = (usage.spilled_bytes, usage.spill_cpu);
        self.has_stopped |= usage.stopped_logging;
        self.live.set(Word::Memory, usage.resident_bytes as u64);
        self.live.set(Word::MemoryPeak, self.memory_peak as u64);
        self.live.set(Word::Spilled, self.spilled);
    }

    /// Shows the time spent by sends waiting for space, with the current wait.
    pub(crate) fn show_wait(&self, now: Duration) {
        let waited = (self.waited + now).as_millis();
        self.live.set(Word::WaitedMs, u64::try_from(waited).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_receiver_is_taken_once_and_not_after_a_received_message() {
        let mut ledger = Ledger::new(Live::begin(None, 0, 3));
        assert_eq!(ledger.take_latest(), None);
        ledger.logged(2, 10);
        // A receive that came before is counted after it.
        ledger.received(1, 5);
        assert_eq!((ledger.take_latest(), ledger.take_latest()), (Some(2), None));
        ledger.logged(1, 20);
        ledger.clear_latest();
        assert_eq!(ledger.take_latest(), None);
        assert_eq!((ledger.all_logged()[2].bytes, ledger.all_received()[1].messages), (10, 1));
    }
}

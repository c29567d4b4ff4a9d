//! Calls that found no message: cancelled receives, and runs of polls.
//!
//! A polling program makes many, and one local log entry has a whole run.
//!
//! A run is recorded before the next outcome of another kind, message or checkpoint. Until then nobody else has seen
//! anything depending on it, and a repetition may get other outcomes.

use std::collections::{BTreeMap, BTreeSet};

/// One rank's calls that found nothing, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Polls {
    /// Last run, not recorded yet: number of the first call, and number of calls.
    run: Option<(u64, u64)>,
    /// Runs recorded by a dead incarnation and not repeated yet: each one's end, by its first call.
    recorded: BTreeMap<u64, u64>,
    /// Receives cancelled by a dead incarnation, but not yet by this one, by their requests.
    cancelled: BTreeSet<u64>,
    /// Number of the next timing-dependent call.
    next_choice: u64,
}

impl Polls {
    /// Continues after a checkpoint that counted `next_choice` calls.
    pub(super) fn resume(&mut self, next_choice: u64) {
        self.next_choice = next_choice;
    }

    pub(super) fn next_choice(&self) -> u64 {
        self.next_choice
    }

    /// Takes a dead incarnation's run, unless the checkpoint covers it.
    pub(super) fn recover(&mut self, first: u64, calls: &[u8]) {
        let calls = calls.try_into().map_or(0, u64::from_le_bytes);
        let (mut first, mut end) = (first, first.saturating_add(calls));
        if end <= self.next_choice {
            return;
        }
        // Several incarnations may have recorded the same calls.
        while let Some((&other, &its_end)) = self.recorded.range(..=end).next_back().filter(|run| *run.1 >= first) {
            self.recorded.remove(&other);
            (first, end) = (first.min(other), end.max(its_end));
        }
        self.recorded.insert(first, end);
    }

    /// Takes a receive cancelled by a dead incarnation.
    pub(super) fn recover_cancelled(&mut self, request: u64) {
        self.cancelled.insert(request);
    }

    /// Returns `true` for a receive yet to be cancelled again by this execution.
    pub(super) fn is_cancelled(&self, request: u64) -> bool {
        self.cancelled.contains(&request)
    }

    /// Cancels a receive, perhaps again.
    pub(super) fn repeat_cancelled(&mut self, request: u64) {
        self.cancelled.remove(&request);
    }

    /// Returns `true` if this execution has repeated everything recorded.
    pub(super) fn are_repeated(&self) -> bool {
        self.recorded.is_empty() && self.cancelled.is_empty()
    }

    /// Counts a timing-dependent call.
    ///
    /// Returns `true` if it is recorded as finding nothing.
    pub(super) fn handle_choice(&mut self, sequence: u64) -> bool {
        self.next_choice = sequence + 1;
        let Some((&first, &end)) = self.recorded.range(..=sequence).next_back() else { return false };
        if sequence + 1 >= end {
            self.recorded.remove(&first);
        }
        sequence < end
    }

    /// Adds a call to the run, if it follows it.
    pub(super) fn extend(&mut self, sequence: u64) -> bool {
        match &mut self.run {
            Some((first, calls)) if *first + *calls == sequence => {
                *calls += 1;
                true
            }
            _ => false,
        }
    }

    /// Returns `true` if the last call is in the run.
    pub(super) fn has_last_call(&self) -> bool {
        self.run.is_some_and(|(first, calls)| first + calls == self.next_choice)
    }

    /// Begins a run.
    pub(super) fn begin(&mut self, sequence: u64) {
        self.run = Some((sequence, 1));
    }

    /// Takes the run, to record it.
    pub(super) fn take(&mut self) -> Option<(u64, u64)> {
        self.run.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_calls_that_follow_each_other() {
        let mut polls = Polls::default();
        assert!(!polls.extend(3));
        polls.begin(3);
        assert!(polls.extend(4) && polls.extend(5) && !polls.extend(7));
        assert_eq!((polls.take(), polls.take()), (Some((3, 3)), None));
    }

    #[test]
    fn recorded_runs_and_cancelled_receives_are_repeated_once() {
        let mut polls = Polls::default();
        polls.resume(4);
        // Covered by the checkpoint, partly covered, within the previous one, and a later one.
        for (first, calls) in [(1, 3_u64), (3, 3), (4, 1), (8, 1)] {
            polls.recover(first, &calls.to_le_bytes());
        }
        let found: Vec<bool> = (4..10).map(|sequence| polls.handle_choice(sequence)).collect();
        assert_eq!(found, [true, true, false, false, true, false]);
        assert!(polls.are_repeated());
        assert_eq!(polls.next_choice(), 10);
        polls.recover_cancelled(2);
        assert!(polls.is_cancelled(2) && !polls.are_repeated());
        polls.repeat_cancelled(2);
        assert!(!polls.is_cancelled(2) && polls.are_repeated());
    }
}

//! Run table: dispositions of a lane's acknowledged records.

use std::collections::VecDeque;

use crate::nouns::{Epoch, Phase, Ssn};

/// Fate of the records covered by an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Forget the records.
    Release,
    /// Keep the records.
    Retain {
        /// The receiver's epoch at the reception.
        epoch: Epoch,
        /// The sender's phase.
        phase: Phase,
    },
}

/// A range of SSNs acknowledged with the same disposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First SSN.
    pub first: Ssn,
    /// Last SSN.
    pub last: Ssn,
    /// The acknowledgement's disposition.
    pub disposition: Disposition,
}

/// Dispositions of acknowledged SSNs: disjoint runs in SSN order, without gaps from the first run on.
#[derive(Debug, Default)]
pub(crate) struct RunTable {
    runs: VecDeque<Run>,
    /// True if any record was ever retained.
    retains: bool,
}

impl RunTable {
    /// Returns `true` if every acknowledged record was released, so that whole chunks can be freed without the runs.
    pub(crate) fn is_release_only(&self) -> bool {
        !self.retains
    }

    /// Iterates over the runs in SSN order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().copied()
    }

    /// Begins the table before the first retained record; an earlier released range is the first run.
    pub(super) fn begin(&mut self, released: Option<(Ssn, Ssn)>) {
        self.retains = true;
        self.runs.extend(released.map(|(first, last)| Run { first, last, disposition: Disposition::Release }));
    }

    /// Restores the runs from a checkpoint.
    pub(super) fn restore(&mut self, runs: &[Run]) {
        self.retains = runs.iter().any(|run| run.disposition != Disposition::Release);
        self.runs = if self.retains { runs.iter().copied().collect() } else { VecDeque::new() };
    }

    /// Extends the last run to `last` if it has this disposition; returns `false` otherwise.
    #[inline]
    pub(super) fn extend(&mut self, last: Ssn, disposition: Disposition) -> bool {
        match self.runs.back_mut() {
            Some(back) if back.disposition == disposition => back.last = last,
            _ => return false,
        }
        true
    }

    /// Appends a run, or extends the last one if it has the same disposition.
    pub(super) fn push(&mut self, run: Run) {
        if !self.extend(run.last, run.disposition) {
            self.runs.push_back(run);
        }
    }

    /// Iterates over the runs, starting with the one containing `ssn`.
    pub(super) fn starting_at(&self, ssn: Ssn) -> impl Iterator<Item = &Run> {
        let index = self.runs.partition_point(|run| run.last < ssn);
        self.runs.range(index..)
    }

    /// Returns `true` if `ssn` was acknowledged with [`Disposition::Release`].
    pub(super) fn is_released(&self, ssn: Ssn) -> bool {
        self.starting_at(ssn).next().is_some_and(|run| run.first <= ssn && run.disposition == Disposition::Release)
    }

    /// Forgets dispositions after `last`.
    pub(super) fn forget_after(&mut self, last: Ssn) {
        while self.runs.back().is_some_and(|run| run.first > last) {
            self.runs.pop_back();
        }
        if let Some(back) = self.runs.back_mut() {
            back.last = back.last.min(last);
        }
    }

    /// Forgets the runs ending before `first`.
    pub(super) fn forget_before(&mut self, first: Ssn) {
        while self.runs.front().is_some_and(|run| run.last < first) {
            self.runs.pop_front();
        }
    }
}

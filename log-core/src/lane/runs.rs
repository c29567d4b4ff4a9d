//! How the acknowledged records of a lane were acknowledged.

use std::collections::VecDeque;

use crate::nouns::{Epoch, Phase, Ssn};

/// What an acknowledgement does to the records that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Forget them.
    Release,
    /// Keep them: the receiver got them in `epoch`, and they were sent in `phase`.
    Retain {
        /// The receiver's epoch at the reception.
        epoch: Epoch,
        /// The sender's phase.
        phase: Phase,
    },
}

/// A range of SSNs that were acknowledged alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First SSN.
    pub first: Ssn,
    /// Last SSN.
    pub last: Ssn,
    /// What the acknowledgement did.
    pub disposition: Disposition,
}

/// Which SSNs were acknowledged how: disjoint runs in SSN order, without gaps from the first run on.
#[derive(Debug, Default)]
pub(crate) struct RunTable {
    runs: VecDeque<Run>,
    /// Whether anything was ever retained here.
    retains: bool,
}

impl RunTable {
    /// Whether everything acknowledged was released, so that whole chunks can go without a look at the runs.
    pub(crate) fn is_plain(&self) -> bool {
        !self.retains
    }

    /// The runs, in SSN order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().copied()
    }

    /// From here on something is retained: what was released before, if anything, is the first run.
    pub(super) fn begin(&mut self, released: Option<(Ssn, Ssn)>) {
        self.retains = true;
        self.runs.extend(released.map(|(first, last)| Run { first, last, disposition: Disposition::Release }));
    }

    /// Takes up the runs that a checkpoint kept.
    pub(super) fn restore(&mut self, runs: &[Run]) {
        self.retains = runs.iter().any(|run| run.disposition != Disposition::Release);
        self.runs = if self.retains { runs.iter().copied().collect() } else { VecDeque::new() };
    }

    /// Makes the last run end with `last`, where it has this disposition; says whether it has.
    #[inline]
    pub(super) fn extend(&mut self, last: Ssn, disposition: Disposition) -> bool {
        match self.runs.back_mut() {
            Some(back) if back.disposition == disposition => back.last = last,
            _ => return false,
        }
        true
    }

    /// Notes a run behind all others, which may go on with the last one's disposition.
    pub(super) fn push(&mut self, run: Run) {
        if !self.extend(run.last, run.disposition) {
            self.runs.push_back(run);
        }
    }

    /// The runs from the one with `ssn` on.
    pub(super) fn starting_at(&self, ssn: Ssn) -> impl Iterator<Item = &Run> {
        let index = self.runs.partition_point(|run| run.last < ssn);
        self.runs.range(index..)
    }

    /// Whether `ssn` was acknowledged and is to be forgotten.
    pub(super) fn is_released(&self, ssn: Ssn) -> bool {
        self.starting_at(ssn).next().is_some_and(|run| run.first <= ssn && run.disposition == Disposition::Release)
    }

    /// Forgets what was acknowledged after `last`.
    pub(super) fn forget_after(&mut self, last: Ssn) {
        while self.runs.back().is_some_and(|run| run.first > last) {
            self.runs.pop_back();
        }
        if let Some(back) = self.runs.back_mut() {
            back.last = back.last.min(last);
        }
    }

    /// Forgets the runs that end before `first`.
    pub(super) fn forget_before(&mut self, first: Ssn) {
        while self.runs.front().is_some_and(|run| run.last < first) {
            self.runs.pop_front();
        }
    }
}

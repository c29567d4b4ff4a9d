//! Non-deterministic call outcomes: numbered in call order, recorded before they take effect, forced on re-execution.

use std::collections::BTreeMap;

use counterfoil_log_core::{Determinant, Rank};

use crate::api::{ChoiceError, ChoiceRecord, NextChoice};

/// Non-deterministic calls of one rank.
///
/// Calls are numbered when they are *made* and decided when their outcome is known, possibly in another order (a posted
/// wildcard receive is matched later). So a crash may leave records with gaps, and records are found by number.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    /// Number of the first call in this execution: earlier ones are in the checkpoint.
    first: u64,
    /// Number of the next call.
    next: u64,
    /// The last call, while it is undecided. Most are decided before the next one is made.
    last: Option<NextChoice>,
    /// Earlier undecided calls, with the outcome forced on them.
    open: BTreeMap<u64, Option<Determinant>>,
    /// Recorded by an earlier incarnation, not yet asked for.
    recovered: BTreeMap<u64, Determinant>,
}

impl Choices {
    /// Begins after a checkpoint with `next` counted calls.
    pub(crate) fn resume(next: u64) -> Choices {
        Choices { first: next, next, ..Choices::default() }
    }

    pub(crate) fn counted(&self) -> u64 {
        self.next
    }

    /// Returns the number of calls countable by a checkpoint: a restarted program makes the undecided ones again, under
    /// the same numbers.
    ///
    /// `None` if a later one is decided.
    pub(crate) fn settled(&self) -> Option<u64> {
        let last = self.last.map(|last| last.sequence);
        let settled = self.open.keys().next().copied().or(last).unwrap_or(self.next);
        (self.next - settled == self.open() as u64).then_some(settled)
    }

    /// Returns the undecided call count.
    pub(crate) fn open(&self) -> usize {
        self.open.len() + usize::from(self.last.is_some())
    }

    /// Returns `true` if this execution has repeated all calls recorded by an earlier one.
    pub(crate) fn are_repeated(&self) -> bool {
        self.recovered.is_empty()
    }

    /// Returns `true` if no call was counted or recovered yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.next == 0 && self.recovered.is_empty()
    }

    pub(crate) fn next(&mut self) -> NextChoice {
        let sequence = self.next;
        self.next += 1;
        let forced = self.recovered.remove(&sequence);
        let next = NextChoice { sequence, forced };
        if let Some(earlier) = self.last.replace(next) {
            self.open.insert(earlier.sequence, earlier.forced);
        }
        next
    }

    /// Decides a call in a job of `ranks`; returns the record to append, or `None` if an earlier incarnation has
    /// appended it.
    pub(crate) fn decide(&mut self, choice: Determinant, ranks: u32) -> Result<Option<ChoiceRecord>, ChoiceError> {
        check(choice, ranks)?;
        let sequence = choice.sequence;
        let last = self.last.filter(|last| last.sequence == sequence);
        let forced = match last {
            Some(last) => last.forced,
            None => *self.open.get(&sequence).ok_or(ChoiceError::NotOpen { sequence })?,
        };
        if let Some(forced) = forced
            && forced != choice
        {
            return Err(ChoiceError::Diverged { forced, found: choice });
        }
        match last {
            Some(_) => self.last = None,
            None => drop(self.open.remove(&sequence)),
        }
        Ok(if forced.is_some() { None } else { Some(ChoiceRecord::new(choice)) })
    }

    /// Takes a record from an earlier incarnation.
    ///
    /// Records covered by the checkpoint are ignored: a crash between a checkpoint and the log clean-up leaves them.
    pub(crate) fn recover(&mut self, choice: Determinant) -> Result<(), ChoiceError> {
        let sequence = choice.sequence;
        if sequence < self.first {
            return Ok(());
        }
        if sequence < self.next {
            return Err(ChoiceError::TooLate { sequence });
        }
        match self.recovered.insert(sequence, choice) {
            Some(first) if first != choice => {
                self.recovered.insert(sequence, first);
                Err(ChoiceError::Contradiction { first, second: choice })
            }
            _ => Ok(()),
        }
    }
}

/// Checks that a choice names a rank in the job.
pub(crate) fn check(choice: Determinant, ranks: u32) -> Result<(), ChoiceError> {
    let Determinant { source: rank, .. } = choice;
    if rank < Rank(ranks) { Ok(()) } else { Err(ChoiceError::UnknownRank { rank, ranks }) }
}

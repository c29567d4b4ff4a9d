//! Index from receive epochs to SSNs.

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Ssn};

/// Receive epochs of one lane's acknowledged records, as runs in SSN order: one for each epoch in which the receiver
/// received something, regardless of the record count.
///
/// If the receiver took an SSN in a later epoch than a higher one (tags allow this), the higher one counts as received
/// in the later epoch too: a lane is collected from its old end, so no record can be freed before its predecessors.
#[derive(Clone, Debug, Default)]
pub struct EpochIndex {
    /// (last SSN, epoch), both strictly ascending.
    runs: VecDeque<(Ssn, Epoch)>,
    /// Last SSN noted. Its run may have been removed since.
    noted: Ssn,
}

impl EpochIndex {
    /// Creates an empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that the SSNs after the last noted one, up to and including `last`, were received in `epoch` or earlier.
    ///
    /// Has no effect if `last` was noted already.
    pub fn note(&mut self, epoch: Epoch, last: Ssn) {
        if last <= self.noted {
            return;
        }
        self.noted = last;
        match self.runs.back_mut() {
            Some((end, of_run)) if *of_run >= epoch => *end = last,
            _ => self.runs.push_back((last, epoch)),
        }
    }

    /// Returns the last SSN noted.
    pub fn noted(&self) -> Ssn {
        self.noted
    }

    /// Returns the epoch of the oldest run.
    pub fn oldest(&self) -> Option<Epoch> {
        self.runs.front().map(|&(_, epoch)| epoch)
    }

    /// Removes the runs from epochs before `epoch`; returns the last SSN removed.
    ///
    /// Costs O(1) for each removed run.
    pub fn take_before(&mut self, epoch: Epoch) -> Option<Ssn> {
        self.take_while(|(_, of_run)| of_run < epoch)
    }

    /// Removes the runs ending at or before `ssn`, which is covered for another reason.
    pub fn take_upto(&mut self, ssn: Ssn) {
        self.take_while(|(last, _)| last <= ssn);
    }

    fn take_while(&mut self, covered: impl Fn((Ssn, Epoch)) -> bool) -> Option<Ssn> {
        let mut taken = None;
        while let Some(&run) = self.runs.front()
            && covered(run)
        {
            taken = Some(run.0);
            self.runs.pop_front();
        }
        taken
    }

    /// Removes the records after `ssn`: the receiver rolled back and will receive them again, perhaps in another
    /// epoch, or the sender truncated its lane.
    pub fn forget_after(&mut self, ssn: Ssn) {
        self.noted = self.noted.min(ssn);
        while let Some((last, epoch)) = self.runs.pop_back() {
            let begins_after = self.runs.back().map_or(Ssn::ZERO, |&(end, _)| end);
            if begins_after < ssn {
                self.runs.push_back((last.min(ssn), epoch));
                return;
            }
        }
    }

    /// Returns the run count.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns `true` if there is no run.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(runs: &[(u32, u64)]) -> EpochIndex {
        let mut index = EpochIndex::new();
        for &(epoch, last) in runs {
            index.note(Epoch(epoch), Ssn(last));
        }
        index
    }

    #[test]
    fn an_epoch_becomes_the_last_ssn_received_before_it() {
        let mut index = index(&[(1, 10), (1, 20), (3, 25), (4, 26)]);
        assert_eq!(index.len(), 3);
        assert_eq!(index.take_before(Epoch(1)), None);
        assert_eq!(index.take_before(Epoch(3)), Some(Ssn(20)));
        assert_eq!(index.oldest(), Some(Epoch(3)));
        assert_eq!(index.take_before(Epoch::MAX), Some(Ssn(26)));
        assert!(index.is_empty());
    }

    #[test]
    fn successors_of_an_overtaken_message_are_covered_no_earlier() {
        // SSN 4 was received in epoch 2, after 5 was received in epoch 1.
        let mut index = index(&[(1, 3), (2, 4), (1, 5)]);
        assert_eq!(index.len(), 2);
        assert_eq!(index.take_before(Epoch(2)), Some(Ssn(3)));
        assert_eq!(index.take_before(Epoch(3)), Some(Ssn(5)));
    }

    #[test]
    fn after_a_rollback_receive_epochs_are_forgotten_and_noted_anew() {
        let mut index = index(&[(1, 10), (2, 20), (3, 30)]);
        index.forget_after(Ssn(15));
        assert_eq!((index.noted(), index.len()), (Ssn(15), 2));
        index.note(Epoch(5), Ssn(30));
        assert_eq!(index.take_before(Epoch(5)), Some(Ssn(15)));
        assert_eq!(index.take_before(Epoch(6)), Some(Ssn(30)));
    }

    #[test]
    fn forgetting_at_the_end_of_a_run_keeps_the_run() {
        let mut index = index(&[(1, 10), (2, 20)]);
        index.forget_after(Ssn(10));
        assert_eq!(index.take_before(Epoch::MAX), Some(Ssn(10)));
        index.forget_after(Ssn::ZERO);
        assert_eq!((index.noted(), index.is_empty()), (Ssn::ZERO, true));
    }
}

//! Receive epochs: for each SSN of a channel, the epoch in which the receiver received it.

use std::fmt;

use counterfoil_log_core::{Epoch, Ssn};

use crate::{EpochRunState, StateError};

/// Receive epochs by SSN, as runs.
///
/// A run begins where the receive epoch changes.
///
/// A channel received in order has one run for each epoch in which a message arrived. Messages with different tags may
/// be received out of order, say SSN 5 before a checkpoint and SSN 4 after it; the runs represent this exactly. SSNs
/// not yet received also fall into a run, but are never looked up.
///
/// Memory: 16 bytes a run; at most one run for each epoch since the last
/// [`forget_before`](ReceiveEpochs::forget_before), and two for each message overtaken across a checkpoint.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ReceiveEpochs {
    /// Sorted by `first`; the first run begins at [`Ssn::FIRST`]; neighbours differ in their epoch.
    runs: Vec<Run>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Run {
    first: Ssn,
    epoch: Epoch,
}

impl ReceiveEpochs {
    /// Creates an empty table.
    pub const fn new() -> Self {
        ReceiveEpochs { runs: Vec::new() }
    }

    /// Records that `ssn` was received in `epoch`; `highest` is the largest SSN received so far.
    #[inline]
    pub(crate) fn record(&mut self, ssn: Ssn, epoch: Epoch, highest: Ssn) {
        match self.runs.last() {
            Some(last) if ssn > highest => {
                if last.epoch != epoch {
                    // The SSNs in the gap will most likely arrive in this epoch too.
                    self.runs.push(Run { first: highest.next(), epoch });
                }
            }
            Some(_) => self.record_overtaken(ssn, epoch),
            None => self.runs.push(Run { first: Ssn::FIRST, epoch }),
        }
    }

    /// Changes the epoch of a single SSN.
    fn record_overtaken(&mut self, ssn: Ssn, epoch: Epoch) {
        let at = self.index_of(ssn);
        let Run { first, epoch: old } = self.runs[at];
        if old == epoch {
            return;
        }
        // The part of the run after `ssn` keeps its epoch...
        if self.runs.get(at + 1).is_none_or(|next| next.first != ssn.next()) {
            self.runs.insert(at + 1, Run { first: ssn.next(), epoch: old });
        }
        // ...`ssn` gets its own...
        let own = if first == ssn {
            self.runs[at].epoch = epoch;
            at
        } else {
            self.runs.insert(at + 1, Run { first: ssn, epoch });
            at + 1
        };
        // ...and is merged with neighbours from the same epoch.
        if self.runs.get(own + 1).is_some_and(|next| next.epoch == epoch) {
            self.runs.remove(own + 1);
        }
        if own > 0 && self.runs[own - 1].epoch == epoch {
            self.runs.remove(own);
        }
    }

    /// Returns the epoch in which `ssn` was received, and the last SSN of its run ([`Ssn::MAX`] for the newest run).
    ///
    /// `None` if nothing at all was received.
    #[inline]
    pub fn run_of(&self, ssn: Ssn) -> Option<(Epoch, Ssn)> {
        match self.runs.last() {
            Some(last) if last.first <= ssn => Some((last.epoch, Ssn::MAX)),
            Some(_) => {
                let at = self.index_of(ssn);
                let end = self.runs.get(at + 1).map_or(Ssn::MAX, |next| next.first.prev());
                Some((self.runs[at].epoch, end))
            }
            None => None,
        }
    }

    /// Iterates over the runs as (first SSN, epoch), in SSN order.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = (Ssn, Epoch)> + '_ {
        self.runs.iter().map(|run| (run.first, run.epoch))
    }

    /// Merges all epochs before `epoch` into the newest of them.
    ///
    /// This is an upper bound on the receive epoch, so a record is at worst retained too long.
    pub fn forget_before(&mut self, epoch: Epoch) {
        let old = self.runs.iter().take_while(|run| run.epoch < epoch).count();
        if old < 2 {
            return;
        }
        let newest = self.runs[..old].iter().map(|run| run.epoch).max().unwrap_or(epoch);
        self.runs.drain(1..old);
        self.runs[0].epoch = newest;
    }

    /// Returns the index of the run holding `ssn`.
    ///
    /// There must be a run.
    fn index_of(&self, ssn: Ssn) -> usize {
        self.runs.partition_point(|run| run.first <= ssn).saturating_sub(1)
    }

    pub(crate) fn snapshot(&self) -> Vec<EpochRunState> {
        self.runs.iter().map(|run| EpochRunState { first: run.first.0, epoch: run.epoch.0 }).collect()
    }

    /// Restores the runs from a checkpoint taken in `epoch` when `highest` was the largest SSN received.
    pub(crate) fn restore(runs: &[EpochRunState], epoch: Epoch, highest: Ssn) -> Result<Self, StateError> {
        let mut restored: Vec<Run> = Vec::with_capacity(runs.len());
        for &EpochRunState { first, epoch: of_run } in runs {
            let run = Run { first: Ssn(first), epoch: StateError::check_epoch(of_run)? };
            let in_place = match restored.last() {
                None => run.first == Ssn::FIRST,
                Some(before) => run.first > before.first && run.epoch != before.epoch,
            };
            if !in_place || run.first > highest || run.epoch > epoch {
                return Err(StateError::EpochRuns { first });
            }
            restored.push(run);
        }
        if restored.is_empty() && highest > Ssn::ZERO {
            return Err(StateError::EpochRuns { first: Ssn::FIRST.0 });
        }
        Ok(ReceiveEpochs { runs: restored })
    }
}

impl fmt::Debug for ReceiveEpochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.runs.iter().map(|run| (run.first.0, run.epoch.0))).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Messages arrive in any order, with epoch changes in between.
        #[test]
        fn every_ssn_keeps_the_epoch_that_it_was_received_in(
            steps in proptest::collection::vec((1u64..30, any::<bool>()), 1..60)
        ) {
            let mut epochs = ReceiveEpochs::new();
            let mut model: BTreeMap<u64, Epoch> = BTreeMap::new();
            let mut epoch = Epoch::FIRST;
            for (ssn, checkpoint) in steps {
                if checkpoint {
                    epoch = Epoch(epoch.0 + 1);
                }
                if model.contains_key(&ssn) {
                    continue;
                }
                let highest = Ssn(model.last_key_value().map_or(0, |(&ssn, _)| ssn));
                model.insert(ssn, epoch);
                epochs.record(Ssn(ssn), epoch, highest);
                for (&ssn, &epoch) in &model {
                    let (found, end) = epochs.run_of(Ssn(ssn)).unwrap();
                    prop_assert_eq!(found, epoch, "SSN {} in {:?}", ssn, epochs);
                    prop_assert!(end >= Ssn(ssn));
                    let whole = model.range(ssn..=end.0).all(|(_, &other)| other == epoch);
                    prop_assert!(whole, "the run of SSN {} in {:?}", ssn, epochs);
                }
            }
            let highest = Ssn(model.last_key_value().map_or(0, |(&ssn, _)| ssn));
            let restored = ReceiveEpochs::restore(&epochs.snapshot(), epoch, highest);
            prop_assert_eq!(restored.as_ref(), Ok(&epochs));

            // Merging never makes an epoch older, and leaves `epoch` and later ones unchanged.
            epochs.forget_before(epoch);
            for (&ssn, &of_model) in &model {
                let (found, _) = epochs.run_of(Ssn(ssn)).unwrap();
                prop_assert!(found == of_model || (found > of_model && found < epoch));
            }
        }

        #[test]
        fn a_channel_taken_in_order_has_one_run_for_each_epoch(received in proptest::collection::vec(1u64..5, 1..20)) {
            let mut epochs = ReceiveEpochs::new();
            let mut highest = Ssn::ZERO;
            for (epoch, &count) in (1..).zip(&received) {
                for _ in 0..count {
                    epochs.record(highest.next(), Epoch(epoch), highest);
                    highest = highest.next();
                }
            }
            prop_assert_eq!(epochs.runs().len(), received.len());
        }
    }

    /// SSN 1 was received in the first of `epochs`, SSN 2 in the second, and so on.
    fn received_in(epochs: impl IntoIterator<Item = u32>) -> ReceiveEpochs {
        let mut table = ReceiveEpochs::new();
        for (highest, epoch) in (0..).map(Ssn).zip(epochs) {
            table.record(highest.next(), Epoch(epoch), highest);
        }
        table
    }

    #[test]
    fn two_old_epochs_become_one() {
        let mut epochs = received_in([1, 2, 3]);
        epochs.forget_before(Epoch(3));
        assert_eq!(epochs.runs().collect::<Vec<_>>(), [(Ssn(1), Epoch(2)), (Ssn(3), Epoch(3))]);
    }

    #[test]
    fn runs_that_repeat_an_ssn_or_an_epoch_or_are_out_of_order_are_refused() {
        let restore = |runs: &[(u64, u32)]| {
            let runs: Vec<_> = runs.iter().map(|&(first, epoch)| EpochRunState { first, epoch }).collect();
            ReceiveEpochs::restore(&runs, Epoch(2), Ssn(9))
        };
        assert_eq!(restore(&[(1, 1), (2, 2)]), Ok(received_in([1, 2])));
        assert_eq!(restore(&[(1, 1), (1, 2)]), Err(StateError::EpochRuns { first: 1 }));
        assert_eq!(restore(&[(1, 1), (2, 1)]), Err(StateError::EpochRuns { first: 2 }));
        assert_eq!(restore(&[(1, 1), (3, 2), (2, 1)]), Err(StateError::EpochRuns { first: 2 }));
    }

    #[test]
    fn runs_are_printed_as_first_ssn_and_epoch() {
        assert_eq!(format!("{:?}", received_in([1, 1, 4])), "{1: 1, 3: 4}");
    }
}

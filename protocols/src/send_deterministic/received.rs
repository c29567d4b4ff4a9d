//! Receipts of one channel: epoch, phase and logged mark of each message.

use counterfoil_log_core::{Epoch, Phase, Ssn};
use serde::{Deserialize, Serialize};

use super::notice::ReceivedRun;

/// Receipts of one channel in SSN order, as runs with equal epoch, phase and mark.
///
/// Takes the place of RPP (Guermouche 2011, Figure 3, lines 6 and 26), but by message numbers and for the whole
/// channel. Channels are FIFO (section II.A), so there is no gap below [`upto`](Receipts::upto).
///
/// Memory: 24 bytes a run, at most two for each phase with a received message that its sender may send again or this
/// rank may ask for. A sender may roll back to before this rank's own checkpoints, and then the runs have the phases of
/// the orphans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipts {
    runs: Vec<Receipt>,
    upto: u64,
}

/// Messages received alike, from `first` to the next run's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    first: u64,
    epoch: u32,
    /// This rank's phase after receiving them.
    phase: u32,
    /// `true` if they raised the phase above their own: the causal path is broken here.
    logged: bool,
}

impl Receipts {
    /// Records the receipt of the next message.
    pub(super) fn record(&mut self, epoch: Epoch, phase: Phase, logged: bool) {
        self.upto += 1;
        let run = Receipt { first: self.upto, epoch: epoch.0, phase: phase.0, logged };
        if self.runs.last().is_none_or(|last| Receipt { first: run.first, ..*last } != run) {
            self.runs.push(run);
        }
    }

    /// Returns the SSN up to which all messages were received.
    pub(super) fn upto(&self) -> Ssn {
        Ssn(self.upto)
    }

    /// Returns the runs with their last SSNs.
    fn spans(&self) -> impl Iterator<Item = (Receipt, u64)> + '_ {
        let ends = self.runs.iter().skip(1).map(|next| next.first - 1).chain([self.upto]);
        self.runs.iter().copied().zip(ends)
    }

    /// Drops all runs but the last ending at or before `upto`: no rank will ask about them any more.
    pub(super) fn forget(&mut self, upto: Ssn) {
        let after = self.runs.partition_point(|run| run.first <= upto.0 + 1);
        self.runs.drain(..after.saturating_sub(1));
    }

    /// Returns the epoch of the oldest run; `None` if nothing was received.
    pub(super) fn oldest_epoch(&self) -> Option<Epoch> {
        self.runs.first().map(|run| Epoch(run.epoch))
    }

    /// Returns the run count.
    pub(super) fn rows(&self) -> usize {
        self.runs.len()
    }

    /// Returns the sender's view of the receipts, in SSN order.
    pub(super) fn received_runs(&self) -> Vec<ReceivedRun> {
        let mut received_runs: Vec<ReceivedRun> = Vec::new();
        for (Receipt { epoch, logged, .. }, last) in self.spans() {
            match received_runs.last_mut() {
                Some(before) if before.epoch == epoch && before.logged == logged => before.last = last,
                _ => received_runs.push(ReceivedRun { last, epoch, logged }),
            }
        }
        received_runs
    }

    /// Returns the messages beyond `base`, as (message count, receive phase).
    pub(super) fn received_beyond(&self, base: Ssn) -> impl Iterator<Item = (u64, Phase)> + '_ {
        self.spans().filter_map(move |(run, last)| {
            let first = run.first.max(base.0 + 1);
            (first <= last).then(|| (last + 1 - first, Phase(run.phase)))
        })
    }

    /// Returns the phase in which `ssn` was received; `None` if it wasn't, or was forgotten.
    pub(super) fn phase_of(&self, ssn: Ssn) -> Option<Phase> {
        let after = self.runs.partition_point(|run| run.first <= ssn.0);
        (after > 0 && ssn.0 <= self.upto).then(|| Phase(self.runs[after - 1].phase))
    }

    /// Returns the last message received before `epoch`, that is, in a checkpoint beginning `epoch`.
    pub(super) fn received_before(&self, epoch: Epoch) -> Ssn {
        let at = self.runs.partition_point(|run| run.epoch < epoch.0);
        self.runs.get(at).map_or(self.upto(), |run| Ssn(run.first - 1))
    }

    /// Returns `true` if [`Receipts::record`] can have written the runs up to `epoch`, with `upto` received.
    pub(super) fn is_sound(&self, epoch: u32, upto: Ssn) -> bool {
        self.upto == upto.0
            && self.runs.is_sorted_by(|a, b| a.first < b.first && a.epoch <= b.epoch && a.phase <= b.phase)
            && self.runs.last().is_none_or(|last| last.first <= self.upto && last.epoch <= epoch)
            && (self.upto == 0 || !self.runs.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipts() -> Receipts {
        let mut receipts = Receipts::default();
        for (epoch, phase, logged) in [(1, 1, false), (1, 1, false), (1, 2, false), (2, 3, true), (2, 3, false)] {
            receipts.record(Epoch(epoch), Phase(phase), logged);
        }
        receipts
    }

    #[test]
    fn received_runs_have_epoch_and_mark_of_every_message() {
        let received_runs = receipts().received_runs();
        let expected = [(3, 1, false), (4, 2, true), (5, 2, false)];
        assert_eq!(received_runs, expected.map(|(last, epoch, logged)| ReceivedRun { last, epoch, logged }));
    }

    #[test]
    fn messages_received_alike_are_one_row() {
        assert_eq!(receipts().rows(), 4);
    }

    #[test]
    fn messages_beyond_a_base_are_counted_by_the_phase_of_their_receipt() {
        let beyond: Vec<_> = receipts().received_beyond(Ssn(1)).collect();
        assert_eq!(beyond, [(1, Phase(1)), (1, Phase(2)), (1, Phase(3)), (1, Phase(3))]);
        assert_eq!(receipts().received_beyond(Ssn(5)).count(), 0);
    }

    #[test]
    fn a_checkpoint_contains_what_was_received_before_its_epoch() {
        assert_eq!(receipts().received_before(Epoch(1)), Ssn::ZERO);
        assert_eq!(receipts().received_before(Epoch(2)), Ssn(3));
        assert_eq!(receipts().received_before(Epoch(3)), Ssn(5));
    }

    #[test]
    fn forgetting_receipts_leaves_later_ones_unchanged() {
        let mut stale = receipts();
        stale.forget(Ssn(3));
        assert_eq!((stale.rows(), stale.oldest_epoch()), (2, Some(Epoch(2))));
        assert!(stale.is_sound(2, Ssn(5)));
        assert_eq!((stale.phase_of(Ssn(3)), stale.phase_of(Ssn(4))), (None, Some(Phase(3))));
        let beyond = |receipts: &Receipts| receipts.received_beyond(Ssn(3)).collect::<Vec<_>>();
        assert_eq!(beyond(&stale), beyond(&receipts()));
        for epoch in [2, 3] {
            assert_eq!(stale.received_before(Epoch(epoch)), receipts().received_before(Epoch(epoch)));
        }
        stale.forget(Ssn(5));
        assert_eq!((stale.rows(), stale.upto()), (1, Ssn(5)));
        let mut none = Receipts::default();
        none.forget(Ssn(0));
        assert_eq!((none.rows(), none.oldest_epoch()), (0, None));
    }

    #[test]
    fn runs_that_contradict_the_window_are_refused() {
        let receipts = receipts();
        assert_eq!((receipts.phase_of(Ssn(4)), receipts.phase_of(Ssn(6))), (Some(Phase(3)), None));
        assert!(receipts.is_sound(2, Ssn(5)) && !receipts.is_sound(1, Ssn(5)) && !receipts.is_sound(2, Ssn(4)));
    }

    #[test]
    fn runs_that_are_out_of_order_are_refused() {
        let is_sound = |runs: &[(u64, u32, u32)]| {
            let run = |&(first, epoch, phase)| Receipt { first, epoch, phase, logged: false };
            Receipts { runs: runs.iter().map(run).collect(), upto: 5 }.is_sound(2, Ssn(5))
        };
        assert!(is_sound(&[(1, 1, 1), (3, 1, 2), (5, 2, 2)]));
        assert!(!is_sound(&[(3, 1, 1), (3, 1, 2)]), "no message in the first run");
        assert!(!is_sound(&[(3, 1, 1), (1, 1, 2)]), "the messages fall");
        assert!(!is_sound(&[(1, 2, 1), (3, 1, 2)]), "the epochs fall");
        assert!(!is_sound(&[(1, 1, 2), (3, 1, 1)]), "the phases fall");
    }
}

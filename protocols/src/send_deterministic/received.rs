//! What was received on one channel: in which epoch, in which phase, and whether as a logged message.

use counterfoil_log_core::{Epoch, Phase, Ssn};
use serde::{Deserialize, Serialize};

use super::notice::Fact;

/// The receipts of one channel, in SSN order, as runs of equal epoch, phase and mark.
///
/// It plays the part of RPP (Guermouche 2011, Figure 3, lines 6 and 26), but by message numbers and for the whole channel. Channels
/// are FIFO (section II.A), so there is no gap below [`upto`](Receipts::upto).
///
/// Memory: 24 bytes a run, at most two for each phase in which something was received that its sender may send again, or this rank
/// ask for. A sender may go back behind what this rank's own checkpoints cover, and then the runs say which phase an orphan has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipts {
    runs: Vec<Receipt>,
    upto: u64,
}

/// From `first` to the next run's first, all was received alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    first: u64,
    epoch: u32,
    /// This rank's phase after it had received them.
    phase: u32,
    /// They raised the phase above their own: the causal path is broken here.
    logged: bool,
}

impl Receipts {
    /// The next message was received.
    pub(super) fn record(&mut self, epoch: Epoch, phase: Phase, logged: bool) {
        self.upto += 1;
        let run = Receipt { first: self.upto, epoch: epoch.0, phase: phase.0, logged };
        if self.runs.last().is_none_or(|last| Receipt { first: run.first, ..*last } != run) {
            self.runs.push(run);
        }
    }

    /// All up to here was received.
    pub(super) fn upto(&self) -> Ssn {
        Ssn(self.upto)
    }

    /// The runs with their last numbers.
    fn spans(&self) -> impl Iterator<Item = (Receipt, u64)> + '_ {
        let ends = self.runs.iter().skip(1).map(|next| next.first - 1).chain([self.upto]);
        self.runs.iter().copied().zip(ends)
    }

    /// Nobody will ask about messages up to here any more: drops the runs that are of these alone.
    pub(super) fn forget(&mut self, upto: Ssn) {
        let after = self.runs.partition_point(|run| run.first <= upto.0 + 1);
        self.runs.drain(..after.saturating_sub(1));
    }

    /// The epoch of the oldest run; `None` if nothing was received.
    pub(super) fn oldest_epoch(&self) -> Option<Epoch> {
        self.runs.first().map(|run| Epoch(run.epoch))
    }

    /// How many runs there are.
    pub(super) fn rows(&self) -> usize {
        self.runs.len()
    }

    /// What the sender has to know of each receipt, in SSN order.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let mut facts: Vec<Fact> = Vec::new();
        for (Receipt { epoch, logged, .. }, last) in self.spans() {
            match facts.last_mut() {
                Some(before) if before.epoch == epoch && before.logged == logged => before.last = last,
                _ => facts.push(Fact { last, epoch, logged }),
            }
        }
        facts
    }

    /// The messages beyond `base`, as (number of messages, phase in which they were received).
    pub(super) fn beyond(&self, base: Ssn) -> impl Iterator<Item = (u64, Phase)> + '_ {
        self.spans().filter_map(move |(run, last)| {
            let first = run.first.max(base.0 + 1);
            (first <= last).then(|| (last + 1 - first, Phase(run.phase)))
        })
    }

    /// The phase in which `ssn` was received; `None` if it wasn't, or long ago.
    pub(super) fn phase_of(&self, ssn: Ssn) -> Option<Phase> {
        let after = self.runs.partition_point(|run| run.first <= ssn.0);
        (after > 0 && ssn.0 <= self.upto).then(|| Phase(self.runs[after - 1].phase))
    }

    /// Whether anything was received in `phase`.
    pub(super) fn any_in(&self, phase: Phase) -> bool {
        self.runs.iter().any(|run| run.phase == phase.0)
    }

    /// The last message that was received before `epoch`: what a checkpoint that begins `epoch` contains.
    pub(super) fn before(&self, epoch: Epoch) -> Ssn {
        let at = self.runs.partition_point(|run| run.epoch < epoch.0);
        self.runs.get(at).map_or(self.upto(), |run| Ssn(run.first - 1))
    }

    /// Whether the runs can have been written by [`Receipts::record`] up to `epoch`, with `upto` received.
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
    fn facts_tell_epoch_and_mark_of_every_message() {
        let facts = receipts().facts();
        let expected = [(3, 1, false), (4, 2, true), (5, 2, false)];
        assert_eq!(facts, expected.map(|(last, epoch, logged)| Fact { last, epoch, logged }));
    }

    #[test]
    fn messages_beyond_a_base_are_counted_by_the_phase_of_their_receipt() {
        let beyond: Vec<_> = receipts().beyond(Ssn(1)).collect();
        assert_eq!(beyond, [(1, Phase(1)), (1, Phase(2)), (1, Phase(3)), (1, Phase(3))]);
        assert_eq!(receipts().beyond(Ssn(5)).count(), 0);
    }

    #[test]
    fn a_checkpoint_contains_what_was_received_before_its_epoch() {
        assert_eq!(receipts().before(Epoch(1)), Ssn::ZERO);
        assert_eq!(receipts().before(Epoch(2)), Ssn(3));
        assert_eq!(receipts().before(Epoch(3)), Ssn(5));
    }

    #[test]
    fn what_is_forgotten_leaves_the_rest_as_it_was() {
        let mut forgotten = receipts();
        forgotten.forget(Ssn(3));
        assert_eq!((forgotten.rows(), forgotten.oldest_epoch()), (2, Some(Epoch(2))));
        assert!(forgotten.is_sound(2, Ssn(5)));
        let beyond = |receipts: &Receipts| receipts.beyond(Ssn(3)).collect::<Vec<_>>();
        assert_eq!(beyond(&forgotten), beyond(&receipts()));
        for epoch in [2, 3] {
            assert_eq!(forgotten.before(Epoch(epoch)), receipts().before(Epoch(epoch)));
        }
        forgotten.forget(Ssn(5));
        assert_eq!((forgotten.rows(), forgotten.upto()), (1, Ssn(5)));
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
}

//! What became of each message.

use counterfoil::Ssn;
use counterfoil_ack_piggyback::Ack;

/// How many messages of a run the rule logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// Messages of the run.
    pub messages: u64,
    /// Of these, those whose sender keeps them as logged (Guermouche 2011, Figure 3, line 37).
    pub logged: u64,
    /// Those that the receiver's checkpoint covered before their sender knew of their receipt: never logged.
    pub covered_first: u64,
    /// Acknowledgements that were frames of their own, because they could not wait for a message (section V.A).
    pub explicit_acks: u64,
}

impl Logged {
    /// Logged messages in per cent of all: %log of Table I. 0 for a run without messages.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.messages == 0 { 0.0 } else { 100.0 * self.logged as f64 / self.messages as f64 }
    }
}

/// One destination's part of a rank's log, without the records: the fate of every message is decided once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    /// Up to here the fate is known.
    settled: u64,
    pub(super) logged: u64,
    pub(super) covered_first: u64,
}

impl Lane {
    /// The receiver has all up to `ack`, and what is new of that is logged or not.
    pub(super) fn settle(&mut self, ack: Ack, keep: bool) {
        let news = ack.ssn.0.saturating_sub(self.settled);
        self.settled += news;
        self.logged += if keep { news } else { 0 };
    }

    /// The receiver won't ask for anything up to `upto`.
    pub(super) fn cover(&mut self, upto: Ssn) {
        let news = upto.0.saturating_sub(self.settled);
        self.settled += news;
        self.covered_first += news;
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled
    }
}

#[cfg(test)]
mod tests {
    use counterfoil::Epoch;

    use super::*;

    #[test]
    fn what_is_said_twice_counts_once() {
        let ack = |ssn| Ack { ssn: Ssn(ssn), epoch: Epoch(2) };
        let mut lane = Lane::default();
        lane.settle(ack(3), false);
        lane.settle(ack(5), true);
        lane.settle(ack(3), true);
        lane.settle(ack(6), true);
        lane.cover(Ssn(5));
        lane.cover(Ssn(8));
        assert_eq!((lane.settled(), lane.logged, lane.covered_first), (8, 3, 2));
    }
}

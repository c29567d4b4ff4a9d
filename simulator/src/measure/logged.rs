//! Fate of each message.

use counterfoil_ack_piggyback::Ack;
use counterfoil_log_core::Ssn;

/// Number of messages logged by the rule in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// Messages in the run.
    pub messages: u64,
    /// Messages kept by their sender as logged (Guermouche 2011, Figure 3, line 37).
    pub logged: u64,
    /// Messages covered by the receiver's checkpoint before their sender knew of their receipt: never logged.
    pub covered_first: u64,
    /// Acknowledgements in their own frames, because they could not wait for a message (section V.A).
    pub explicit_acks: u64,
}

impl Logged {
    /// Returns the logged messages as a percentage of all: %log of Table I. 0 for a run without messages.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.messages == 0 { 0.0 } else { 100.0 * self.logged as f64 / self.messages as f64 }
    }
}

/// One destination's part of a rank's log, without the records: every message's fate is decided once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    /// Last message with a known fate.
    decided: u64,
    pub(super) logged: u64,
    pub(super) covered_first: u64,
}

impl Lane {
    /// Decides the fate of the messages up to `ack`: received, and logged or not.
    pub(super) fn decide(&mut self, ack: Ack, keep: bool) {
        let fresh = ack.ssn.0.saturating_sub(self.decided);
        self.decided += fresh;
        self.logged += if keep { fresh } else { 0 };
    }

    /// Decides the fate of the messages up to `upto`, which the receiver won't request.
    pub(super) fn cover(&mut self, upto: Ssn) {
        let fresh = upto.0.saturating_sub(self.decided);
        self.decided += fresh;
        self.covered_first += fresh;
    }

    pub(super) fn decided(&self) -> u64 {
        self.decided
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Epoch;

    use super::*;

    #[test]
    fn a_repeated_acknowledgement_counts_once() {
        let ack = |ssn| Ack { ssn: Ssn(ssn), epoch: Epoch(2) };
        let mut lane = Lane::default();
        lane.decide(ack(3), false);
        lane.decide(ack(5), true);
        lane.decide(ack(3), true);
        lane.decide(ack(6), true);
        lane.cover(Ssn(5));
        lane.cover(Ssn(8));
        assert_eq!((lane.decided(), lane.logged, lane.covered_first), (8, 3, 2));
    }
}

//! Causality in recoveries: whatever depends on an *orphan* must wait until it was sent again.
//!
//! An orphan is a message received, but not sent, because its sender rolled back to before the send. Nothing dependent
//! on it may reach the rank about to send it again, which would act on its own future. A rule must ensure this from the
//! moment a rank has sent its table. Earlier, the rank can't know which messages are orphans.
//!
//! Dependence is judged by the current timelines, not by those at the time of a receipt: a message sent again after a
//! rollback depends on the receipts before it in the new execution.
//!
//! Operations are ordered as at the end ([`ViolationKind::Cycle`]), but as they happen: a rank's operations are
//! *founded* one after the other, a receipt when its sending is. A blocked rank has an orphan next, or a receipt
//! dependent on one. So each operation costs one step, each send one for each rank, and a rollback one for all
//! operations.

use counterfoil_log_core::Ssn;

use super::timeline::{Operation, Timeline};
use crate::violation::ViolationKind;

/// Operations independent of orphans.
#[derive(Debug)]
pub(super) struct Causality {
    /// By rank: number of its founded operations.
    founded: Vec<usize>,
    /// By channel (sender, receiver): last message with a founded sending.
    sent: Vec<Ssn>,
    /// By rank: `true` if it has sent its table since a process was last replaced, or in the recovery after it.
    reported: Vec<bool>,
}

impl Causality {
    pub(super) fn new(ranks: u32) -> Causality {
        let ranks = ranks as usize;
        Causality { founded: vec![0; ranks], sent: vec![Ssn::ZERO; ranks * ranks], reported: vec![false; ranks] }
    }

    /// Checks a rank from now on, because it acts on a line next.
    ///
    /// Either it has sent its table, or a line is computed from all living ranks' tables, perhaps before the last of
    /// them was replaced.
    pub(super) fn watch(&mut self, rank: u32) {
        self.reported[rank as usize] = true;
    }

    /// Handles a rollback.
    ///
    /// `replaced`: because the process has died, perhaps unknown to the other ranks.
    pub(super) fn restore(&mut self, replaced: bool, timelines: &[Timeline]) {
        if replaced {
            self.reported.fill(false);
        }
        self.founded.fill(0);
        self.sent.fill(Ssn::ZERO);
        self.advance(timelines);
    }

    /// Checks a rank's newest operation.
    pub(super) fn act(&mut self, rank: u32, timelines: &[Timeline]) -> Result<(), ViolationKind> {
        let (place, done) = (rank as usize, timelines[rank as usize].operations.len());
        // Otherwise an earlier operation isn't founded, and so neither is this.
        if self.founded[place] + 1 == done
            && self.advance_rank(place, &timelines[place])
            && matches!(timelines[place].operations.last(), Some(Operation::Sent { .. }))
        {
            // Others may have waited for it.
            self.advance(timelines);
        }
        if self.founded[place] < done && self.reported[place] { Err(self.explain(rank, timelines)) } else { Ok(()) }
    }

    /// Advances all ranks as far as possible.
    fn advance(&mut self, timelines: &[Timeline]) {
        let mut moved = true;
        while moved {
            let each = timelines.iter().enumerate();
            moved = each.fold(false, |moved, (rank, timeline)| self.advance_rank(rank, timeline) || moved);
        }
    }

    /// Advances one rank; returns `true` if it moved.
    fn advance_rank(&mut self, rank: usize, timeline: &Timeline) -> bool {
        let (ranks, before) = (self.founded.len(), self.founded[rank]);
        for operation in &timeline.operations[before..] {
            match *operation {
                Operation::Sent { to, ssn, .. } => self.sent[rank * ranks + to as usize] = ssn,
                Operation::Accepted { from, ssn, .. } if self.sent[from as usize * ranks + rank] < ssn => break,
                Operation::Accepted { .. } | Operation::Taken { .. } | Operation::Completed { .. } => {}
            }
            self.founded[rank] += 1;
        }
        self.founded[rank] > before
    }

    /// Explains why a rank can't proceed: goes from each unfounded receipt to its sender, until one wasn't sent.
    fn explain(&self, rank: u32, timelines: &[Timeline]) -> ViolationKind {
        let mut at = rank;
        for _ in timelines {
            let operation = timelines[at as usize].operations.get(self.founded[at as usize]);
            let Some(&Operation::Accepted { from, ssn, .. }) = operation else { break };
            if timelines[from as usize].sent(at) < ssn.0 {
                return ViolationKind::TooEarly { rank, from, to: at, number: ssn.0 };
            }
            at = from;
        }
        // The receipts form a cycle.
        ViolationKind::Cycle { rank: at, operation: self.founded[at as usize] as u64 }
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Epoch;

    use super::*;
    use crate::application::Payload;

    /// Operations of ranks, without a simulator.
    ///
    /// Rollbacks are to the start.
    struct Scenario {
        timelines: Vec<Timeline>,
        causality: Causality,
    }

    impl Scenario {
        /// Creates a scenario in which all ranks have sent their tables.
        fn begin(ranks: u32) -> Scenario {
            let timelines = (0..ranks).map(|_| Timeline::default()).collect();
            let mut scenario = Scenario { timelines, causality: Causality::new(ranks) };
            scenario.all_report();
            scenario
        }

        fn all_report(&mut self) {
            (0..self.timelines.len() as u32).for_each(|rank| self.causality.watch(rank));
        }

        fn act(&mut self, rank: u32, operation: Operation) -> Result<(), ViolationKind> {
            self.timelines[rank as usize].push(operation);
            self.causality.act(rank, &self.timelines)
        }

        /// Sends the rank's next message.
        fn send(&mut self, rank: u32, to: u32) -> Result<(), ViolationKind> {
            let ssn = Ssn(self.timelines[rank as usize].sent(to) + 1);
            self.act(rank, Operation::Sent { to, ssn, payload: Payload::default(), marked: false, epoch: Epoch::FIRST })
        }

        fn receive(&mut self, rank: u32, from: u32) -> Result<(), ViolationKind> {
            let ssn = Ssn(self.timelines[rank as usize].accepted(from) + 1);
            self.act(rank, Operation::Accepted { from, ssn, marked: false, logged: false, epoch: Epoch::FIRST })
        }

        fn restart(&mut self, rank: u32, replaced: bool) {
            assert!(self.timelines[rank as usize].restore(rank, Epoch::FIRST).is_ok());
            self.causality.restore(replaced, &self.timelines);
        }

        /// Returns a scenario with one message from rank 0 to 1, and one from 1 to 2.
        fn in_a_chain() -> Scenario {
            let mut scenario = Scenario::begin(3);
            let done = [scenario.send(0, 1), scenario.receive(1, 0), scenario.send(1, 2)];
            assert_eq!(done, [Ok(()), Ok(()), Ok(())]);
            scenario
        }
    }

    #[test]
    fn a_rank_that_depends_on_an_orphan_may_neither_send_nor_receive_until_it_was_sent_again() {
        let early = |rank| Err(ViolationKind::TooEarly { rank, from: 0, to: 1, number: 1 });
        let mut scenario = Scenario::in_a_chain();
        scenario.restart(0, false);
        assert_eq!(scenario.send(1, 2), early(1)); // Its state depends on the orphan.
        let mut scenario = Scenario::in_a_chain();
        scenario.restart(0, false);
        assert_eq!(scenario.receive(2, 1), early(2)); // The message depends on the orphan.
        let mut scenario = Scenario::in_a_chain();
        scenario.restart(0, false);
        assert_eq!(scenario.send(2, 0), Ok(())); // It doesn't depend on it.
        assert_eq!([scenario.send(0, 1), scenario.send(1, 2), scenario.receive(2, 1)], [Ok(()), Ok(()), Ok(())]);
    }

    #[test]
    fn a_rank_without_a_table_since_the_failure_is_not_checked() {
        let mut scenario = Scenario::in_a_chain();
        scenario.restart(0, true);
        assert_eq!([scenario.receive(2, 1), scenario.send(1, 2)], [Ok(()), Ok(())]);
        scenario.all_report();
        assert_eq!(scenario.send(2, 0), Err(ViolationKind::TooEarly { rank: 2, from: 0, to: 1, number: 1 }));
    }

    /// Rank 1 receives from 0 and sends to 2; when it executes this again it sends first.
    #[test]
    fn a_message_depends_on_what_was_before_it_when_it_was_sent_last() {
        for again in [false, true] {
            let mut scenario = Scenario::in_a_chain();
            assert_eq!(scenario.receive(2, 1), Ok(()));
            if again {
                scenario.restart(1, false);
                assert_eq!([scenario.send(1, 2), scenario.receive(1, 0)], [Ok(()), Ok(())]);
            }
            scenario.restart(0, false);
            let wrong = |rank| Err(ViolationKind::TooEarly { rank, from: 0, to: 1, number: 1 });
            assert_eq!(scenario.send(2, 0), if again { Ok(()) } else { wrong(2) });
            assert_eq!(scenario.send(1, 2), wrong(1));
        }
    }

    /// Rank 0 sends to 1, and 1 to 0; when rank 0 executes this again, it receives the answer first.
    #[test]
    fn a_message_that_depends_on_its_own_receipt_is_on_a_cycle() {
        let mut scenario = Scenario::begin(2);
        assert_eq!([scenario.send(0, 1), scenario.receive(1, 0), scenario.send(1, 0)], [Ok(()), Ok(()), Ok(())]);
        scenario.restart(0, true);
        assert_eq!(scenario.receive(0, 1), Ok(())); // No rank has sent its table yet.
        scenario.all_report();
        assert_eq!(scenario.send(0, 1), Err(ViolationKind::Cycle { rank: 0, operation: 0 }));
    }
}

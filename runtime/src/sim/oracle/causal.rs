//! Whether recoveries respect causality: who depends on an *orphan* stands still until that was sent again.
//!
//! An orphan is a message that counts as received by its receiver, and not as sent by its sender, who went back behind it. What
//! depends on it must not reach whoever has to send it again: that one would then act on its own future. A rule has to see
//! to that from where a rank has told what it knows. Before, that rank can't know what is an orphan.
//!
//! *Depends* is asked of what counts now, not of what was true when a message was received: if its sender went back and has sent it again,
//! then it depends on what that execution had received before.
//!
//! All that counts is put in order, as at the end ([`Wrong::Cycle`]), but as it happens: a rank's operations are
//! *founded* one after the other, a receipt when its sending is. Where a rank can't go on there is an orphan, or a
//! receipt that depends on one. So each operation costs one step, each send one for each rank, and a rank that goes back one for all that counts.

use counterfoil::Ssn;

use super::timeline::{Operation, Timeline};
use crate::sim::violation::Wrong;

/// What of all that counts depends on no orphan.
#[derive(Debug)]
pub(super) struct Causality {
    /// By rank: how many of its operations are founded.
    founded: Vec<usize>,
    /// By channel (sender, receiver): the last message whose sending is founded.
    sent: Vec<Ssn>,
    /// Who has told what it knows since a process was last replaced, or in the recovery that followed.
    told: Vec<bool>,
}

impl Causality {
    pub(super) fn new(ranks: u32) -> Causality {
        let ranks = ranks as usize;
        Causality { founded: vec![0; ranks], sent: vec![Ssn::ZERO; ranks * ranks], told: vec![false; ranks] }
    }

    /// A rank has told what it knows; or a line is drawn from what all have told who live, maybe before the last of them was replaced.
    /// Either way it acts on a line next.
    pub(super) fn heed(&mut self, rank: u32) {
        self.told[rank as usize] = true;
    }

    /// A rank has gone back. `replaced`: because its process has died, which the others may not know yet.
    pub(super) fn restore(&mut self, replaced: bool, timelines: &[Timeline]) {
        if replaced {
            self.told.fill(false);
        }
        self.founded.fill(0);
        self.sent.fill(Ssn::ZERO);
        self.advance(timelines);
    }

    /// A rank has done one thing more.
    pub(super) fn act(&mut self, rank: u32, timelines: &[Timeline]) -> Result<(), Wrong> {
        let (place, done) = (rank as usize, timelines[rank as usize].operations.len());
        // Else something before it isn't founded, and neither is this.
        if self.founded[place] + 1 == done
            && self.advance_rank(place, &timelines[place])
            && matches!(timelines[place].operations.last(), Some(Operation::Sent { .. }))
        {
            // Others may have waited for it.
            self.advance(timelines);
        }
        if self.founded[place] < done && self.told[place] { Err(self.explain(rank, timelines)) } else { Ok(()) }
    }

    /// Goes on with all ranks, as far as they come.
    fn advance(&mut self, timelines: &[Timeline]) {
        let mut moved = true;
        while moved {
            let each = timelines.iter().enumerate();
            moved = each.fold(false, |moved, (rank, timeline)| self.advance_rank(rank, timeline) || moved);
        }
    }

    /// Goes on with one rank; says whether it got further.
    fn advance_rank(&mut self, rank: usize, timeline: &Timeline) -> bool {
        let (ranks, before) = (self.founded.len(), self.founded[rank]);
        for operation in &timeline.operations[before..] {
            match *operation {
                Operation::Sent { to, ssn, .. } => self.sent[rank * ranks + to as usize] = ssn,
                Operation::Accepted { from, ssn, .. } if self.sent[from as usize * ranks + rank] < ssn => break,
                Operation::Accepted { .. } | Operation::Taken { .. } => {}
            }
            self.founded[rank] += 1;
        }
        self.founded[rank] > before
    }

    /// Why a rank can't go on: from each receipt that isn't founded to its sender, until there is one that wasn't sent.
    fn explain(&self, rank: u32, timelines: &[Timeline]) -> Wrong {
        let mut at = rank;
        for _ in timelines {
            let operation = timelines[at as usize].operations.get(self.founded[at as usize]);
            let Some(&Operation::Accepted { from, ssn, .. }) = operation else { break };
            if timelines[from as usize].sent(at) < ssn.0 {
                return Wrong::TooEarly { rank, from, to: at, number: ssn.0 };
            }
            at = from;
        }
        // They lead back to one of them.
        Wrong::Cycle { rank: at, operation: self.founded[at as usize] as u64 }
    }
}

#[cfg(test)]
mod tests {
    use counterfoil::Epoch;

    use super::*;
    use crate::sim::application::Payload;

    /// What ranks do, told without a simulator. Whoever goes back goes back to its start.
    struct Story {
        timelines: Vec<Timeline>,
        causality: Causality,
    }

    impl Story {
        /// Everybody has told what is known.
        fn begin(ranks: u32) -> Story {
            let timelines = (0..ranks).map(|_| Timeline::default()).collect();
            let mut story = Story { timelines, causality: Causality::new(ranks) };
            story.all_tell();
            story
        }

        fn all_tell(&mut self) {
            (0..self.timelines.len() as u32).for_each(|rank| self.causality.heed(rank));
        }

        fn act(&mut self, rank: u32, operation: Operation) -> Result<(), Wrong> {
            self.timelines[rank as usize].push(operation);
            self.causality.act(rank, &self.timelines)
        }

        /// Its next message.
        fn send(&mut self, rank: u32, to: u32) -> Result<(), Wrong> {
            let ssn = Ssn(self.timelines[rank as usize].sent(to) + 1);
            self.act(rank, Operation::Sent { to, ssn, payload: Payload::default(), marked: false, epoch: Epoch::FIRST })
        }

        fn receive(&mut self, rank: u32, from: u32) -> Result<(), Wrong> {
            let ssn = Ssn(self.timelines[rank as usize].accepted(from) + 1);
            self.act(rank, Operation::Accepted { from, ssn, marked: false, logged: false, epoch: Epoch::FIRST })
        }

        fn begins_again(&mut self, rank: u32, replaced: bool) {
            assert!(self.timelines[rank as usize].restore(rank, Epoch::FIRST).is_ok());
            self.causality.restore(replaced, &self.timelines);
        }

        /// A message each: from rank 0 to 1, and from 1 to 2.
        fn in_a_chain() -> Story {
            let mut story = Story::begin(3);
            let done = [story.send(0, 1), story.receive(1, 0), story.send(1, 2)];
            assert_eq!(done, [Ok(()), Ok(()), Ok(())]);
            story
        }
    }

    #[test]
    fn who_depends_on_an_orphan_may_neither_send_nor_receive_until_it_was_sent_again() {
        let early = |rank| Err(Wrong::TooEarly { rank, from: 0, to: 1, number: 1 });
        let mut story = Story::in_a_chain();
        story.begins_again(0, false);
        assert_eq!(story.send(1, 2), early(1)); // Its state does.
        let mut story = Story::in_a_chain();
        story.begins_again(0, false);
        assert_eq!(story.receive(2, 1), early(2)); // What it receives does.
        let mut story = Story::in_a_chain();
        story.begins_again(0, false);
        assert_eq!(story.send(2, 0), Ok(())); // It doesn't.
        assert_eq!([story.send(0, 1), story.send(1, 2), story.receive(2, 1)], [Ok(()), Ok(()), Ok(())]);
    }

    #[test]
    fn who_has_not_told_anything_since_the_failure_can_not_know_of_it() {
        let mut story = Story::in_a_chain();
        story.begins_again(0, true);
        assert_eq!([story.receive(2, 1), story.send(1, 2)], [Ok(()), Ok(())]);
        story.all_tell();
        assert_eq!(story.send(2, 0), Err(Wrong::TooEarly { rank: 2, from: 0, to: 1, number: 1 }));
    }

    /// Rank 1 receives of 0 and sends to 2; when it executes that again it sends first.
    #[test]
    fn a_message_depends_on_what_was_before_it_when_it_was_sent_last() {
        for again in [false, true] {
            let mut story = Story::in_a_chain();
            assert_eq!(story.receive(2, 1), Ok(()));
            if again {
                story.begins_again(1, false);
                assert_eq!([story.send(1, 2), story.receive(1, 0)], [Ok(()), Ok(())]);
            }
            story.begins_again(0, false);
            let wrong = |rank| Err(Wrong::TooEarly { rank, from: 0, to: 1, number: 1 });
            assert_eq!(story.send(2, 0), if again { Ok(()) } else { wrong(2) });
            assert_eq!(story.send(1, 2), wrong(1));
        }
    }

    /// Rank 0 sends to 1, and 1 to 0; when rank 0 executes that again, it receives the answer first.
    #[test]
    fn a_message_that_depends_on_its_own_receipt_is_on_a_cycle() {
        let mut story = Story::begin(2);
        assert_eq!([story.send(0, 1), story.receive(1, 0), story.send(1, 0)], [Ok(()), Ok(()), Ok(())]);
        story.begins_again(0, true);
        assert_eq!(story.receive(0, 1), Ok(())); // Nobody has told anything yet.
        story.all_tell();
        assert_eq!(story.send(0, 1), Err(Wrong::Cycle { rank: 0, operation: 0 }));
    }
}

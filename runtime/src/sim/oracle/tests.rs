//! Each oracle against a story with one thing wrong in it: two ranks, two messages each way, told without a simulator.

use counterfoil::{Epoch, Ssn};

use super::*;
use crate::sim::application::Payload;
use crate::sim::program::Step;

const NEXT: Epoch = Epoch(2);

/// Both ranks send two messages to each other and then take both.
fn program() -> Program {
    let steps = |other: u32| {
        let send = |tag| Step::Send { to: other, tag };
        vec![send(0), send(0), Step::Gather(vec![(other, 0), (other, 0)])]
    };
    Program { steps: vec![steps(1), steps(0)] }
}

/// One message from rank 0 to rank 1, which has died since and was replaced. `known`: then rank 0 has heard that it was received.
fn failed_receiver(marked: bool, known: bool) -> Story {
    let mut story = Story::begin(Retention::Logged);
    let (sent, received) = (story.sent(0, 1), Event::Accepted { rank: 1, from: 0, ssn: Ssn(1), sent_in: NEXT, marked });
    let known = known.then_some(Event::Acknowledged { rank: 0, peer: 1, upto: Ssn(1) });
    let failed = [Event::Killed { node: 1 }, Event::Started { rank: 1, epoch: Epoch::FIRST }];
    let told = [0, 1].map(|rank| Event::Testified { rank });
    for event in [sent, received].into_iter().chain(failed).chain(known).chain(told) {
        assert_eq!(story.tell(event), Ok(()));
    }
    story
}

impl Story {
    fn tell_line(&mut self, line: [Option<Epoch>; 2]) -> Result<(), Wrong> {
        (0..).zip(line).try_for_each(|(rank, epoch)| self.tell(Event::Line { rank, epoch }))
    }
}

#[test]
fn a_line_that_takes_the_sender_of_a_logged_message_back_is_wrong_if_the_sender_knew() {
    let start = Some(Epoch::FIRST);
    let too_low = Wrong::LineTooLow { rank: 0, epoch: 1, enough: None };
    assert_eq!(failed_receiver(true, true).tell_line([start, start]), Err(too_low));
    assert_eq!(failed_receiver(true, true).tell_line([None, start]), Ok(()));
    assert_eq!(failed_receiver(true, false).tell_line([start, start]), Ok(()));
    assert_eq!(failed_receiver(false, true).tell_line([start, start]), Ok(()));
}

#[test]
fn who_has_received_an_orphan_waits_once_it_has_told_what_it_knows_or_a_line_is_drawn() {
    let early = Err(Wrong::TooEarly { rank: 1, from: 0, to: 1, number: 1 });
    let told = Event::Testified { rank: 1 };
    let line = |rank| Event::Line { rank, epoch: Some(Epoch::FIRST).filter(|_| rank == 0) };
    for (retention, events, expected) in [
        (Retention::Logged, vec![], Ok(())),
        (Retention::Logged, vec![told], early.clone()),
        (Retention::Logged, vec![line(0), line(1)], early),
        (Retention::AllSent, vec![told], Ok(())),
    ] {
        let mut story = Story::begin(retention);
        let failed = [story.sent(0, 1), story.accepted(0, 1), Event::Started { rank: 0, epoch: Epoch::FIRST }];
        for event in failed.into_iter().chain(events.clone()) {
            assert_eq!(story.tell(event), Ok(()));
        }
        assert_eq!(story.tell(story.sent(1, 1)), expected, "{events:?}");
    }
}

#[test]
fn a_line_counts_the_messages_that_are_received_and_not_sent() {
    let mut story = failed_receiver(false, true);
    assert_eq!(story.tell(Event::Started { rank: 0, epoch: Epoch::FIRST }), Ok(()));
    assert_eq!((story.tell(story.accepted(0, 1)), story.tell_line([Some(Epoch::FIRST), None])), (Ok(()), Ok(())));
    assert_eq!(story.oracle.counted(), (0, 1));
}

#[test]
fn a_rank_that_was_killed_and_has_not_told_anything_since_makes_a_line_out_of_date() {
    let mut story = failed_receiver(false, true);
    assert!(story.oracle.is_current());
    assert_eq!(story.tell(Event::Killed { node: 0 }), Ok(()));
    assert!(!story.oracle.is_current());
}

#[test]
fn what_is_logged_or_not_known_to_be_received_may_be_kept() {
    let retained = |records| Event::Retained { rank: 0, peer: 1, records };
    for (marked, known, level) in [(true, true, 1), (false, false, 1), (false, true, 0)] {
        let mut story = Story::begin(Retention::Logged);
        let received = Event::Accepted { rank: 1, from: 0, ssn: Ssn(1), sent_in: Epoch::FIRST, marked };
        let known = known.then_some(Event::Acknowledged { rank: 0, peer: 1, upto: Ssn(1) });
        for event in [story.sent(0, 1), received].into_iter().chain(known).chain([retained(level)]) {
            assert_eq!(story.tell(event), Ok(()), "{marked} {known:?}");
        }
        let wrong = Wrong::Retained { rank: 0, peer: 1, records: level + 1, level };
        assert_eq!(story.tell(retained(level + 1)), Err(wrong));
    }
}

/// Rank 1 takes a checkpoint, and then receives what rank 0 has sent before it took one. Of two such messages, rank 0 has to hear of the first.
#[test]
fn a_sender_that_is_not_told_of_its_first_message_to_the_future_is_wrong_at_the_end() {
    for (known, expected) in [(2, Ok(())), (1, Ok(())), (0, Err(Wrong::Unheard { rank: 0, peer: 1, number: 1 }))] {
        let mut story = Story::begin(Retention::Logged);
        story.tell_all(1);
        assert_eq!(story.tell(Event::Checkpointed { rank: 1, epoch: NEXT }), Ok(()));
        story.tell_all(0);
        assert_eq!(story.tell(Event::Acknowledged { rank: 0, peer: 1, upto: Ssn(known) }), Ok(()));
        assert_eq!(story.oracle.finish(), expected, "{known}");
    }
}

/// Its header was that of the first time, when the sender didn't know yet; it knew when it sent it again.
#[test]
fn a_sender_need_not_be_told_of_what_it_has_marked_when_it_repeated_it() {
    for (marked, expected) in [(true, Ok(())), (false, Err(Wrong::Unheard { rank: 0, peer: 1, number: 1 }))] {
        let mut story = Story::begin(Retention::Logged);
        story.tell_all(1);
        assert_eq!(story.tell(Event::Checkpointed { rank: 1, epoch: NEXT }), Ok(()));
        for number in 1..=2 {
            let mut sent = story.sent(0, number);
            if let Event::Sent { marked: mark, .. } = &mut sent {
                *mark = marked;
            }
            for event in [sent, story.accepted(0, number), story.taken(0, number)] {
                assert_eq!(story.tell(event), Ok(()));
            }
        }
        assert_eq!(story.oracle.finish(), expected, "{marked}");
    }
}

/// Both messages of rank 0 are live until both ranks have a checkpoint after them, and nothing older.
#[test]
fn a_table_that_is_larger_than_what_is_live_is_wrong() {
    let sizes = |spe, rpp| TableSizes { spe, unacknowledged: 0, rpp };
    let of = |rank, sizes| Event::Tables { rank, peer: 1 - rank, sizes };
    let grown = |rank, table, rows, live| Err(Wrong::Grown { rank, peer: 1 - rank, table, rows, live });
    let mut story = Story::begin(Retention::Logged);
    story.tell_all(0);
    assert_eq!((story.tell(of(0, sizes(1, 0))), story.tell(of(1, sizes(0, 3)))), (Ok(()), Ok(())));
    assert_eq!(story.tell(of(0, sizes(2, 0))), grown(0, "SPE", 2, 1));
    assert_eq!(story.tell(of(1, sizes(0, 4))), grown(1, "RPP", 4, 3));
    for rank in [0, 1] {
        let kept = Event::CheckpointsKept { rank, first: NEXT, last: NEXT };
        for event in [Event::Checkpointed { rank, epoch: NEXT }, Event::Durable { rank, epoch: NEXT }, kept] {
            assert_eq!(story.tell(event), Ok(()));
        }
    }
    assert_eq!((story.tell(of(0, sizes(1, 0))), story.tell(of(1, sizes(0, 1)))), (grown(0, "SPE", 1, 0), Ok(())));
    assert_eq!(story.tell(of(1, sizes(0, 2))), grown(1, "RPP", 2, 1));
    let unacknowledged = TableSizes { unacknowledged: 1, ..sizes(0, 0) };
    assert_eq!(story.tell(of(0, unacknowledged)), grown(0, "NonAck", 1, 0));
}

struct Story {
    oracle: Oracle,
    reference: Reference,
}

impl Story {
    fn begin(retention: Retention) -> Story {
        Story::repeating(retention, Repetition::Free)
    }

    fn repeating(retention: Retention, repetition: Repetition) -> Story {
        let (oracle, reference) = (Oracle::new(&program(), retention, repetition), Reference::new(&program()));
        let mut story = Story { oracle, reference };
        for rank in 0..2 {
            assert_eq!(story.tell(Event::Started { rank, epoch: Epoch::FIRST }), Ok(()));
        }
        story
    }

    fn tell(&mut self, event: Event) -> Result<(), Wrong> {
        self.oracle.note(event)
    }

    fn payload(&self, from: u32, number: u64) -> Payload {
        let content = self.reference.content(from, 1 - from, Ssn(number));
        Payload { content: content.unwrap_or(0), history: 0 }
    }

    fn sent(&self, from: u32, number: u64) -> Event {
        let payload = self.payload(from, number);
        Event::Sent { rank: from, to: 1 - from, ssn: Ssn(number), payload, marked: false }
    }

    fn accepted(&self, from: u32, number: u64) -> Event {
        Event::Accepted { rank: 1 - from, from, ssn: Ssn(number), sent_in: Epoch::FIRST, marked: false }
    }

    fn taken(&self, from: u32, number: u64) -> Event {
        let payload = self.payload(from, number);
        Event::Taken { rank: 1 - from, from, tag: 0, ssn: Ssn(number), payload }
    }

    /// All that happens to the messages of one sender.
    fn tell_all(&mut self, from: u32) {
        for number in [1, 2] {
            for event in [self.sent(from, number), self.accepted(from, number), self.taken(from, number)] {
                assert_eq!(self.tell(event), Ok(()));
            }
        }
    }
}

#[test]
fn a_story_with_nothing_wrong_is_believed() {
    let mut story = Story::begin(Retention::UntilCovered { slack: 0 });
    story.tell_all(0);
    story.tell_all(1);
    assert_eq!(story.oracle.finish(), Ok(()));
}

#[test]
fn a_send_with_other_bytes_or_another_number_is_wrong() {
    let mut story = Story::begin(Retention::AllSent);
    let second = story.sent(0, 2);
    assert_eq!(story.tell(second), Err(Wrong::Send { rank: 0, to: 1, number: 2 }));
    let damaged = Event::Sent { rank: 0, to: 1, ssn: Ssn(1), payload: Payload::default(), marked: false };
    assert_eq!(story.tell(damaged), Err(Wrong::Send { rank: 0, to: 1, number: 1 }));
    let first = story.sent(0, 1);
    assert_eq!(story.tell(first), Ok(()));
    assert_eq!(story.tell(first), Err(Wrong::Send { rank: 0, to: 1, number: 1 }));
}

#[test]
fn a_message_received_twice_is_wrong_unless_the_first_time_is_undone() {
    let mut story = Story::begin(Retention::AllSent);
    let accepted = story.accepted(0, 1);
    assert_eq!(story.tell(accepted), Ok(()));
    assert_eq!(story.tell(accepted), Err(Wrong::Duplicate { rank: 1, from: 0, number: 1 }));
    assert_eq!(story.tell(Event::Started { rank: 1, epoch: Epoch::FIRST }), Ok(()));
    assert_eq!(story.tell(accepted), Ok(()));
}

#[test]
fn a_message_taken_out_of_turn_or_damaged_is_wrong() {
    let mut story = Story::begin(Retention::AllSent);
    let wrong = |number| Err(Wrong::Take { rank: 1, from: 0, tag: 0, number });
    let second = story.taken(0, 2);
    assert_eq!(story.tell(second), wrong(2));
    let damaged = Event::Taken { rank: 1, from: 0, tag: 0, ssn: Ssn(1), payload: Payload::default() };
    assert_eq!(story.tell(damaged), wrong(1));
    let first = story.taken(0, 1);
    assert_eq!(story.tell(first), Ok(()));
    assert_eq!(story.tell(first), wrong(1));
}

#[test]
fn a_lost_message_is_missed_at_the_end() {
    let mut story = Story::begin(Retention::AllSent);
    story.tell_all(0);
    for event in [story.sent(1, 1), story.accepted(1, 1), story.taken(1, 1), story.sent(1, 2)] {
        assert_eq!(story.tell(event), Ok(()));
    }
    let counts = Wrong::Incomplete { from: 1, to: 0, expected: 2, sent: 2, received: 1, taken: 1 };
    assert_eq!(story.oracle.finish(), Err(counts));
}

/// Rank 1 takes a message that depends on an order of receives; then its sender dies, and sends it with another.
#[test]
fn a_message_of_an_execution_that_is_undone_is_wrong_at_the_end() {
    let mut story = Story::begin(Retention::AllSent);
    let Event::Sent { payload, .. } = story.sent(0, 1) else { return };
    let payload = Payload { history: 7, ..payload };
    let sent = Event::Sent { rank: 0, to: 1, ssn: Ssn(1), payload, marked: false };
    let taken = Event::Taken { rank: 1, from: 0, tag: 0, ssn: Ssn(1), payload };
    let restart = Event::Started { rank: 0, epoch: Epoch::FIRST };
    let rest = [story.sent(0, 2), story.accepted(0, 2), story.taken(0, 2)];
    for event in [sent, story.accepted(0, 1), taken, restart, story.sent(0, 1)].into_iter().chain(rest) {
        assert_eq!(story.tell(event), Ok(()));
    }
    story.tell_all(1);
    assert_eq!(story.oracle.finish(), Err(Wrong::Undone { rank: 1, from: 0, number: 1 }));
}

/// Each rank takes the other's messages before it sends its own: no clock allows that.
#[test]
fn effects_before_their_causes_are_wrong_at_the_end() {
    let mut story = Story::begin(Retention::AllSent);
    let mut events = Vec::new();
    for from in [0, 1] {
        for number in [1, 2] {
            events.extend([story.accepted(from, number), story.taken(from, number)]);
        }
    }
    for from in [0, 1] {
        events.extend([story.sent(from, 1), story.sent(from, 2)]);
    }
    for event in events {
        assert_eq!(story.tell(event), Ok(()));
    }
    assert!(matches!(story.oracle.finish(), Err(Wrong::Cycle { .. })));
}

#[test]
fn only_what_the_oldest_restorable_checkpoint_has_may_be_freed() {
    let mut story = Story::begin(Retention::UntilCovered { slack: 0 });
    let freed = |upto| Event::Freed { rank: 0, peer: 1, upto: Ssn(upto) };
    let too_much = |upto, covered| Err(Wrong::FreedTooMuch { rank: 0, peer: 1, upto, covered });
    for event in [story.sent(0, 1), story.accepted(0, 1), Event::Checkpointed { rank: 1, epoch: NEXT }] {
        assert_eq!(story.tell(event), Ok(()));
    }
    for event in [story.sent(0, 2), story.accepted(0, 2)] {
        assert_eq!(story.tell(event), Ok(()));
    }
    assert_eq!(story.tell(freed(1)), too_much(1, 0)); // It isn't durable yet.
    assert_eq!(story.tell(Event::Durable { rank: 1, epoch: NEXT }), Ok(()));
    assert_eq!(story.tell(freed(1)), too_much(1, 0)); // The start can still be restored.
    assert_eq!(story.tell(Event::CheckpointsKept { rank: 1, first: NEXT, last: NEXT }), Ok(()));
    assert_eq!(story.tell(freed(1)), Ok(()));
    assert_eq!(story.tell(freed(2)), too_much(2, 1));
}

#[test]
fn a_checkpoint_that_is_not_durable_or_was_discarded_can_not_be_restored() {
    let mut story = Story::begin(Retention::AllSent);
    let restart = |epoch| Event::Started { rank: 1, epoch };
    let gone = |epoch: Epoch| Err(Wrong::NoCheckpoint { rank: 1, epoch: epoch.0 });
    assert_eq!(story.tell(Event::Checkpointed { rank: 1, epoch: NEXT }), Ok(()));
    assert_eq!(story.tell(restart(NEXT)), gone(NEXT));
    assert_eq!(story.tell(Event::Durable { rank: 1, epoch: NEXT }), Ok(()));
    assert_eq!(story.tell(Event::CheckpointsKept { rank: 1, first: NEXT, last: NEXT }), Ok(()));
    assert_eq!(story.tell(restart(NEXT)), Ok(()));
    assert_eq!(story.tell(restart(Epoch::FIRST)), gone(Epoch::FIRST));
    assert_eq!(story.tell(Event::Durable { rank: 1, epoch: Epoch(3) }), gone(Epoch(3)));
}

#[test]
fn a_lane_that_holds_what_is_covered_is_wrong() {
    let retained = |records| Event::Retained { rank: 0, peer: 1, records };
    let too_much = |records, level| Err(Wrong::Retained { rank: 0, peer: 1, records, level });
    let mut story = Story::begin(Retention::UntilCovered { slack: 1 });
    story.tell_all(0);
    assert_eq!(story.tell(retained(2)), Ok(()));
    assert_eq!(story.tell(retained(3)), too_much(3, 2));
    for event in [
        Event::Checkpointed { rank: 1, epoch: NEXT },
        Event::Durable { rank: 1, epoch: NEXT },
        Event::CheckpointsKept { rank: 1, first: NEXT, last: NEXT },
    ] {
        assert_eq!(story.tell(event), Ok(()));
    }
    assert_eq!(story.tell(retained(0)), Ok(()));
    assert_eq!(story.tell(retained(1)), too_much(1, 0)); // The slack is for a rank that was restored.
    assert_eq!(story.tell(Event::RolledBack { rank: 0, epoch: Epoch::FIRST }), Ok(()));
    assert_eq!(story.tell(retained(1)), too_much(1, 0)); // Nor for what it has not sent yet.
    for number in [1, 2] {
        let sent = story.sent(0, number);
        assert_eq!(story.tell(sent), Ok(()));
    }
    assert_eq!(story.tell(retained(1)), Ok(()));
    assert_eq!(story.tell(retained(2)), too_much(2, 1));
}

/// Rank 0 has sent both of its messages, and rank 1 has received them and died twice: the second time before it had come as far.
fn died_twice(repetition: Repetition) -> Story {
    let mut story = Story::repeating(Retention::AllSent, repetition);
    let (first, second) = (story.accepted(0, 1), story.accepted(0, 2));
    let died = Event::Started { rank: 1, epoch: Epoch::FIRST };
    for event in [story.sent(1, 1), first, story.sent(1, 2), second, died, story.sent(1, 1), first, died] {
        assert_eq!(story.tell(event), Ok(()));
    }
    story
}

#[test]
fn a_replacement_that_sends_something_else_is_found_where_the_rule_repeats_sends() {
    for (repetition, wrong) in [
        (Repetition::Free, None),
        (Repetition::Sends, Some(Wrong::Diverged { rank: 1, to: 0, number: 2 })),
        (Repetition::SendsAndReceives, Some(Wrong::Diverged { rank: 1, to: 0, number: 2 })),
    ] {
        let mut story = died_twice(repetition);
        assert_eq!(story.tell(story.sent(1, 1)), Ok(()));
        // The same content, which is checked elsewhere; but sent after other messages were taken.
        let payload = Payload { history: 7, ..story.payload(1, 2) };
        let sent = Event::Sent { rank: 1, to: 0, ssn: Ssn(2), payload, marked: false };
        assert_eq!(story.tell(sent).err(), wrong);
    }
}

#[test]
fn a_replacement_that_receives_in_another_order_is_found_where_the_rule_repeats_it() {
    for repetition in [Repetition::Free, Repetition::Sends] {
        let mut story = died_twice(repetition);
        assert_eq!(story.tell(story.accepted(0, 2)), Ok(()));
    }
    let mut story = died_twice(Repetition::SendsAndReceives);
    assert_eq!(story.tell(story.accepted(0, 2)), Err(Wrong::OtherOrder { rank: 1, from: 0, number: 2 }));
    // In the old order, and from then on in any.
    let mut story = died_twice(Repetition::SendsAndReceives);
    for event in [story.accepted(0, 1), story.accepted(0, 2), story.sent(1, 1), story.sent(1, 2)] {
        assert_eq!(story.tell(event), Ok(()));
    }
}

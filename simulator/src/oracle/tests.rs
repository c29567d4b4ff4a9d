//! Each oracle against a scenario with one fault: two ranks, two messages each way, without a simulator.

use counterfoil_log_core::{Epoch, Incarnation, Ssn};
use counterfoil_protocols::api::Repetition;

use super::*;
use crate::application::Payload;
use crate::program::Step;

const NEXT: Epoch = Epoch(2);

/// Two ranks, each sending two messages to the other and then taking both.
fn program() -> Program {
    let steps = |other: u32| {
        let send = |tag| Step::Send { to: other, tag };
        vec![send(0), send(0), Step::Gather(vec![(other, 0), (other, 0)])]
    };
    Program { steps: vec![steps(1), steps(0)], calls: Vec::new() }
}

/// Rank 0 hears from an incarnation of rank 1, in its Hello, of receipts up to `upto`.
fn hello(incarnation: u32, upto: u64) -> Event {
    Event::HelloHeard { rank: 0, peer: 1, incarnation: Incarnation(incarnation), upto: Ssn(upto) }
}

/// Rank 0 hears the same in an acknowledgement.
fn ack(incarnation: u32, upto: u64) -> Event {
    Event::AckHeard { rank: 0, peer: 1, incarnation: Incarnation(incarnation), upto: Ssn(upto) }
}

fn transmitted(upto: u64) -> Event {
    Event::Transmitted { rank: 0, peer: 1, upto: Ssn(upto) }
}

/// Returns a scenario with one message from rank 0 to rank 1, which has died since and was replaced.
///
/// `heard`: events at rank 0 after the replacement, before both send their tables.
fn failed_receiver(marked: bool, heard: &[Event]) -> Scenario {
    let mut scenario = Scenario::begin(Kept::Logged);
    let (sent, received) =
        (scenario.sent(0, 1), Event::Accepted { rank: 1, from: 0, ssn: Ssn(1), sent_in: NEXT, marked });
    let failed = [Event::Killed { node: 1 }, Event::Started { rank: 1, epoch: Epoch::FIRST }];
    let told = [0, 1].map(|rank| Event::TableReported { rank });
    for event in [sent, received].into_iter().chain(failed).chain(heard.iter().copied()).chain(told) {
        assert_eq!(scenario.observe(event), Ok(()));
    }
    scenario
}

impl Scenario {
    fn observe_line(&mut self, line: [Option<Epoch>; 2]) -> Result<(), ViolationKind> {
        (0..).zip(line).try_for_each(|(rank, epoch)| self.observe(Event::Line { rank, epoch }))
    }
}

#[test]
fn a_line_that_rolls_back_the_sender_of_a_logged_message_is_wrong_if_the_sender_knew() {
    let start = Some(Epoch::FIRST);
    let too_low = ViolationKind::LineTooLow { rank: 0, epoch: 1, enough: None };
    let known = [hello(1, 1), transmitted(1)];
    assert_eq!(failed_receiver(true, &known).observe_line([start, start]), Err(too_low.clone()));
    assert_eq!(failed_receiver(true, &known).observe_line([None, start]), Ok(()));
    assert_eq!(failed_receiver(false, &known).observe_line([start, start]), Ok(()));
    let by_ack = [hello(1, 0), ack(1, 1), transmitted(1)];
    assert_eq!(failed_receiver(true, &by_ack).observe_line([start, start]), Err(too_low));
    let unknown: [&[Event]; 4] = [
        &[],
        // It can't act on the receipt before it has transmitted the message again.
        &[hello(1, 1), transmitted(0)],
        // From the dead incarnation.
        &[ack(0, 1), hello(1, 0), ack(0, 1), transmitted(1)],
        &[hello(1, 0), transmitted(1), ack(1, 1)],
    ];
    for heard in unknown {
        assert_eq!(failed_receiver(true, heard).observe_line([start, start]), Ok(()), "{heard:?}");
    }
}

#[test]
fn the_receiver_of_an_orphan_waits_once_it_has_sent_its_table_or_a_line_is_computed() {
    let early = Err(ViolationKind::TooEarly { rank: 1, from: 0, to: 1, number: 1 });
    let told = Event::TableReported { rank: 1 };
    let line = |rank| Event::Line { rank, epoch: Some(Epoch::FIRST).filter(|_| rank == 0) };
    for (retention, events, expected) in [
        (Kept::Logged, vec![], Ok(())),
        (Kept::Logged, vec![told], early.clone()),
        (Kept::Logged, vec![line(0), line(1)], early),
        (Kept::All, vec![told], Ok(())),
    ] {
        let mut scenario = Scenario::begin(retention);
        let failed = [scenario.sent(0, 1), scenario.accepted(0, 1), Event::Started { rank: 0, epoch: Epoch::FIRST }];
        for event in failed.into_iter().chain(events.clone()) {
            assert_eq!(scenario.observe(event), Ok(()));
        }
        assert_eq!(scenario.observe(scenario.sent(1, 1)), expected, "{events:?}");
    }
}

#[test]
fn a_line_counts_the_messages_that_are_received_and_not_sent() {
    let mut scenario = failed_receiver(false, &[hello(1, 1)]);
    assert_eq!(scenario.observe(Event::Started { rank: 0, epoch: Epoch::FIRST }), Ok(()));
    assert_eq!(
        (scenario.observe(scenario.accepted(0, 1)), scenario.observe_line([Some(Epoch::FIRST), None])),
        (Ok(()), Ok(()))
    );
    assert_eq!(scenario.oracle.counted(), (0, 1));
}

#[test]
fn a_killed_rank_without_a_new_table_makes_a_line_out_of_date() {
    let mut scenario = failed_receiver(false, &[hello(1, 1)]);
    assert!(scenario.oracle.is_current());
    assert_eq!(scenario.observe(Event::Killed { node: 0 }), Ok(()));
    assert!(!scenario.oracle.is_current());
}

#[test]
fn messages_that_are_logged_or_not_known_to_be_received_may_be_kept() {
    let retained = |records| Event::Retained { rank: 0, peer: 1, records };
    for (marked, known, level) in [(true, true, 1), (false, false, 1), (false, true, 0)] {
        let mut scenario = Scenario::begin(Kept::Logged);
        let received = Event::Accepted { rank: 1, from: 0, ssn: Ssn(1), sent_in: Epoch::FIRST, marked };
        let heard = [hello(0, 0), ack(0, u64::from(known))];
        for event in [scenario.sent(0, 1), received].into_iter().chain(heard).chain([retained(level)]) {
            assert_eq!(scenario.observe(event), Ok(()), "{marked} {known}");
        }
        let wrong = ViolationKind::Retained { rank: 0, peer: 1, records: level + 1, level };
        assert_eq!(scenario.observe(retained(level + 1)), Err(wrong));
    }
}

/// Rank 1 has received it in the epoch of the first send.
#[test]
fn a_message_that_is_sent_again_in_an_earlier_epoch_may_be_kept() {
    for (again_in, level) in [(NEXT, 0), (Epoch::FIRST, 1)] {
        let mut scenario = Scenario::begin(Kept::Logged);
        let checkpoint = |rank| [Event::Checkpointed { rank, epoch: NEXT }, Event::Durable { rank, epoch: NEXT }];
        let received = Event::Accepted { rank: 1, from: 0, ssn: Ssn(1), sent_in: NEXT, marked: false };
        let first = checkpoint(0).into_iter().chain(checkpoint(1)).chain([scenario.sent(0, 1), received]);
        let again = [Event::Started { rank: 0, epoch: again_in }, scenario.sent(0, 1), hello(0, 1)];
        for event in first.chain(again).chain([Event::Retained { rank: 0, peer: 1, records: level }]) {
            assert_eq!(scenario.observe(event), Ok(()), "{again_in}");
        }
        let wrong = ViolationKind::Retained { rank: 0, peer: 1, records: level + 1, level };
        assert_eq!(
            scenario.observe(Event::Retained { rank: 0, peer: 1, records: level + 1 }),
            Err(wrong),
            "{again_in}"
        );
    }
}

/// Rank 1 takes a checkpoint, and then receives two messages sent by rank 0 before its own checkpoint. Rank 0 has to
/// learn of the first.
#[test]
fn a_sender_that_is_not_told_of_its_first_message_to_the_future_is_wrong_at_the_end() {
    for (known, expected) in
        [(2, Ok(())), (1, Ok(())), (0, Err(ViolationKind::Unheard { rank: 0, peer: 1, number: 1 }))]
    {
        let mut scenario = Scenario::begin(Kept::Logged);
        scenario.observe_all(1);
        assert_eq!(scenario.observe(Event::Checkpointed { rank: 1, epoch: NEXT }), Ok(()));
        scenario.observe_all(0);
        let acted = Event::Acknowledged { rank: 0, peer: 1, upto: Ssn(known) };
        for event in [hello(0, 0), ack(0, known), acted] {
            assert_eq!(scenario.observe(event), Ok(()));
        }
        assert_eq!(scenario.oracle.finish(), expected, "{known}");
    }
}

#[test]
fn a_receipt_that_was_heard_and_has_no_effect_is_wrong_at_the_end() {
    let acted = |upto| Event::Acknowledged { rank: 0, peer: 1, upto: Ssn(upto) };
    let unapplied = |applied| Err(ViolationKind::Unapplied { rank: 0, peer: 1, heard: 2, applied });
    let undone = Event::Unacknowledged { rank: 0, peer: 1, to: Ssn(1) };
    let covered = [
        Event::Checkpointed { rank: 1, epoch: NEXT },
        Event::Durable { rank: 1, epoch: NEXT },
        Event::CheckpointsKept { rank: 1, first: NEXT, last: Epoch::MAX },
    ];
    let cases: [(&[Event], _); 4] =
        [(&[acted(2)], Ok(())), (&[acted(1)], unapplied(1)), (&[acted(2), undone], unapplied(1)), (&covered, Ok(()))];
    for (events, expected) in cases {
        let mut scenario = Scenario::begin(Kept::Logged);
        scenario.observe_all(1);
        scenario.observe_all(0);
        for &event in [hello(0, 0), ack(0, 2)].iter().chain(events) {
            assert_eq!(scenario.observe(event), Ok(()));
        }
        assert_eq!(scenario.oracle.finish(), expected, "{events:?}");
    }
}

/// Its header was from the first send, before the sender knew; it knew when it sent it again.
#[test]
fn a_sender_need_not_be_told_of_a_message_that_it_marked_when_repeating_it() {
    for (marked, expected) in [(true, Ok(())), (false, Err(ViolationKind::Unheard { rank: 0, peer: 1, number: 1 }))] {
        let mut scenario = Scenario::begin(Kept::Logged);
        scenario.observe_all(1);
        assert_eq!(scenario.observe(Event::Checkpointed { rank: 1, epoch: NEXT }), Ok(()));
        for number in 1..=2 {
            let mut sent = scenario.sent(0, number);
            if let Event::Sent { marked: mark, .. } = &mut sent {
                *mark = marked;
            }
            for event in [sent, scenario.accepted(0, number), scenario.taken(0, number)] {
                assert_eq!(scenario.observe(event), Ok(()));
            }
        }
        assert_eq!(scenario.oracle.finish(), expected, "{marked}");
    }
}

/// Both messages from rank 0 are live until both ranks have a checkpoint after them, and nothing older.
#[test]
fn a_table_with_more_than_live_messages_is_wrong() {
    let sizes = |spe, rpp| TableSizes { spe, unacknowledged: 0, rpp, receive_epochs: 0 };
    let of = |rank, sizes| Event::Tables { rank, peer: 1 - rank, sizes };
    let grown = |rank, table, rows, live| Err(ViolationKind::Grown { rank, peer: 1 - rank, table, rows, live });
    let mut scenario = Scenario::begin(Kept::Logged);
    scenario.observe_all(0);
    assert_eq!((scenario.observe(of(0, sizes(1, 0))), scenario.observe(of(1, sizes(0, 3)))), (Ok(()), Ok(())));
    assert_eq!(scenario.observe(of(0, sizes(2, 0))), grown(0, "SPE", 2, 1));
    assert_eq!(scenario.observe(of(1, sizes(0, 4))), grown(1, "RPP", 4, 3));
    for rank in [0, 1] {
        let kept = Event::CheckpointsKept { rank, first: NEXT, last: NEXT };
        for event in [Event::Checkpointed { rank, epoch: NEXT }, Event::Durable { rank, epoch: NEXT }, kept] {
            assert_eq!(scenario.observe(event), Ok(()));
        }
    }
    assert_eq!(
        (scenario.observe(of(0, sizes(1, 0))), scenario.observe(of(1, sizes(0, 1)))),
        (grown(0, "SPE", 1, 0), Ok(()))
    );
    assert_eq!(scenario.observe(of(1, sizes(0, 2))), grown(1, "RPP", 2, 1));
    let unacknowledged = TableSizes { unacknowledged: 1, ..sizes(0, 0) };
    assert_eq!(scenario.observe(of(0, unacknowledged)), grown(0, "NonAck", 1, 0));
    let epochs = |receive_epochs| TableSizes { receive_epochs, ..sizes(0, 0) };
    assert_eq!(scenario.observe(of(1, epochs(2))), Ok(()));
    assert_eq!(scenario.observe(of(1, epochs(3))), grown(1, "receive epochs", 3, 2));
}

/// Rank 1, alone in the second of two clusters, has a durable checkpoint of epoch 3 and is in epoch 4.
#[test]
fn an_epoch_that_the_next_cluster_has_begun_is_wrong() {
    let meets = |rank, epoch| Err(ViolationKind::ClustersMeet { rank, epoch, other: 1, its: 3 });
    for (clusters, reached) in [(2, meets(0, 3)), (1, Ok(())), (0, Ok(()))] {
        let mut scenario = Scenario::of_clusters(Kept::Logged, Repetition::Nothing, clusters);
        let begun = |rank, epoch| Event::Checkpointed { rank, epoch: Epoch(epoch) };
        let durable = |epoch| Event::Durable { rank: 1, epoch: Epoch(epoch) };
        for event in [begun(1, 2), durable(2), begun(1, 3), durable(3), begun(1, 4), begun(0, 2)] {
            assert_eq!(scenario.observe(event), Ok(()), "{clusters} clusters");
        }
        assert_eq!(scenario.observe(begun(0, 3)), reached, "{clusters} clusters");
    }
}

struct Scenario {
    oracle: Oracle,
    reference: Reference,
}

impl Scenario {
    fn begin(keeps: Kept) -> Scenario {
        Scenario::repeating(keeps, Repetition::Nothing)
    }

    fn repeating(keeps: Kept, repeats: Repetition) -> Scenario {
        Scenario::of_clusters(keeps, repeats, 0)
    }

    fn of_clusters(keeps: Kept, repeats: Repetition, clusters: u32) -> Scenario {
        let properties = Properties { repeats, keeps, ..Properties::LOGGED_BY_SENDERS };
        let (oracle, reference) = (Oracle::new(&program(), properties, clusters), Reference::new(&program()));
        let mut scenario = Scenario { oracle, reference };
        for rank in 0..2 {
            assert_eq!(scenario.observe(Event::Started { rank, epoch: Epoch::FIRST }), Ok(()));
        }
        scenario
    }

    fn observe(&mut self, event: Event) -> Result<(), ViolationKind> {
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

    /// Adds all events for one sender's messages.
    fn observe_all(&mut self, from: u32) {
        for number in [1, 2] {
            for event in [self.sent(from, number), self.accepted(from, number), self.taken(from, number)] {
                assert_eq!(self.observe(event), Ok(()));
            }
        }
    }
}

#[test]
fn a_correct_scenario_is_accepted() {
    let mut scenario = Scenario::begin(Kept::UntilCovered);
    scenario.observe_all(0);
    scenario.observe_all(1);
    assert_eq!(scenario.oracle.finish(), Ok(()));
}

#[test]
fn a_send_with_other_bytes_or_another_number_is_wrong() {
    let mut scenario = Scenario::begin(Kept::All);
    let second = scenario.sent(0, 2);
    assert_eq!(scenario.observe(second), Err(ViolationKind::Send { rank: 0, to: 1, number: 2 }));
    let damaged = Event::Sent { rank: 0, to: 1, ssn: Ssn(1), payload: Payload::default(), marked: false };
    assert_eq!(scenario.observe(damaged), Err(ViolationKind::Send { rank: 0, to: 1, number: 1 }));
    let first = scenario.sent(0, 1);
    assert_eq!(scenario.observe(first), Ok(()));
    assert_eq!(scenario.observe(first), Err(ViolationKind::Send { rank: 0, to: 1, number: 1 }));
}

#[test]
fn a_message_received_twice_is_wrong_unless_the_first_time_is_undone() {
    let mut scenario = Scenario::begin(Kept::All);
    let accepted = scenario.accepted(0, 1);
    assert_eq!(scenario.observe(accepted), Ok(()));
    assert_eq!(scenario.observe(accepted), Err(ViolationKind::Duplicate { rank: 1, from: 0, number: 1 }));
    assert_eq!(scenario.observe(Event::Started { rank: 1, epoch: Epoch::FIRST }), Ok(()));
    assert_eq!(scenario.observe(accepted), Ok(()));
}

#[test]
fn a_message_taken_out_of_turn_or_damaged_is_wrong() {
    let mut scenario = Scenario::begin(Kept::All);
    let wrong = |number| Err(ViolationKind::Take { rank: 1, from: 0, tag: 0, number });
    let second = scenario.taken(0, 2);
    assert_eq!(scenario.observe(second), wrong(2));
    let damaged = Event::Taken { rank: 1, from: 0, tag: 0, ssn: Ssn(1), payload: Payload::default() };
    assert_eq!(scenario.observe(damaged), wrong(1));
    let first = scenario.taken(0, 1);
    assert_eq!(scenario.observe(first), Ok(()));
    assert_eq!(scenario.observe(first), wrong(1));
}

#[test]
fn a_lost_message_is_missed_at_the_end() {
    let mut scenario = Scenario::begin(Kept::All);
    scenario.observe_all(0);
    for event in [scenario.sent(1, 1), scenario.accepted(1, 1), scenario.taken(1, 1), scenario.sent(1, 2)] {
        assert_eq!(scenario.observe(event), Ok(()));
    }
    let counts = ViolationKind::Incomplete { from: 1, to: 0, expected: 2, sent: 2, received: 1, taken: 1 };
    assert_eq!(scenario.oracle.finish(), Err(counts));
}

/// Rank 1 takes a message dependent on an order of receives; then its sender dies, and sends it with another.
#[test]
fn a_message_of_an_execution_that_is_undone_is_wrong_at_the_end() {
    let mut scenario = Scenario::begin(Kept::All);
    let Event::Sent { payload, .. } = scenario.sent(0, 1) else { return };
    let payload = Payload { history: 7, ..payload };
    let sent = Event::Sent { rank: 0, to: 1, ssn: Ssn(1), payload, marked: false };
    let taken = Event::Taken { rank: 1, from: 0, tag: 0, ssn: Ssn(1), payload };
    let restart = Event::Started { rank: 0, epoch: Epoch::FIRST };
    let rest = [scenario.sent(0, 2), scenario.accepted(0, 2), scenario.taken(0, 2)];
    for event in [sent, scenario.accepted(0, 1), taken, restart, scenario.sent(0, 1)].into_iter().chain(rest) {
        assert_eq!(scenario.observe(event), Ok(()));
    }
    scenario.observe_all(1);
    assert_eq!(scenario.oracle.finish(), Err(ViolationKind::Undone { rank: 1, from: 0, number: 1 }));
}

/// Each rank takes the other's messages before it sends its own: no clock allows that.
#[test]
fn effects_before_their_causes_are_wrong_at_the_end() {
    let mut scenario = Scenario::begin(Kept::All);
    let mut events = Vec::new();
    for from in [0, 1] {
        for number in [1, 2] {
            events.extend([scenario.accepted(from, number), scenario.taken(from, number)]);
        }
    }
    for from in [0, 1] {
        events.extend([scenario.sent(from, 1), scenario.sent(from, 2)]);
    }
    for event in events {
        assert_eq!(scenario.observe(event), Ok(()));
    }
    assert!(matches!(scenario.oracle.finish(), Err(ViolationKind::Cycle { .. })));
}

#[test]
fn only_messages_in_the_oldest_restorable_checkpoint_may_be_freed() {
    let mut scenario = Scenario::begin(Kept::UntilCovered);
    let freed = |upto| Event::Freed { rank: 0, peer: 1, upto: Ssn(upto) };
    let too_much = |upto, covered| Err(ViolationKind::FreedTooMuch { rank: 0, peer: 1, upto, covered });
    for event in [scenario.sent(0, 1), scenario.accepted(0, 1), Event::Checkpointed { rank: 1, epoch: NEXT }] {
        assert_eq!(scenario.observe(event), Ok(()));
    }
    for event in [scenario.sent(0, 2), scenario.accepted(0, 2)] {
        assert_eq!(scenario.observe(event), Ok(()));
    }
    assert_eq!(scenario.observe(freed(1)), too_much(1, 0)); // It isn't durable yet.
    assert_eq!(scenario.observe(Event::Durable { rank: 1, epoch: NEXT }), Ok(()));
    assert_eq!(scenario.observe(freed(1)), too_much(1, 0)); // The start can still be restored.
    assert_eq!(scenario.observe(Event::CheckpointsKept { rank: 1, first: NEXT, last: NEXT }), Ok(()));
    assert_eq!(scenario.observe(freed(1)), Ok(()));
    assert_eq!(scenario.observe(freed(2)), too_much(2, 1));
}

#[test]
fn a_checkpoint_that_is_not_durable_or_was_discarded_can_not_be_restored() {
    let mut scenario = Scenario::begin(Kept::All);
    let restart = |epoch| Event::Started { rank: 1, epoch };
    let gone = |epoch: Epoch| Err(ViolationKind::NoCheckpoint { rank: 1, epoch: epoch.0 });
    assert_eq!(scenario.observe(Event::Checkpointed { rank: 1, epoch: NEXT }), Ok(()));
    assert_eq!(scenario.observe(restart(NEXT)), gone(NEXT));
    assert_eq!(scenario.observe(Event::Durable { rank: 1, epoch: NEXT }), Ok(()));
    assert_eq!(scenario.observe(Event::CheckpointsKept { rank: 1, first: NEXT, last: NEXT }), Ok(()));
    assert_eq!(scenario.observe(restart(NEXT)), Ok(()));
    assert_eq!(scenario.observe(restart(Epoch::FIRST)), gone(Epoch::FIRST));
    assert_eq!(scenario.observe(Event::Durable { rank: 1, epoch: Epoch(3) }), gone(Epoch(3)));
}

#[test]
fn a_lane_that_holds_covered_messages_is_wrong() {
    let retained = |records| Event::Retained { rank: 0, peer: 1, records };
    let too_much = |records, level| Err(ViolationKind::Retained { rank: 0, peer: 1, records, level });
    let mut scenario = Scenario::begin(Kept::UntilCovered);
    scenario.observe_all(0);
    assert_eq!(scenario.observe(retained(2)), Ok(()));
    assert_eq!(scenario.observe(retained(3)), too_much(3, 2));
    for event in [
        Event::Checkpointed { rank: 1, epoch: NEXT },
        Event::Durable { rank: 1, epoch: NEXT },
        Event::CheckpointsKept { rank: 1, first: NEXT, last: NEXT },
    ] {
        assert_eq!(scenario.observe(event), Ok(()));
    }
    assert_eq!(scenario.observe(retained(0)), Ok(()));
    assert_eq!(scenario.observe(retained(1)), too_much(1, 0)); // The slack is for a rank that was restored.
    assert_eq!(scenario.observe(Event::RolledBack { rank: 0, epoch: Epoch::FIRST }), Ok(()));
    assert_eq!(scenario.observe(retained(1)), too_much(1, 0)); // Nor for messages that it has not sent yet.
    for number in [1, 2] {
        let sent = scenario.sent(0, number);
        assert_eq!(scenario.observe(sent), Ok(()));
    }
    assert_eq!(scenario.observe(retained(1)), Ok(()));
    assert_eq!(scenario.observe(retained(2)), too_much(2, 1));
}

/// Rank 0 has sent both its messages, and rank 1 has received them and died twice: the second time before it had come
/// as far.
fn died_twice(repetition: Repetition) -> Scenario {
    let mut scenario = Scenario::repeating(Kept::All, repetition);
    let (first, second) = (scenario.accepted(0, 1), scenario.accepted(0, 2));
    let died = Event::Started { rank: 1, epoch: Epoch::FIRST };
    for event in [scenario.sent(1, 1), first, scenario.sent(1, 2), second, died, scenario.sent(1, 1), first, died] {
        assert_eq!(scenario.observe(event), Ok(()));
    }
    scenario
}

#[test]
fn a_replacement_that_sends_something_else_is_found_where_the_rule_repeats_sends() {
    for (repetition, wrong) in [
        (Repetition::Nothing, None),
        (Repetition::Sends, Some(ViolationKind::Diverged { rank: 1, to: 0, number: 2 })),
        (Repetition::SendsAndReceives, Some(ViolationKind::Diverged { rank: 1, to: 0, number: 2 })),
    ] {
        let mut scenario = died_twice(repetition);
        assert_eq!(scenario.observe(scenario.sent(1, 1)), Ok(()));
        // The same content, checked elsewhere, but sent after other takes.
        let payload = Payload { history: 7, ..scenario.payload(1, 2) };
        let sent = Event::Sent { rank: 1, to: 0, ssn: Ssn(2), payload, marked: false };
        assert_eq!(scenario.observe(sent).err(), wrong);
    }
}

#[test]
fn a_replacement_that_receives_in_another_order_is_found_where_the_rule_repeats_it() {
    for repetition in [Repetition::Nothing, Repetition::Sends] {
        let mut scenario = died_twice(repetition);
        assert_eq!(scenario.observe(scenario.accepted(0, 2)), Ok(()));
    }
    let mut scenario = died_twice(Repetition::SendsAndReceives);
    assert_eq!(
        scenario.observe(scenario.accepted(0, 2)),
        Err(ViolationKind::OtherOrder { rank: 1, from: 0, number: 2 })
    );
    // In the old order, and from then on in any.
    let mut scenario = died_twice(Repetition::SendsAndReceives);
    for event in [scenario.accepted(0, 1), scenario.accepted(0, 2), scenario.sent(1, 1), scenario.sent(1, 2)] {
        assert_eq!(scenario.observe(event), Ok(()));
    }
}

//! Statements about the pessimistic rule, each shown on two or three state machines without a network.

// A failure here fails the test.

use counterfoil_ack_piggyback::{Ack, AckPolicy, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{
    ChoiceError, ChoiceRecord, DiscardReason, Effect, EntryKey, EntryKind, Hello, Incoming, Party, Protocol,
    ProtocolError, RestoreError,
};
use counterfoil_protocols::pessimistic::{Config, Pessimistic};
use counterfoil_protocols::sender_based::SenderBased;

const A: Rank = Rank(0);
const B: Rank = Rank(1);
/// Receiver in most tests.
const R: Rank = Rank(2);

fn config(rank: Rank, incarnation: u32) -> Config {
    Config { rank, ranks: 3, incarnation: Incarnation(incarnation), policy: AckPolicy::default() }
}

fn rank(rank: Rank, incarnation: u32) -> Pessimistic {
    Pessimistic::new(config(rank, incarnation)).unwrap()
}

/// Returns the transmitted message headers to `R`.
fn send(from: &mut Pessimistic, count: usize) -> Vec<WireHeader> {
    let source = from.core().config().rank;
    let envelope = Envelope { source, destination: R, tag: 0, comm: 0, len: 8 };
    let one = |_| {
        let mut header = from.handle_send(&envelope).unwrap().header;
        from.handle_transmit(&mut header).unwrap();
        header
    };
    (0..count).map(one).collect()
}

fn effects(of: &mut Pessimistic) -> Vec<Effect> {
    std::iter::from_fn(|| of.poll_effect()).collect()
}

fn resumes(of: &mut Pessimistic) -> usize {
    effects(of).iter().filter(|effect| matches!(effect, Effect::Resume)).count()
}

fn recorded(number: u64) -> Incoming {
    Incoming::Deliver { keep: Some(EntryKey { kind: EntryKind::Delivery, number }) }
}

const REPEATED: Incoming = Incoming::Deliver { keep: None };

fn determinant(sequence: u64, source: Rank, ssn: u64) -> Determinant {
    Determinant { sequence, source, ssn: Ssn(ssn) }
}

/// Starts a replacement for `R` with these recorded deliveries, numbered from `first`.
fn replacement(tables: Option<&[u8]>, first: u64, order: &[(Rank, u64)]) -> Pessimistic {
    let mut again = rank(R, 1);
    if let Some(tables) = tables {
        again.restore(tables, Epoch::FIRST).unwrap();
    }
    for (sequence, &(source, ssn)) in (first..).zip(order) {
        again.handle_recovered_delivery(&ChoiceRecord::new(determinant(sequence, source, ssn)).bytes).unwrap();
    }
    effects(&mut again);
    again
}

fn durable_checkpoint(of: &mut Pessimistic) -> (Vec<u8>, Vec<Effect>) {
    let snapshot = of.handle_checkpoint().unwrap();
    of.handle_checkpoint_durable(snapshot.epoch).unwrap();
    (snapshot.tables, effects(of))
}

#[test]
fn every_delivery_is_recorded_under_its_place_in_the_order_and_nothing_else_is() {
    let (mut a, mut b, mut r) = (rank(A, 0), rank(B, 0), rank(R, 0));
    let (from_a, from_b) = (send(&mut a, 2), send(&mut b, 1));
    assert_eq!(r.handle_message(&from_a[0]).unwrap(), recorded(0));
    assert_eq!(r.handle_message(&from_b[0]).unwrap(), recorded(1));
    let duplicate = DiscardReason::Duplicate { receive_epoch: Epoch::FIRST };
    assert_eq!(r.handle_message(&from_a[0]).unwrap(), Incoming::Discard(duplicate));
    assert_eq!(r.handle_message(&from_a[1]).unwrap(), recorded(2));
    assert_eq!((r.delivered(), resumes(&mut r)), (3, 0));
}

#[test]
fn a_replacement_delivers_in_the_recorded_order_whatever_arrives_first() {
    let order = [(B, 1), (A, 1), (A, 2), (B, 2)];
    let mut r = replacement(None, 0, &order);
    let (from_a, from_b) = (send(&mut rank(A, 0), 3), send(&mut rank(B, 0), 2));
    for early in &from_a {
        // Presented again after each resume until it is its turn; being held changes nothing.
        if early.ssn() == Ssn(1) {
            assert_eq!(r.handle_message(early).unwrap(), Incoming::Hold);
            assert_eq!((r.delivered(), r.pending_deliveries(), resumes(&mut r)), (0, 4, 0));
        }
    }
    for (place, header) in [&from_b[0], &from_a[0], &from_a[1]].into_iter().enumerate() {
        assert_eq!(r.handle_message(header).unwrap(), REPEATED, "{place}");
        assert_eq!((r.pending_deliveries(), resumes(&mut r)), (3 - place, 1));
    }
    assert_eq!(r.handle_message(&from_a[2]).unwrap(), Incoming::Hold);
    assert_eq!(r.handle_message(&from_b[1]).unwrap(), REPEATED);
    assert_eq!(resumes(&mut r), 1, "held messages are presented again, though nothing is forced any more");
    assert_eq!(r.handle_message(&from_a[2]).unwrap(), recorded(4));
    assert_eq!(resumes(&mut r), 0);
}

#[test]
fn a_recorded_but_undelivered_message_is_forced_too() {
    // Its predecessor died between writing and delivering; a second replacement finds both records.
    let mut r = replacement(None, 0, &[(A, 1)]);
    let (from_a, from_b) = (send(&mut rank(A, 0), 1), send(&mut rank(B, 0), 1));
    assert_eq!(r.handle_message(&from_b[0]).unwrap(), Incoming::Hold);
    assert_eq!(r.handle_message(&from_a[0]).unwrap(), REPEATED);
    assert_eq!(r.handle_message(&from_b[0]).unwrap(), recorded(1));
    let mut again = replacement(None, 0, &[(A, 1), (B, 1)]);
    assert_eq!(again.handle_message(&from_b[0]).unwrap(), Incoming::Hold);
    assert_eq!(again.handle_message(&from_a[0]).unwrap(), REPEATED);
    assert_eq!(again.handle_message(&from_b[0]).unwrap(), REPEATED);
}

#[test]
fn a_checkpoint_drops_what_it_covers_once_it_is_durable() {
    let (mut a, mut r) = (rank(A, 0), rank(R, 0));
    let messages = send(&mut a, 4);
    for header in &messages[..3] {
        assert!(matches!(r.handle_message(header).unwrap(), Incoming::Deliver { keep: Some(_) }));
    }
    effects(&mut r);
    let snapshot = r.handle_checkpoint().unwrap();
    let dropped = |effects: &[Effect]| {
        let before = |effect: &Effect| match effect {
            Effect::DiscardDeliveries { before } => Some(*before),
            _ => None,
        };
        effects.iter().filter_map(before).collect::<Vec<_>>()
    };
    assert_eq!(dropped(&effects(&mut r)), [], "it isn't durable yet");
    r.handle_checkpoint_durable(snapshot.epoch).unwrap();
    assert_eq!(dropped(&effects(&mut r)), [3]);

    // Records covered by the checkpoint may still be there: the process died before it dropped them.
    let order = [(A, 1), (A, 2), (A, 3), (A, 4)];
    let mut r = replacement(Some(&snapshot.tables), 0, &order);
    assert_eq!((r.delivered(), r.pending_deliveries()), (3, 1));
    assert!(matches!(r.handle_message(&messages[2]).unwrap(), Incoming::Discard(_)));
    assert_eq!(r.handle_message(&messages[3]).unwrap(), REPEATED);
    assert_eq!((r.delivered(), r.pending_deliveries()), (4, 0));
}

#[test]
fn no_checkpoint_is_taken_before_all_deliveries_are_repeated() {
    let mut r = replacement(None, 0, &[(A, 1)]);
    assert!(!r.wants_checkpoint());
    assert_eq!(r.handle_checkpoint(), Err(ProtocolError::DeliveriesPending { pending: 1 }));
    assert_eq!(r.handle_message(&send(&mut rank(A, 0), 1)[0]).unwrap(), REPEATED);
    assert!(r.wants_checkpoint() && r.handle_checkpoint().is_ok());
}

#[test]
fn held_messages_of_a_dead_incarnation_make_way_for_its_successor() {
    let mut r = replacement(None, 0, &[(B, 1), (A, 1)]);
    let from_dead = send(&mut rank(A, 0), 1);
    assert_eq!(r.handle_message(&from_dead[0]).unwrap(), Incoming::Hold);
    let mut successor = rank(A, 1);
    let hello = Hello::decode(&successor.hello(R).unwrap().encode().unwrap()).unwrap();
    r.handle_hello(A, &hello).unwrap();
    assert_eq!(resumes(&mut r), 1, "the held message is presented again");
    assert!(matches!(r.handle_message(&from_dead[0]).unwrap(), Incoming::Discard(_)));
    let (from_b, again) = (send(&mut rank(B, 0), 1), send(&mut successor, 1));
    assert_eq!(r.handle_message(&again[0]).unwrap(), Incoming::Hold);
    assert_eq!(r.handle_message(&from_b[0]).unwrap(), REPEATED);
    assert_eq!(r.handle_message(&again[0]).unwrap(), REPEATED);
}

#[test]
fn messages_of_a_channel_have_to_be_presented_in_order() {
    let messages = send(&mut rank(A, 0), 2);
    let unexpected = |found| ProtocolError::UnexpectedSsn { peer: A, expected: Ssn(1), found: Ssn(found) };
    let mut r = rank(R, 0);
    assert_eq!(r.handle_message(&messages[1]), Err(unexpected(2)));
    assert_eq!(r.handle_message(&messages[0]).unwrap(), recorded(0), "nothing was noted");
    // A record with another SSN is not this execution's.
    let mut r = replacement(None, 0, &[(A, 2)]);
    let other = ProtocolError::UnexpectedSsn { peer: A, expected: Ssn(2), found: Ssn(1) };
    assert_eq!(r.handle_message(&messages[0]), Err(other));
}

#[test]
fn a_record_with_a_gap_is_an_error_and_not_another_order() {
    let mut r = replacement(None, 1, &[(A, 2)]);
    let lost = ProtocolError::MissingDelivery { missing: 0, present: 1 };
    assert_eq!(r.handle_message(&send(&mut rank(A, 0), 1)[0]), Err(lost));
}

#[test]
fn invalid_records_are_refused() {
    let mut r = rank(R, 1);
    let record = ChoiceRecord::new(determinant(0, A, 1)).bytes;
    for cut in 0..record.len() {
        assert_eq!(r.handle_recovered_delivery(&record[..cut]), Err(ChoiceError::Malformed { len: cut }));
    }
    r.handle_recovered_delivery(&record).unwrap();
    r.handle_recovered_delivery(&record).unwrap();
    let (first, second) = (determinant(0, A, 1), determinant(0, B, 1));
    let contradiction = ChoiceError::Contradiction { first, second };
    assert_eq!(r.handle_recovered_delivery(&ChoiceRecord::new(second).bytes), Err(contradiction));
    let stranger = ChoiceRecord::new(determinant(1, Rank(3), 1)).bytes;
    let unknown = ChoiceError::UnknownRank { rank: Rank(3), ranks: 3 };
    assert_eq!(r.handle_recovered_delivery(&stranger), Err(unknown));
    assert_eq!(r.handle_message(&send(&mut rank(A, 0), 1)[0]).unwrap(), REPEATED);
    assert_eq!(r.handle_recovered_delivery(&record), Err(ChoiceError::TooLate { sequence: 0 }));
    // The plain rule never writes such a record.
    let mut plain = SenderBased::new(config(R, 1)).unwrap();
    assert_eq!(plain.handle_recovered_delivery(&record), Err(ChoiceError::NotRecorded { len: 20 }));
}

#[test]
fn tables_are_restored_unchanged_and_differ_from_those_of_the_plain_rule() {
    let mut r = rank(R, 0);
    for header in &send(&mut rank(A, 0), 2) {
        assert!(matches!(r.handle_message(header).unwrap(), Incoming::Deliver { keep: Some(_) }));
    }
    let (tables, _) = durable_checkpoint(&mut r);
    let mut again = replacement(Some(&tables), 0, &[]);
    assert_eq!((again.delivered(), again.core().received_upto(A), again.epoch()), (2, Ssn(2), Epoch(2)));
    assert_eq!(durable_checkpoint(&mut again).0.len(), tables.len());
    assert_eq!(again.restore(&tables, Epoch::FIRST), Err(RestoreError::NotFresh));
    let mut waiting = replacement(None, 0, &[(A, 1)]);
    assert_eq!(waiting.restore(&tables, Epoch::FIRST), Err(RestoreError::NotFresh));
    for cut in 1..tables.len() {
        assert!(rank(R, 1).restore(&tables[..cut], Epoch::FIRST).is_err(), "{cut}");
    }
    let mut plain = SenderBased::new(config(R, 0)).unwrap();
    let of_plain = plain.handle_checkpoint().unwrap().tables;
    assert_eq!(rank(R, 1).restore(&of_plain, Epoch::FIRST), Err(RestoreError::Version { found: 1, expected: 0x81 }));
    let mut plain = SenderBased::new(config(R, 1)).unwrap();
    assert_eq!(plain.restore(&tables, Epoch::FIRST), Err(RestoreError::Version { found: 0x81, expected: 1 }));
}

#[test]
fn acknowledgements_and_lost_peers_are_handled_as_under_the_plain_rule() {
    let (mut a, mut r) = (rank(A, 0), rank(R, 0));
    assert_eq!(r.handle_message(&send(&mut a, 1)[0]).unwrap(), recorded(0));
    let envelope = Envelope { source: R, destination: A, ..Envelope::default() };
    let mut reply = r.handle_send(&envelope).unwrap().header;
    r.handle_transmit(&mut reply).unwrap();
    let ack = Ack { ssn: Ssn(1), epoch: Epoch::FIRST };
    assert_eq!(reply.ack(), Some(ack));
    let explicit = WireHeader::ack_only(R, A, reply.origin(), ack);
    a.handle_control(Party::Rank(R), &explicit, &[]).unwrap();
    assert!(matches!(effects(&mut a)[..], [Effect::Acknowledged { peer: R, .. }]));
    let unknown = ProtocolError::UnknownRank { rank: Rank(3), ranks: 3 };
    assert_eq!(a.handle_peer_lost(Rank(3)), Err(unknown));
}

#[test]
fn a_hello_resumes_nothing_while_the_order_is_free() {
    let (mut a, mut r) = (rank(A, 1), rank(R, 1));
    assert_eq!(a.incarnation(), Incarnation(1));
    a.handle_hello(R, &r.hello(A).unwrap()).unwrap();
    r.handle_hello(A, &a.hello(R).unwrap()).unwrap();
    assert_eq!((resumes(&mut a), resumes(&mut r)), (0, 0));
}

#[test]
fn outcomes_of_other_calls_are_choices_as_under_the_plain_rule() {
    let mut r = rank(R, 0);
    let call = r.next_choice();
    // A test without a match: no message order determines this.
    let nothing = Determinant { sequence: call.sequence, source: R, ssn: Ssn::ZERO };
    let record = r.handle_choice(nothing).unwrap().unwrap();
    let mut again = rank(R, 1);
    again.handle_recovered_choice(&record.bytes).unwrap();
    assert_eq!(again.next_choice().forced, Some(nothing));
}

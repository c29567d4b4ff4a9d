//! Connecting to a peer: replay and refusal.

use super::*;

#[test]
fn a_survivor_replays_exactly_what_the_replacement_lacks() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let messages = send_many(&mut a, B, 5);
    receive_all(&mut b, &messages[..3]);
    let (tables, _) = durable_checkpoint(&mut b);
    receive_all(&mut b, &messages[3..]);

    let mut b = restored(B, 1, &tables);
    let (from_a, _) = meet(&mut a, &mut b);
    assert_eq!(replays_after(&from_a, B), Some(Ssn(3)));
}

#[test]
fn a_replacement_transmits_from_where_its_own_execution_is() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 2));
    let (tables, _) = durable_checkpoint(&mut a);
    receive_all(&mut b, &send_many(&mut a, B, 3));

    let mut a = restored(A, 1, &tables);
    let (from_a, _) = meet(&mut a, &mut b);
    assert_eq!(replays_after(&from_a, B), Some(Ssn(2)), "B has 5, but A has sent only 2 so far");
    for header in send_many(&mut a, B, 3) {
        assert!(matches!(b.handle_message(&header), Ok(Incoming::Discard(DiscardReason::Duplicate { .. }))));
    }
    receive_all(&mut b, &[send(&mut a, B)]);
}

#[test]
fn exceptions_survive_a_restart_and_are_dropped_when_they_come_again() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let messages = send_many(&mut a, B, 4);
    receive_all(&mut b, &[messages[0], messages[3]]);
    let (tables, _) = durable_checkpoint(&mut b);

    let mut b = restored(B, 1, &tables);
    let (from_a, _) = meet(&mut a, &mut b);
    assert_eq!(replays_after(&from_a, B), Some(Ssn(1)));
    let replayed: Vec<_> = messages[1..].iter().map(|header| transmit(&mut a, header)).collect();
    receive_all(&mut b, &replayed[..2]);
    assert!(matches!(b.handle_message(&replayed[2]), Ok(Incoming::Discard(_))));
}

#[test]
fn a_transmitted_header_has_the_current_incarnation_and_acknowledgement() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let message = send(&mut a, B);
    assert_eq!((message.ack(), message.flags()), (None, Flags::NONE));
    receive_all(&mut a, &send_many(&mut b, A, 2));

    let again = transmit(&mut a, &message);
    assert_eq!(again.ack(), Some(Ack { ssn: Ssn(2), epoch: Epoch::FIRST }));
    assert_eq!(again.ssn(), message.ssn());

    let (_, from_b) = meet(&mut a, &mut b);
    assert_eq!(replays_after(&from_b, A), Some(Ssn(2)));
    assert!(transmit(&mut a, &message).flags().contains(Flags::REPLAYED));
    assert!(!send(&mut a, B).flags().contains(Flags::REPLAYED));
}

#[test]
fn a_record_of_the_execution_before_is_a_replay() {
    let message = send_many(&mut rank(A, 0), B, 2)[1];
    // The log has survived, and the replacement hasn't sent this message again.
    let mut a = rank(A, 1);
    assert_eq!(a.incarnation(), Incarnation(1));
    assert!(transmit(&mut a, &message).flags().contains(Flags::REPLAYED));
}

#[test]
fn a_replacement_that_has_all_acknowledged_messages_takes_none_back() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 2));
    receive_all(&mut a, &send_many(&mut b, A, 1));
    assert_eq!(acknowledged(&effects(&mut a)), [Ssn(2)]);
    let (tables, _) = durable_checkpoint(&mut b);
    let (from_a, _) = meet(&mut a, &mut restored(B, 1, &tables));
    assert!(!from_a.iter().any(|effect| matches!(effect, Effect::ReceiverRolledBack { .. })), "{from_a:?}");
}

#[test]
fn a_connection_that_breaks_loses_nothing() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 3));
    let lost = [send(&mut a, B), send(&mut b, A)];
    assert!(lost[1].ack().is_some());
    let (from_a, from_b) = meet(&mut a, &mut b);
    assert_eq!((replays_after(&from_a, B), replays_after(&from_b, A)), (Some(Ssn(3)), Some(Ssn::ZERO)));
    assert!(!from_a.iter().any(|effect| matches!(effect, Effect::ReceiverRolledBack { .. })));
    let again = transmit(&mut b, &lost[1]);
    assert_eq!(again.ack(), lost[1].ack(), "A had said which acknowledgements it knows");
    receive_all(&mut a, &[again]);
    assert_eq!(acknowledged(&effects(&mut a)), [Ssn(3)]);
}

#[test]
fn a_replacement_whose_durable_checkpoint_is_lost_is_told_that_it_cannot_be_recovered() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 2));
    let (_, done) = durable_checkpoint(&mut b);
    let (_, header, body) = &notices(&done)[0];
    a.handle_control(Party::Rank(B), header, body).unwrap();
    let hello = rank(B, 1).hello(A).unwrap();
    let refused = a.handle_hello(B, &hello);
    assert_eq!(refused, Err(ProtocolError::Unrecoverable { peer: B, needs: Ssn(1), collected: Ssn(2) }));
}

#[test]
fn a_hello_or_a_message_of_another_incarnation_is_refused() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let old = b.hello(A).unwrap();
    let mut replacement = rank(B, 1);
    let early = send(&mut replacement, A);
    let unknown = ProtocolError::UnknownIncarnation { peer: B, incarnation: Incarnation(1), known: Incarnation(0) };
    assert_eq!(a.handle_message(&early), Err(unknown));
    meet(&mut a, &mut replacement);
    let dead = ProtocolError::DeadHello { peer: B, incarnation: Incarnation(0), now: Incarnation(1) };
    assert_eq!(a.handle_hello(B, &old), Err(dead));
    let late = send(&mut b, A);
    assert!(matches!(a.handle_message(&late), Ok(Incoming::Discard(DiscardReason::DeadIncarnation { .. }))));
    receive_all(&mut a, &[early]);
}

#[test]
fn a_hello_that_contradicts_what_is_known_is_refused() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 2));
    let hello = b.hello(A).unwrap();
    let refused = |a: &mut SenderBased, hello: &Hello| match a.handle_hello(B, hello) {
        Err(ProtocolError::PeerMisbehaved { peer: B, how }) => how,
        other => panic!("{other:?}"),
    };
    let other_name = Hello { rank: Rank(2), ..hello.clone() };
    assert_eq!(refused(&mut a, &other_name), Misbehaviour::WrongRank { name: Rank(2) });
    let too_much = Misbehaviour::ReceivedMoreThanSent { claimed: Ssn(2), sent: Ssn::ZERO };
    assert_eq!(refused(&mut rank(A, 0), &hello), too_much);
    let covers = Hello { covered: (Epoch(2), Ssn(3)), ..hello.clone() };
    let (covered, received) = (Ssn(3), Ssn(2));
    assert_eq!(refused(&mut a, &covers), Misbehaviour::CoversMoreThanReceived { covered, received });
    assert_eq!(a.handle_hello(B, &hello), Ok(()));
}

#[test]
fn frames_for_others_and_of_strangers_are_refused() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let header = send(&mut a, B);
    let misdirected = ProtocolError::Misdirected { source_rank: A, destination: B, rank: Rank(2) };
    assert_eq!(rank(Rank(2), 0).handle_message(&header), Err(misdirected));
    assert!(matches!(b.handle_control(Party::Rank(A), &header, &[]), Err(ProtocolError::UnexpectedKind { .. })));
    assert_eq!(b.handle_control(Party::Coordinator, &header, &[]), Err(ProtocolError::NoCoordinator));
    let stranger = Rank(3);
    let envelope = Envelope { source: A, destination: stranger, ..Envelope::default() };
    let unknown = ProtocolError::UnknownRank { rank: stranger, ranks: 3 };
    assert_eq!(a.handle_send(&envelope).unwrap_err(), unknown);
    assert_eq!(a.hello(stranger).unwrap_err(), unknown);
    assert_eq!(a.handle_peer_lost(stranger), Err(unknown));
    let notice = WireHeader::control(A, B, header.origin(), 99, 0, None);
    let how = Misbehaviour::MalformedNotice { tag: 99, len: 0 };
    let malformed = ProtocolError::PeerMisbehaved { peer: A, how };
    assert_eq!(b.handle_control(Party::Rank(A), &notice, &[]), Err(malformed));
}

#[test]
fn a_rank_sends_only_messages_of_its_own() {
    let mut a = rank(A, 0);
    let of_b = Envelope { source: B, destination: A, ..Envelope::default() };
    let misdirected = ProtocolError::Misdirected { source_rank: B, destination: A, rank: A };
    assert_eq!(a.handle_send(&of_b).unwrap_err(), misdirected);
    let mut header = send(&mut rank(B, 0), A);
    assert_eq!(a.handle_transmit(&mut header), Err(misdirected));
    let ack = Ack { ssn: Ssn(1), epoch: Epoch::FIRST };
    let mut header = WireHeader::ack_only(A, B, header.origin(), ack);
    let unexpected = ProtocolError::UnexpectedKind { peer: A, kind: Kind::Ack };
    assert_eq!(a.handle_transmit(&mut header), Err(unexpected));
}

#[test]
fn a_control_frame_is_no_message_and_comes_from_its_source() {
    let mut b = rank(B, 0);
    let origin = send(&mut rank(A, 0), B).origin();
    let request = WireHeader::ack_request(A, B, origin, Ssn(1), None);
    let unexpected = ProtocolError::UnexpectedKind { peer: A, kind: Kind::AckRequest };
    assert_eq!(b.handle_message(&request), Err(unexpected));
    let misdirected = ProtocolError::Misdirected { source_rank: A, destination: B, rank: B };
    assert_eq!(b.handle_control(Party::Rank(Rank(2)), &request, &[]), Err(misdirected));
}

#[test]
fn a_hello_may_have_256_kib_and_no_byte_more() {
    let base = rank(B, 0).hello(A).unwrap();
    let with_opaque = |len: usize| Hello { opaque: vec![7; len], ..base.clone() };
    let half = Hello::BYTES_MAX / 2;
    let other_bytes = with_opaque(half).encode().unwrap().len() - half;
    let largest = with_opaque(Hello::BYTES_MAX - other_bytes);
    let bytes = largest.encode().unwrap();
    assert_eq!(bytes.len(), 256 << 10);
    assert_eq!(Hello::decode(&bytes), Ok(largest));
    let larger = with_opaque(Hello::BYTES_MAX - other_bytes + 1);
    assert_eq!(larger.encode(), Err(HelloError::TooLong { len: Hello::BYTES_MAX + 1 }));
}

#[test]
fn a_damaged_hello_is_refused_or_well_formed() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let messages = send_many(&mut a, B, 4);
    receive_all(&mut b, &[messages[0], messages[3]]);
    let hello = b.hello(A).unwrap();
    let bytes = hello.encode().unwrap();
    assert_eq!(Hello::decode(&bytes), Ok(hello));
    for cut in 0..bytes.len() {
        assert!(Hello::decode(&bytes[..cut]).is_err());
    }
    assert_eq!(Hello::decode(&[bytes.as_slice(), &[0]].concat()), Err(HelloError::Malformed));
    let long = vec![Hello::VERSION; Hello::BYTES_MAX + 1];
    assert_eq!(Hello::decode(&long), Err(HelloError::TooLong { len: long.len() }));
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            if let Ok(hello) = Hello::decode(&damaged) {
                let _ = a.handle_hello(B, &hello);
            }
        }
    }
}

//! Acknowledgements and duplicates.

use super::*;

#[test]
fn an_acknowledgement_of_a_dead_incarnation_does_not_count() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let messages = send_many(&mut a, B, 3);
    receive_all(&mut b, &messages);
    let under_way = send(&mut b, A);
    assert_eq!(under_way.ack().map(|ack| ack.ssn), Some(Ssn(3)));

    meet(&mut a, &mut rank(B, 1));
    let verdict = a.handle_message(&under_way).unwrap();
    assert!(matches!(verdict, Incoming::Discard(DiscardReason::DeadIncarnation { .. })));
    assert!(effects(&mut a).is_empty());
    let explicit = WireHeader::ack_only(B, A, under_way.origin(), under_way.ack().unwrap());
    a.handle_control(Party::Rank(B), &explicit, &[]).unwrap();
    assert!(effects(&mut a).is_empty());
}

#[test]
fn acknowledgements_are_taken_back_when_the_receiver_restarts_and_given_anew() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let messages = send_many(&mut a, B, 3);
    receive_all(&mut b, &messages);
    let reply = send(&mut b, A);
    receive_all(&mut a, &[reply]);
    assert_eq!(acknowledged(&effects(&mut a)), [Ssn(3)]);

    let mut b = rank(B, 1);
    let (from_a, _) = meet(&mut a, &mut b);
    assert!(matches!(from_a[0], Effect::ReceiverRolledBack { peer: B, to: Ssn::ZERO }), "{from_a:?}");
    let replayed: Vec<_> = messages[..2].iter().map(|header| transmit(&mut a, header)).collect();
    receive_all(&mut b, &replayed);
    assert!(matches!(a.handle_message(&send(&mut b, A)), Ok(Incoming::Discard(_))));
    assert_eq!(acknowledged(&effects(&mut a)), [Ssn(2)], "a duplicate's acknowledgement counts like any other");
}

#[test]
fn an_acknowledgement_of_what_a_replacement_has_yet_to_send_again_waits() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    receive_all(&mut b, &send_many(&mut a, B, 3));
    let origin = send(&mut b, A).origin();

    // The log of the dead process has survived: its records were transmitted before the execution came to them.
    let mut a = rank(A, 1);
    meet(&mut a, &mut b);
    for ssn in [2, 3, 2] {
        let early = WireHeader::ack_only(B, A, origin, Ack { ssn: Ssn(ssn), epoch: Epoch::FIRST });
        a.handle_control(Party::Rank(B), &early, &[]).unwrap();
    }
    let _ = send_many(&mut a, B, 2);
    assert_eq!(acknowledged(&effects(&mut a)), []);
    let _ = send(&mut a, B);
    assert_eq!(acknowledged(&effects(&mut a)), [Ssn(3)]);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_misbehaviour() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let origin = send(&mut b, A).origin();
    let wrong = WireHeader::ack_only(B, A, origin, Ack { ssn: Ssn(1), epoch: Epoch::FIRST });
    let refused = a.handle_control(Party::Rank(B), &wrong, &[]);
    let how = Misbehaviour::ReceivedMoreThanSent { claimed: Ssn(1), sent: Ssn::ZERO };
    assert_eq!(refused, Err(ProtocolError::PeerMisbehaved { peer: B, how }));
}

#[test]
fn a_duplicate_is_dropped_whatever_was_received_since() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let messages = send_many(&mut a, B, 3);
    receive_all(&mut b, &messages);
    durable_checkpoint(&mut b); // here Guermouche's phase would rise, and the table of this phase be empty
    for header in &messages {
        let receive_epoch = Epoch::FIRST;
        let verdict = b.handle_message(header).unwrap();
        assert_eq!(verdict, Incoming::Discard(DiscardReason::Duplicate { receive_epoch }));
    }
}

#[test]
fn a_duplicate_is_acknowledged_again_with_the_epoch_of_its_first_receipt() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let first = send(&mut a, B);
    receive_all(&mut b, &[first]);
    assert!(send(&mut b, A).ack().is_some());
    durable_checkpoint(&mut b);
    assert_eq!(send(&mut b, A).ack(), None, "nothing new");
    assert!(matches!(b.handle_message(&first), Ok(Incoming::Discard(_))));
    assert_eq!(send(&mut b, A).ack(), Some(Ack { ssn: Ssn(1), epoch: Epoch::FIRST }));
}

#[test]
fn a_request_in_a_frame_of_its_own_is_answered() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let messages = send_many(&mut a, B, 2);
    receive_all(&mut b, &messages);
    assert!(effects(&mut b).is_empty());
    let request = WireHeader::ack_request(A, B, messages[0].origin(), Ssn(2), None);
    b.handle_control(Party::Rank(A), &request, &[]).unwrap();
    let answers: Vec<_> = control_frames(&effects(&mut b)).iter().map(|(to, header, _)| (*to, header.ack())).collect();
    assert_eq!(answers, [(A, Some(Ack { ssn: Ssn(2), epoch: Epoch::FIRST }))]);
}

#[test]
fn too_much_unacknowledged_is_asked_about_once_and_answered() {
    let policy = AckPolicy { unacked_records_max: 2, ..AckPolicy::default() };
    let (mut a, mut b) = (with_policy(A, 0, policy), with_policy(B, 0, policy));
    let messages = send_many(&mut a, B, 4);
    let asks = messages.iter().map(|header| header.flags().contains(Flags::ACK_REQUESTED));
    assert_eq!(asks.collect::<Vec<_>>(), [false, false, true, false]);
    receive_all(&mut b, &messages);
    let answers = control_frames(&effects(&mut b));
    assert_eq!(answers.len(), 1);
    let (to, header, body) = &answers[0];
    assert_eq!((*to, header.kind(), body.len()), (A, Kind::Ack, 0));
    a.handle_control(Party::Rank(B), header, body).unwrap();
    assert_eq!(acknowledged(&effects(&mut a)), [Ssn(3)]);
}

use counterfoil_ack_piggyback::WireHeader;

use super::super::harness::{A, B, acknowledged, command, effects, envelope, meet, pair, rank, send};
use super::super::notice::{Command, Line, Sender};
use super::super::phases::PhaseOrder;
use super::super::{Config, SendDeterministic};
use super::*;
use crate::api::{DiscardReason, Incoming, Protocol};

/// Returns a replacement of rank A after a recovery, which has sent message 1 again out of two received by B; and B.
fn replacement() -> (SendDeterministic, SendDeterministic) {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    b.handle_hello(A, &a.hello(B).unwrap()).unwrap();
    for _ in 0..2 {
        let header = send(&mut a, A, B);
        let _ = b.handle_message(&header).unwrap();
    }
    let mut a = rank(A, 1);
    let first = a.start();
    a.restore(&first.tables, Epoch::FIRST).unwrap();
    a.handle_hello(B, &b.hello(A).unwrap()).unwrap();
    b.handle_hello(A, &a.hello(B).unwrap()).unwrap();
    command(&mut a, &Command::Block { round: 1 });
    let senders = vec![Sender { rank: B.0, base: 0 }];
    let line = Line { round: 1, for_incarnation: a.incarnation().0, senders, ..Line::default() };
    command(&mut a, &Command::Line(line));
    command(&mut a, &Command::Finished { round: 1, next_phase: 1, phases: PhaseOrder::default() });
    assert_eq!(acknowledged(&mut a), []);
    send(&mut a, A, B);
    // Not while it may still be on its way to the wire.
    assert_eq!(acknowledged(&mut a), []);
    (a, b)
}

/// A reported receipt of a message to be sent again is applied by the next event of any kind on the channel, and by a
/// checkpoint and a round.
#[test]
fn a_receipt_of_a_repeated_message_is_applied_by_the_next_event() {
    type Event = fn(&mut SendDeterministic, &mut SendDeterministic);
    let events: [(&str, Event); 6] = [
        ("send", |a, _| drop(a.handle_send(&envelope(A, B)))),
        ("transmission", |a, _| {
            let first = Stamp { ssn: Ssn::FIRST, flags: Flags::NONE };
            let mut header = WireHeader::message(&envelope(A, B), first, a.origin(), None);
            a.handle_transmit(&mut header).unwrap();
        }),
        ("message", |a, b| {
            let header = send(b, B, A);
            let _ = a.handle_message(&header).unwrap();
        }),
        ("notice", |a, b| {
            let header = WireHeader::ack_request(B, A, b.origin(), Ssn::ZERO, None);
            a.handle_control(B.into(), &header, &[]).unwrap();
        }),
        ("checkpoint", |a, _| drop(a.handle_checkpoint().unwrap())),
        ("round", |a, _| command(a, &Command::Block { round: 2 })),
    ];
    for (name, event) in events {
        let (mut a, mut b) = replacement();
        event(&mut a, &mut b);
        assert_eq!(acknowledged(&mut a), [1], "{name}");
    }
}

/// Until a repeated message is transmitted, its receiver must not acknowledge it: the record would be released.
#[test]
fn a_hello_counts_no_message_that_waits_to_be_transmitted_again() {
    let mut a = rank(A, 1);
    let first = a.start();
    a.restore(&first.tables, Epoch::FIRST).unwrap();
    let _ = a.handle_send(&envelope(A, B)).unwrap();
    let hello = a.hello(B).unwrap();
    assert_eq!((a.sent(B), hello.sent, hello.acked), (Ssn(1), Ssn::ZERO, Ssn::ZERO));
}

/// The sender is two epochs ahead, so the message isn't logged, whenever it is received.
#[test]
fn a_receipt_that_a_replacement_lacks_may_come_in_a_later_epoch() {
    let mut a = SendDeterministic::new(Config { first_epoch: Epoch(3), ..Config::new(A, 2) }).unwrap();
    let mut b = rank(B, 0);
    b.handle_hello(A, &a.hello(B).unwrap()).unwrap();
    a.handle_hello(B, &b.hello(A).unwrap()).unwrap();
    let header = send(&mut a, A, B);
    let _ = b.handle_message(&header).unwrap();
    let received = |a: &SendDeterministic| a.table().channels[0].epochs[0].received;
    a.handle_message(&send(&mut b, B, A)).map(drop).unwrap();
    assert_eq!(received(&a), Some(1));
    a.handle_hello(B, &rank(B, 1).hello(A).unwrap()).unwrap();
    assert_eq!(received(&a), Some(3));
}

/// A Hello reports all receipts, so they aren't acknowledged once more.
#[test]
fn receipts_in_a_hello_are_not_acknowledged_again() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    b.handle_hello(A, &a.hello(B).unwrap()).unwrap();
    let header = send(&mut a, A, B);
    let _ = b.handle_message(&header).unwrap();
    let hello = b.hello(A).unwrap();
    b.handle_hello(A, &a.hello(B).unwrap()).unwrap();
    a.handle_hello(B, &hello).unwrap();
    assert_eq!((send(&mut b, B, A).ack(), acknowledged(&mut a)), (None, vec![1]));
}

fn header(flags: Flags) -> WireHeader {
    WireHeader::message(&envelope(A, B), Stamp { ssn: Ssn::FIRST, flags }, rank(A, 0).origin(), None)
}

#[test]
fn a_record_that_went_out_as_logged_goes_out_as_logged_again() {
    let mut channel = Channel::new(B, AckPolicy::default(), Epoch::FIRST, false);
    let flags = Flags::LOGGED | Flags::ACK_REQUESTED;
    assert_eq!(channel.refresh(&header(flags), Incarnation(0)).flags(), flags);
}

/// Returns a channel with two transmitted messages, in epoch 1.
fn two_sent() -> Channel {
    let mut channel = Channel::new(B, AckPolicy::default(), Epoch::FIRST, false);
    for ssn in 1..=2 {
        channel.stamp(8, Epoch::FIRST, Phase(1)).unwrap();
        let stamp = Stamp { ssn: Ssn(ssn), flags: Flags::NONE };
        let header = WireHeader::message(&envelope(A, B), stamp, rank(A, 0).origin(), None);
        channel.refresh(&header, Incarnation(0));
    }
    channel
}

fn ack(ssn: u64) -> Ack {
    Ack { ssn: Ssn(ssn), epoch: Epoch::FIRST }
}

#[test]
fn receipts_wait_while_the_table_is_at_the_recovery_process() {
    let mut channel = two_sent();
    channel.freeze_receipts();
    // The second belongs to a held message presented again.
    for ssn in [1, 1, 2, 1] {
        assert_eq!(channel.acknowledge(ack(ssn)).unwrap(), []);
    }
    assert_eq!(channel.pending.iter().map(|receipt| receipt.last.0).collect::<Vec<_>>(), [1, 2]);
    channel.set_line(None);
    let applied: Vec<_> = channel.apply_pending().iter().map(|run| run.ack.ssn.0).collect();
    assert_eq!(applied, [1, 2]);
    assert!(channel.pending.is_empty() && channel.apply_pending().is_empty());
}

#[test]
fn receipts_of_a_peer_that_is_to_roll_back_are_not_applied() {
    let mut channel = two_sent();
    channel.set_line(Some((Incarnation(1), Ssn::ZERO)));
    assert_eq!(channel.acknowledge(ack(1)).unwrap(), []);
    channel.set_line(Some((Incarnation(0), Ssn::ZERO)));
    assert_eq!(channel.apply_pending().len(), 1);
}

#[test]
fn tables_of_a_channel_that_contradict_each_other_are_refused() {
    let (mut a, mut b) = pair();
    for _ in 0..3 {
        let _ = b.handle_message(&send(&mut a, A, B)).unwrap();
        let _ = a.handle_message(&send(&mut b, B, A)).unwrap();
    }
    let channel = a.channel(B).unwrap();
    (channel.covered, channel.collected) = (Ssn(2), Ssn(1));
    let good = channel.snapshot();
    assert_eq!(Channel::restore(&good, AckPolicy::default()).unwrap().snapshot(), good);
    let mut bad = [good.clone(), good.clone(), good.clone(), good.clone()];
    bad[0].sent.record(Ssn(4), Epoch(1), Phase(9), false);
    bad[1].receipts.record(Epoch(1), Phase(9), false);
    bad[2].covered = 4;
    bad[3].collected = 4;
    let refused = RestoreError::Contradiction { what: "the runs of a channel" };
    for table in bad {
        assert_eq!(Channel::restore(&table, AckPolicy::default()).map(drop), Err(refused.clone()), "{table:?}");
    }
}

/// While orphans may be missing, a Hello leaves out messages to be transmitted again; and none after that.
#[test]
fn a_hello_after_a_recovery_has_all_messages() {
    let (mut a, b) = replacement();
    assert_eq!(a.hello(B).unwrap().sent, Ssn(1));
    // Of the two received by B, one isn't sent again, and none is awaited any more.
    let how = Misbehaviour::ReceivedMoreThanSent { claimed: Ssn(2), sent: Ssn(1) };
    assert_eq!(a.handle_hello(B, &b.hello(A).unwrap()), Err(ProtocolError::PeerMisbehaved { peer: B, how }));
}

/// Returns A with a recovery line in which B has incarnation 1, and a message from B being undone.
fn peer_in_line() -> (SendDeterministic, WireHeader) {
    let (mut a, mut b) = pair();
    let undone = send(&mut b, B, A);
    command(&mut a, &Command::Block { round: 1 });
    let senders = vec![Sender { rank: B.0, base: 0 }];
    command(&mut a, &Command::Line(Line { round: 1, senders, living: vec![(B.0, 1)], ..Line::default() }));
    effects(&mut a);
    (a, undone)
}

#[test]
fn messages_of_an_execution_that_is_undone_are_held_and_then_discarded() {
    let (mut a, undone) = peer_in_line();
    assert_eq!(a.handle_message(&undone).unwrap(), Incoming::Hold);
    command(&mut a, &Command::Finished { round: 1, next_phase: 1, phases: PhaseOrder::default() });
    let reason = DiscardReason::DeadIncarnation { sent_by: Incarnation(0), now: Incarnation(1) };
    assert_eq!(a.handle_message(&undone).unwrap(), Incoming::Discard(reason));
    let mut b = rank(B, 1);
    meet(&mut a, &mut b);
    assert_eq!(a.handle_message(&send(&mut b, B, A)).unwrap(), Incoming::Deliver { keep: None });
}

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Envelope, Incarnation, Rank};

use super::super::notice::{self, Command, Line};
use super::super::phases::PhaseOrder;
use super::super::{Config, SendDeterministic};
use super::*;
use crate::api::{Effect, Party, Protocol, command_header};

const A: Rank = Rank(0);
const B: Rank = Rank(1);

fn rank(rank: Rank, incarnation: u32) -> SendDeterministic {
    SendDeterministic::new(Config { incarnation: Incarnation(incarnation), ..Config::new(rank, 2) }).unwrap()
}

fn envelope(source: Rank, destination: Rank) -> Envelope {
    Envelope { source, destination, tag: 0, comm: 0, len: 8 }
}

fn send(rank: &mut SendDeterministic, source: Rank, destination: Rank) -> WireHeader {
    let mut header = rank.handle_send(&envelope(source, destination)).unwrap().header;
    rank.handle_transmit(&mut header).unwrap();
    header
}

fn command(rank: &mut SendDeterministic, command: &Command) {
    let body = notice::encode(command);
    rank.handle_control(Party::Coordinator, &command_header(A, &body), &body).unwrap();
}

/// Returns the last message of each effect `Acknowledged`.
fn acknowledged(rank: &mut SendDeterministic) -> Vec<u64> {
    let effects = std::iter::from_fn(|| rank.poll_effect());
    effects
        .filter_map(|effect| if let Effect::Acknowledged { ack, .. } = effect { Some(ack.ssn.0) } else { None })
        .collect()
}

/// Returns a replacement of rank A, after a recovery, that has sent message 1 again, of two that B has received; and B.
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
    let senders = vec![Sender { rank: B.0, incarnation: 0, base: 0 }];
    let line = Line { round: 1, for_incarnation: a.incarnation().0, senders, ..Line::default() };
    command(&mut a, &Command::Line(line));
    command(&mut a, &Command::Finished { round: 1, next_phase: 1, phases: PhaseOrder::default() });
    assert_eq!(acknowledged(&mut a), []);
    send(&mut a, A, B);
    // Not while it may still be on its way to the wire.
    assert_eq!(acknowledged(&mut a), []);
    (a, b)
}

/// A reported receipt of a message that had to be sent again is applied by the next event on the channel, whatever it is,
/// and by a checkpoint and a round.
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

//! Guermouche 2011, Figure 5 and section V.A: acknowledgements for P1's small messages to P2.

use counterfoil_ack_piggyback::{Ack, AckPolicy, Acked, Flags, Origin, RecvWindow, SendWindow, Verdict, WireHeader};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Phase, Rank, Ssn};

const P1: Rank = Rank(1);
const P2: Rank = Rank(2);

/// A process, with its two windows towards the other one.
struct Process {
    rank: Rank,
    epoch: Epoch,
    send: SendWindow,
    recv: RecvWindow,
}

impl Process {
    fn new(rank: Rank) -> Self {
        let policy = AckPolicy::default();
        Process { rank, epoch: Epoch::FIRST, send: SendWindow::new(policy), recv: RecvWindow::new(policy) }
    }

    fn send(&mut self, to: &Process, len: usize) -> WireHeader {
        let envelope = Envelope { source: self.rank, destination: to.rank, tag: 0, comm: 0, len: len as u64 };
        let origin = Origin { incarnation: Incarnation(0), epoch: self.epoch, phase: Phase(0) };
        WireHeader::message(&envelope, self.send.stamp(len).unwrap(), origin, self.recv.piggyback())
    }

    /// Handles a message; returns the effect of its ack.
    fn receive(&mut self, header: &WireHeader) -> Option<Acked> {
        let acked = header.ack().map(|ack| self.send.handle_ack(ack).unwrap());
        assert_eq!(self.recv.handle_message(header.arrival()), Ok(Verdict::Fresh));
        acked
    }

    fn checkpoint(&mut self) {
        self.epoch = self.epoch.next().unwrap();
        self.send.begin_epoch(self.epoch).unwrap();
        self.recv.begin_epoch(self.epoch).unwrap();
    }
}

#[test]
fn figure_5_one_explicit_ack_per_epoch_and_channel_and_the_rest_piggybacked() {
    let (mut p1, mut p2) = (Process::new(P1), Process::new(P2));

    let m1 = p1.send(&p2, 8);
    let m2 = p1.send(&p2, 8);
    p2.receive(&m1);
    p2.receive(&m2);
    assert_eq!(p2.recv.poll_ack(), None, "small messages get no ack of their own");

    let m3 = p2.send(&p1, 8);
    assert_eq!(m3.ack(), Some(Ack { ssn: Ssn(2), epoch: Epoch(1) }), "P2 piggybacks ssn = 2 on m3");
    let released = Acked::Run { first: Ssn(1), last: Ssn(2), epoch: Epoch(1) };
    assert_eq!(p1.receive(&m3), Some(released), "P1 can delete m1 and m2");
    assert!(!p1.send.already_logged());

    p2.checkpoint();
    let m4 = p1.send(&p2, 8);
    assert!(!m4.flags().contains(Flags::LOGGED), "P1 can't know of P2's checkpoint yet");
    p2.receive(&m4);
    let ack = p2.recv.poll_ack().expect("the first message that has to be logged is acknowledged");
    assert_eq!(ack, Ack { ssn: Ssn(3), epoch: Epoch(2) });
    assert_eq!(p2.recv.poll_ack(), None);
    let logged = Acked::Run { first: Ssn(3), last: Ssn(3), epoch: Epoch(2) };
    assert_eq!(p1.send.handle_ack(ack), Ok(logged));

    let m5 = p1.send(&p2, 8);
    assert!(m5.flags().contains(Flags::LOGGED), "m5 is marked as already logged");
    let large = p1.send(&p2, 1 << 20);
    assert!(large.flags().contains(Flags::LOGGED | Flags::LARGE));
    p2.receive(&m5);
    p2.receive(&large);
    assert_eq!(p2.recv.poll_ack(), None, "marked messages need no ack, not even large ones");

    // Not in the paper: the next ack carries the receive epochs of m5 and of the large message.
    let m6 = p2.send(&p1, 8);
    let learned = Acked::Run { first: Ssn(4), last: Ssn(5), epoch: Epoch(2) };
    assert_eq!(p1.receive(&m6), Some(learned));

    p1.checkpoint();
    let m7 = p1.send(&p2, 8);
    assert!(!m7.flags().contains(Flags::LOGGED), "the mark holds until the epoch of P1 changes");
    p2.receive(&m7);
    assert_eq!(p2.recv.poll_ack(), None, "sent and received in epoch 2: not to be logged");
}

#[test]
fn messages_sent_before_the_first_ack_arrives_need_no_explicit_ack_either() {
    let (mut p1, mut p2) = (Process::new(P1), Process::new(P2));
    p2.checkpoint();
    let m1 = p1.send(&p2, 8);
    let m2 = p1.send(&p2, 8);
    p2.receive(&m1);
    assert_eq!(p2.recv.poll_ack(), Some(Ack { ssn: Ssn(1), epoch: Epoch(2) }));
    p2.receive(&m2);
    assert_eq!(p2.recv.poll_ack(), None, "one for each epoch and channel");
}

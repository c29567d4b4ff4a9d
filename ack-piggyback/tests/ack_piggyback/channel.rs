//! Channel model test: either end may checkpoint, die and be replaced at any moment.
//!
//! The link loses nothing while both ends live, and loses everything in flight when one is replaced. For any order of
//! events, nothing is delivered twice or skipped, and the sender attributes to each message the epoch in which it was
//! received.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_ack_piggyback::{
    Ack, AckPolicy, Acked, Arrival, Flags, RecvWindow, RecvWindowState, SendWindow, SendWindowState, Verdict,
};
use counterfoil_log_core::{Epoch, Incarnation, Ssn};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Send {
        len: usize,
    },
    /// The receiver takes one of the first messages of each tag.
    Take {
        which: usize,
    },
    Piggyback,
    ExplicitAcks,
    AckArrives,
    AckRequest,
    SenderCheckpoints,
    ReceiverCheckpoints,
    SenderDies,
    ReceiverDies,
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0usize..2000).prop_map(|len| Event::Send { len }),
        8 => (0usize..4).prop_map(|which| Event::Take { which }),
        3 => Just(Event::Piggyback),
        3 => Just(Event::ExplicitAcks),
        4 => Just(Event::AckArrives),
        1 => Just(Event::AckRequest),
        1 => Just(Event::SenderCheckpoints),
        2 => Just(Event::ReceiverCheckpoints),
        1 => Just(Event::SenderDies),
        1 => Just(Event::ReceiverDies),
    ]
}

/// Sending end of the channel.
#[derive(Clone)]
struct Sender {
    window: SendWindow,
    incarnation: Incarnation,
    /// The sender's epoch for each message, from SSN 1.
    sent_in: Vec<Epoch>,
    /// Receive epochs known from acks.
    learned: BTreeMap<u64, Epoch>,
    /// Receiver incarnation that sent these acks.
    learned_from: Incarnation,
}

struct Receiver {
    window: RecvWindow,
    incarnation: Incarnation,
    /// Actual receive epochs.
    received_in: BTreeMap<u64, Epoch>,
}

struct Channel {
    policy: AckPolicy,
    tags: u64,
    sender: Sender,
    receiver: Receiver,
    sender_checkpoint: (SendWindowState, Sender),
    receiver_checkpoint: (RecvWindowState, BTreeMap<u64, Epoch>),
    messages: Vec<Arrival>,
    acks: VecDeque<Ack>,
}

impl Channel {
    fn new(tags: u64) -> Self {
        let policy = AckPolicy { unacked_records_max: 8, ..AckPolicy::default() };
        let sender = Sender {
            window: SendWindow::new(policy),
            incarnation: Incarnation(0),
            sent_in: Vec::new(),
            learned: BTreeMap::new(),
            learned_from: Incarnation(0),
        };
        let window = RecvWindow::new(policy);
        Channel {
            policy,
            tags,
            sender_checkpoint: (sender.window.snapshot(), sender.clone()),
            receiver_checkpoint: (window.snapshot(), BTreeMap::new()),
            sender,
            receiver: Receiver { window, incarnation: Incarnation(0), received_in: BTreeMap::new() },
            messages: Vec::new(),
            acks: VecDeque::new(),
        }
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Send { len } => self.send(len),
            Event::Take { which } => self.take(which),
            Event::Piggyback => self.acks.extend(self.receiver.window.piggyback()),
            Event::ExplicitAcks => {
                while let Some(ack) = self.receiver.window.poll_ack() {
                    self.acks.push_back(ack);
                }
            }
            Event::AckArrives => self.ack_arrives(),
            Event::AckRequest if self.messages.is_empty() => {
                self.receiver.window.handle_ack_request(self.sender.window.sent());
            }
            Event::AckRequest => {}
            Event::SenderCheckpoints => {
                let epoch = self.sender.window.epoch().next().unwrap();
                self.sender.window.begin_epoch(epoch).unwrap();
                self.sender_checkpoint = (self.sender.window.snapshot(), self.sender.clone());
            }
            Event::ReceiverCheckpoints => {
                let epoch = self.receiver.window.epoch().next().unwrap();
                self.receiver.window.begin_epoch(epoch).unwrap();
                self.receiver_checkpoint = (through_postcard(&self.receiver), self.receiver.received_in.clone());
            }
            Event::SenderDies => self.sender_dies(),
            Event::ReceiverDies => self.receiver_dies(),
        }
    }

    fn send(&mut self, len: usize) {
        let stamp = self.sender.window.stamp(len).unwrap();
        assert_eq!(stamp.ssn.0 as usize, self.sender.sent_in.len() + 1);
        self.sender.sent_in.push(self.sender.window.epoch());
        self.transmit(stamp.ssn, stamp.flags);
    }

    fn transmit(&mut self, ssn: Ssn, flags: Flags) {
        let epoch = self.sender.sent_in[ssn.0 as usize - 1];
        self.messages.push(Arrival { ssn, incarnation: self.sender.incarnation, epoch, flags });
    }

    fn take(&mut self, which: usize) {
        // MPI keeps the order only among messages with one tag.
        let tag_of = |arrival: &Arrival| arrival.ssn.0 % self.tags;
        let takeable: Vec<usize> = (0..self.messages.len())
            .filter(|&at| self.messages[..at].iter().all(|other| tag_of(other) != tag_of(&self.messages[at])))
            .collect();
        if takeable.is_empty() {
            return;
        }
        let arrival = self.messages.remove(takeable[which % takeable.len()]);
        let own = self.receiver.window.epoch();
        let verdict = self.receiver.window.handle_message(arrival).unwrap();
        match self.receiver.received_in.get(&arrival.ssn.0) {
            Some(&receive_epoch) => assert_eq!(verdict, Verdict::Duplicate { receive_epoch }),
            None => {
                assert_eq!(verdict, Verdict::Fresh);
                let marked = arrival.flags.contains(Flags::LOGGED);
                assert!(!marked || arrival.epoch < own, "marked as logged, but {} to {own}", arrival.epoch);
                self.receiver.received_in.insert(arrival.ssn.0, own);
            }
        }
        let next = (1..).find(|ssn| !self.receiver.received_in.contains_key(ssn)).unwrap_or(1);
        assert_eq!(self.receiver.window.hsr().upto(), Ssn(next - 1));
    }

    fn ack_arrives(&mut self) {
        let Some(ack) = self.acks.pop_front() else { return };
        if let Acked::Run { first, last, epoch } = self.sender.window.handle_ack(ack).unwrap() {
            for ssn in first.0..=last.0 {
                assert_eq!(self.receiver.received_in.get(&ssn), Some(&epoch), "SSN {ssn} of {ack:?}");
                self.sender.learned.insert(ssn, epoch);
            }
        }
    }

    /// The receiver's replacement presents itself with its restored HSR, and gets what it lacks.
    fn receiver_dies(&mut self) {
        self.messages.clear();
        self.acks.clear();
        let (state, received_in) = &self.receiver_checkpoint;
        self.receiver.window = RecvWindow::restore(self.policy, state).unwrap();
        self.receiver.received_in = received_in.clone();
        self.receiver.incarnation = self.receiver.incarnation.next();
        let (incarnation, sent) = (self.sender.incarnation, self.sender.window.sent());
        self.receiver.window.set_incarnation(incarnation, sent).unwrap();
        let upto = self.receiver.window.hsr().upto();
        self.sender.learned_from = self.receiver.incarnation;
        self.receiver_rolled_back(upto);
        for ssn in upto.0 + 1..=sent.0 {
            self.transmit(Ssn(ssn), Flags::REPLAYED);
        }
    }

    /// Replaces the sender: the replacement announces its restored SSN, replays the messages missing at the receiver,
    /// and re-executes the rest.
    fn sender_dies(&mut self) {
        self.messages.clear();
        self.acks.clear();
        let incarnation = self.sender.incarnation.next();
        let (state, restored) = &self.sender_checkpoint;
        self.sender =
            Sender { window: SendWindow::restore(self.policy, state).unwrap(), incarnation, ..restored.clone() };
        let sent = self.sender.window.sent();
        self.receiver.window.set_incarnation(incarnation, sent).unwrap();
        if self.sender.learned_from != self.receiver.incarnation {
            // The receive epochs in the checkpoint are outdated: the receiver has rolled back since.
            self.sender.learned_from = self.receiver.incarnation;
            self.receiver_rolled_back(Ssn::ZERO);
        }
        for ssn in self.receiver.window.hsr().upto().0 + 1..=sent.0 {
            self.transmit(Ssn(ssn), Flags::REPLAYED);
        }
    }

    fn receiver_rolled_back(&mut self, to: Ssn) {
        self.sender.window.receiver_rolled_back(to);
        self.sender.learned.split_off(&(to.0 + 1));
        assert!(!self.sender.window.already_logged());
    }

    /// Delivers everything in flight, then requests acks for the rest.
    fn settle(&mut self) {
        while !self.messages.is_empty() {
            self.take(0);
        }
        self.apply(&Event::AckRequest);
        self.apply(&Event::ExplicitAcks);
        while !self.acks.is_empty() {
            self.ack_arrives();
        }
    }
}

fn through_postcard(receiver: &Receiver) -> RecvWindowState {
    let bytes = postcard::to_stdvec(&receiver.window.snapshot()).unwrap();
    postcard::from_bytes(&bytes).unwrap()
}

fn run(tags: u64, events: &[Event]) {
    let mut channel = Channel::new(tags);
    for event in events {
        channel.apply(event);
    }
    channel.settle();
    let sent = channel.sender.window.sent();
    assert_eq!(channel.sender.window.acked(), sent, "everything is acknowledged in the end");
    assert_eq!((channel.sender.window.unacked_records(), channel.sender.window.unacked_bytes()), (0, 0));
    for ssn in 1..=sent.0 {
        let truth = channel.receiver.received_in.get(&ssn);
        assert_eq!(channel.sender.learned.get(&ssn), truth, "the receive epoch of SSN {ssn}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn in_order_every_receive_epoch_is_known_exactly(events in proptest::collection::vec(events(), 0..120)) {
        run(1, &events);
    }

    #[test]
    fn out_of_order_by_tag_every_receive_epoch_is_known_exactly(
        tags in 2u64..5, events in proptest::collection::vec(events(), 0..120)
    ) {
        run(tags, &events);
    }
}

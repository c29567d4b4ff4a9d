//! FIFO connections between nodes, and what a dead process leaves under way on them.

use std::collections::VecDeque;

use counterfoil::Incarnation;
use counterfoil::ack::WireHeader;

use super::application::Payload;
use crate::random::Random;

/// A message with its header: as it is logged, and as it travels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) header: WireHeader,
    pub(super) payload: Payload,
    /// The event in which it went on the wire; 0 in a log.
    pub(super) transmitted: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Frame {
    /// The first on each connection.
    Hello(Vec<u8>),
    Message(Record),
    Control(Vec<u8>),
}

/// What is under way from one node to another.
#[derive(Debug, Default)]
struct Pair {
    /// Both live and are connected.
    up: bool,
    frames: VecDeque<Frame>,
    /// What dead incarnations of the sender have left under way. No order holds between these frames and those of the
    /// living one.
    late: VecDeque<(Incarnation, Frame)>,
}

/// All connections.
#[derive(Debug)]
pub(super) struct Network {
    nodes: u32,
    pairs: Vec<Pair>,
    /// For each node, the senders whose frames can arrive.
    arriving: Vec<u64>,
    /// For each node, the senders of which late frames can arrive.
    late: Vec<u64>,
}

/// How many messages were under way when a node died.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlight {
    pub(super) lost: u64,
    pub(super) kept: u64,
}

impl Network {
    pub(super) fn new(nodes: u32) -> Network {
        let count = nodes as usize;
        Network {
            nodes,
            pairs: (0..count * count).map(|_| Pair::default()).collect(),
            arriving: vec![0; count],
            late: vec![0; count],
        }
    }

    fn pair(&mut self, from: u32, to: u32) -> &mut Pair {
        &mut self.pairs[(from * self.nodes + to) as usize]
    }

    /// Makes the connection from one living node to another, with what is said first on it.
    pub(super) fn connect(&mut self, from: u32, to: u32, hello: Vec<u8>) {
        let pair = self.pair(from, to);
        pair.up = true;
        pair.frames.push_back(Frame::Hello(hello));
        self.arriving[to as usize] |= 1 << from;
    }

    /// Sends, if there is a connection; otherwise the frame is lost.
    pub(super) fn send(&mut self, from: u32, to: u32, frame: Frame) {
        let pair = self.pair(from, to);
        if pair.up {
            pair.frames.push_back(frame);
            self.arriving[to as usize] |= 1 << from;
        }
    }

    /// From whom frames can arrive at a node, a bit each: from the living, from the dead.
    pub(super) fn arriving(&self, to: u32) -> (u64, u64) {
        (self.arriving[to as usize], self.late[to as usize])
    }

    pub(super) fn arrive(&mut self, from: u32, to: u32) -> Option<Frame> {
        let pair = self.pair(from, to);
        let frame = pair.frames.pop_front();
        if pair.frames.is_empty() {
            self.arriving[to as usize] &= !(1 << from);
        }
        frame
    }

    pub(super) fn arrive_late(&mut self, from: u32, to: u32) -> Option<(Incarnation, Frame)> {
        let pair = self.pair(from, to);
        let frame = pair.late.pop_front();
        if pair.late.is_empty() {
            self.late[to as usize] &= !(1 << from);
        }
        frame
    }

    /// All older connections are closed.
    pub(super) fn close_older(&mut self, from: u32, to: u32) {
        self.pair(from, to).late.clear();
        self.late[to as usize] &= !(1 << from);
    }

    /// The connection on which a late frame came is closed: nothing more of that incarnation arrives.
    pub(super) fn close_late(&mut self, from: u32, to: u32, incarnation: Incarnation) {
        let pair = self.pair(from, to);
        pair.late.retain(|(sent_by, _)| *sent_by != incarnation);
        if pair.late.is_empty() {
            self.late[to as usize] &= !(1 << from);
        }
    }

    /// A node dies. All that is under way to it is lost; of what it has sent on each connection, so many frames arrive,
    /// late, and the rest is lost too.
    pub(super) fn fail(&mut self, node: u32, incarnation: Incarnation, random: &mut Random) -> InFlight {
        let mut in_flight = InFlight::default();
        for peer in (0..self.nodes).filter(|&peer| peer != node) {
            let cut = self.cut(node, peer, incarnation, random);
            in_flight.lost += cut.lost;
            in_flight.kept += cut.kept;
        }
        in_flight
    }

    /// The same on one connection: `node` lives on, and is another incarnation.
    pub(super) fn cut(&mut self, node: u32, peer: u32, incarnation: Incarnation, random: &mut Random) -> InFlight {
        let mut in_flight = InFlight::default();
        let to_it = self.pair(peer, node);
        to_it.up = false;
        in_flight.lost += messages(to_it.frames.iter());
        to_it.frames.clear();
        to_it.late.clear();

        let from_it = self.pair(node, peer);
        from_it.up = false;
        let arrives = if random.one_in(3) { 0 } else { random.index(from_it.frames.len() + 1) };
        in_flight.kept += messages(from_it.frames.iter().take(arrives));
        in_flight.lost += messages(from_it.frames.iter().skip(arrives));
        let frames = from_it.frames.drain(..).take(arrives);
        from_it.late.extend(frames.map(|frame| (incarnation, frame)));
        let is_late = !from_it.late.is_empty();
        self.arriving[peer as usize] &= !(1 << node);
        self.late[peer as usize] |= u64::from(is_late) << node;
        self.arriving[node as usize] &= !(1 << peer);
        self.late[node as usize] &= !(1 << peer);
        in_flight
    }
}

fn messages<'a>(frames: impl Iterator<Item = &'a Frame>) -> u64 {
    frames.filter(|frame| matches!(frame, Frame::Message(_))).count() as u64
}

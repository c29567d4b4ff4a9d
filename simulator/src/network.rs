//! FIFO connections between nodes, and frames left under way on them by dead processes.

use std::collections::VecDeque;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::Incarnation;
use counterfoil_protocols::api::EntryKey;

use super::application::Payload;
use crate::random::Random;

/// Message with its header, in a lane or on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) header: WireHeader,
    pub(crate) payload: Payload,
    /// Transmission event; 0 in a log.
    pub(crate) transmitted: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Frame {
    /// First frame on each connection.
    Hello(Vec<u8>),
    Message(Record),
    Control(Vec<u8>),
    /// Copy of an entry in the sender's local log.
    Entry(EntryKey, Vec<u8>),
}

/// Frames under way from one node to another.
#[derive(Debug, Default)]
struct Link {
    /// Both ends live and are connected.
    up: bool,
    frames: VecDeque<Frame>,
    /// Frames left under way by dead incarnations of the sender, unordered relative to the living one's.
    late: VecDeque<(Incarnation, Frame)>,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Network {
    nodes: u32,
    pairs: Vec<Link>,
    /// For each node, the senders with frames able to arrive.
    arriving: Vec<u64>,
    /// For each node, the senders with late frames able to arrive.
    late: Vec<u64>,
}

/// Number of messages under way at a node's death.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) lost: u64,
    pub(crate) kept: u64,
}

impl Network {
    pub(crate) fn new(nodes: u32) -> Network {
        let count = nodes as usize;
        Network {
            nodes,
            pairs: (0..count * count).map(|_| Link::default()).collect(),
            arriving: vec![0; count],
            late: vec![0; count],
        }
    }

    fn link(&mut self, from: u32, to: u32) -> &mut Link {
        &mut self.pairs[(from * self.nodes + to) as usize]
    }

    /// Connects one living node to another, with its first frame.
    pub(crate) fn connect(&mut self, from: u32, to: u32, hello: Vec<u8>) {
        let link = self.link(from, to);
        link.up = true;
        link.frames.push_back(Frame::Hello(hello));
        self.arriving[to as usize] |= 1 << from;
    }

    /// Sends a frame; without a connection it is lost.
    pub(crate) fn send(&mut self, from: u32, to: u32, frame: Frame) {
        let link = self.link(from, to);
        if link.up {
            link.frames.push_back(frame);
            self.arriving[to as usize] |= 1 << from;
        }
    }

    /// Returns the senders with frames able to arrive at a node, a bit each: living ones, dead ones.
    pub(crate) fn arriving(&self, to: u32) -> (u64, u64) {
        (self.arriving[to as usize], self.late[to as usize])
    }

    /// Returns the places of the messages under way preceded only by messages with other tags.
    pub(crate) fn able_to_overtake(&mut self, from: u32, to: u32) -> Vec<usize> {
        let tag = |frame: &Frame| match frame {
            Frame::Message(record) => Some(record.header.tag()),
            _ => None,
        };
        let tags: Vec<i32> = self.link(from, to).frames.iter().map_while(tag).collect();
        (0..tags.len()).filter(|&place| !tags[..place].contains(&tags[place])).collect()
    }

    /// Returns the frame at a place, 0 for the next one.
    pub(crate) fn arrive(&mut self, from: u32, to: u32, place: usize) -> Option<Frame> {
        let link = self.link(from, to);
        let frame = link.frames.remove(place);
        if link.frames.is_empty() {
            self.arriving[to as usize] &= !(1 << from);
        }
        frame
    }

    pub(crate) fn arrive_late(&mut self, from: u32, to: u32) -> Option<(Incarnation, Frame)> {
        let link = self.link(from, to);
        let frame = link.late.pop_front();
        if link.late.is_empty() {
            self.late[to as usize] &= !(1 << from);
        }
        frame
    }

    /// Closes all older connections.
    pub(crate) fn close_older(&mut self, from: u32, to: u32) {
        self.link(from, to).late.clear();
        self.late[to as usize] &= !(1 << from);
    }

    /// Closes a late frame's connection: nothing more arrives from that incarnation.
    pub(crate) fn close_late(&mut self, from: u32, to: u32, incarnation: Incarnation) {
        let link = self.link(from, to);
        link.late.retain(|(sent_by, _)| *sent_by != incarnation);
        if link.late.is_empty() {
            self.late[to as usize] &= !(1 << from);
        }
    }

    /// Kills a node.
    ///
    /// Frames to it are lost; on each connection, a random number of its sent frames arrives late, and the rest is lost
    /// too.
    pub(crate) fn fail(&mut self, node: u32, incarnation: Incarnation, random: &mut Random) -> InFlight {
        let mut in_flight = InFlight::default();
        for peer in (0..self.nodes).filter(|&peer| peer != node) {
            let cut = self.cut(node, peer, incarnation, random);
            in_flight.lost += cut.lost;
            in_flight.kept += cut.kept;
        }
        in_flight
    }

    /// Breaks the connection between two living nodes: all frames on it are lost, late ones too.
    ///
    /// Returns the number of lost messages.
    pub(crate) fn reset(&mut self, a: u32, b: u32) -> u64 {
        let mut lost = 0;
        for (from, to) in [(a, b), (b, a)] {
            let link = self.link(from, to);
            link.up = false;
            lost += messages(link.frames.drain(..).collect::<Vec<_>>().iter());
            link.late.clear();
            self.arriving[to as usize] &= !(1 << from);
            self.late[to as usize] &= !(1 << from);
        }
        lost
    }

    /// Kills `node` on one connection only: it lives on with a new incarnation.
    pub(crate) fn cut(&mut self, node: u32, peer: u32, incarnation: Incarnation, random: &mut Random) -> InFlight {
        let mut in_flight = InFlight::default();
        let to_it = self.link(peer, node);
        to_it.up = false;
        in_flight.lost += messages(to_it.frames.iter());
        to_it.frames.clear();
        to_it.late.clear();

        let from_it = self.link(node, peer);
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

//! One process at a rank: the protocol driver.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_ack_piggyback::{AckPolicy, Kind, WireHeader};
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{
    Effect, Hello, Incoming, Party, Protocol, ProtocolError, Transmission, command_header,
};
use counterfoil_protocols::send_deterministic::{Config, SendDeterministic};

use super::program::{Image, Op};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Message with its payload.
pub(crate) type Record = (WireHeader, u64);

#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Hello(Vec<u8>),
    Wire(WireHeader, u64, Vec<u8>),
}

/// One destination's part in the sender log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) records: BTreeMap<u64, Record>,
    acked: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    epoch: Epoch,
    tables: Vec<u8>,
    image: Image,
    lanes: Vec<Lane>,
    unexpected: VecDeque<Record>,
}

/// Rank state surviving its process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) checkpoints: BTreeMap<Epoch, Checkpoint>,
    pub(crate) incarnation: Incarnation,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) rank: usize,
    pub(crate) protocol: SendDeterministic,
    pub(crate) image: Image,
    pub(crate) lanes: Vec<Lane>,
    /// Last SSN transmitted to each peer; `None` before its Hello.
    pub(crate) cursors: Vec<Option<u64>>,
    /// Arrived and not accepted by the protocol, by peer.
    arrived: Vec<VecDeque<Record>>,
    /// Accepted, untaken by the program: part of the image.
    unexpected: VecDeque<Record>,
    writing: Option<Checkpoint>,
    /// Messages sent: receiver, SSN, payload.
    pub(crate) sent: Vec<(usize, u64, u64)>,
    /// Frames to peers.
    pub(crate) out: Vec<(usize, Frame)>,
    pub(crate) reports: Vec<Vec<u8>>,
    /// Rolled back: its connections are to be made anew.
    pub(crate) rolled_back: bool,
    pub(crate) logged: u64,
}

impl Node {
    pub(crate) fn start(rank: usize, ranks: usize, replaces: bool, disk: &mut Disk) -> Outcome<Node> {
        if replaces {
            disk.incarnation = disk.incarnation.next();
        }
        let policy = AckPolicy { unacked_records_max: 4, ..AckPolicy::default() };
        let config = Config { incarnation: disk.incarnation, policy, ..Config::new(Rank(rank as u32), ranks as u32) };
        let mut node = Node {
            rank,
            protocol: SendDeterministic::new(config)?,
            image: Image::default(),
            lanes: vec![Lane::default(); ranks],
            cursors: vec![None; ranks],
            arrived: vec![VecDeque::new(); ranks],
            unexpected: VecDeque::new(),
            writing: None,
            sent: Vec::new(),
            out: Vec::new(),
            reports: Vec::new(),
            rolled_back: false,
            logged: 0,
        };
        if replaces {
            let (&epoch, _) = disk.checkpoints.last_key_value().ok_or("no checkpoint")?;
            node.restore(epoch, disk)?;
            node.apply_effects(disk)?;
        } else {
            let start = node.protocol.start();
            let checkpoint = node.checkpoint_of(start.epoch, start.tables);
            disk.checkpoints.insert(start.epoch, checkpoint);
        }
        Ok(node)
    }

    fn checkpoint_of(&self, epoch: Epoch, tables: Vec<u8>) -> Checkpoint {
        let (image, lanes, unexpected) = (self.image.clone(), self.lanes.clone(), self.unexpected.clone());
        Checkpoint { epoch, tables, image, lanes, unexpected }
    }

    fn restore(&mut self, epoch: Epoch, disk: &mut Disk) -> Outcome<()> {
        let checkpoint = disk.checkpoints.get(&epoch).cloned().ok_or_else(|| format!("no checkpoint of {epoch}"))?;
        let oldest = disk.checkpoints.first_key_value().map_or(epoch, |(&epoch, _)| epoch);
        self.protocol.restore(&checkpoint.tables, oldest)?;
        self.image = checkpoint.image;
        self.lanes = checkpoint.lanes;
        self.unexpected = checkpoint.unexpected;
        self.writing = None;
        self.arrived.iter_mut().for_each(VecDeque::clear);
        self.cursors.fill(None);
        Ok(())
    }

    /// Drops messages received on an older connection.
    pub(crate) fn clear_arrived(&mut self, peer: usize) {
        self.arrived[peer].clear();
    }

    pub(crate) fn hello(&self, peer: usize) -> Outcome<Frame> {
        Ok(Frame::Hello(self.protocol.hello(Rank(peer as u32))?.encode()?))
    }

    /// Tries to carry out the next operation; returns `true` if it was carried out.
    pub(crate) fn step(&mut self, ops: &[Op], disk: &mut Disk) -> Outcome<bool> {
        let Some(&op) = ops.get(self.image.at).filter(|_| self.protocol.is_running()) else { return Ok(false) };
        match op {
            Op::Send { to, tag } => {
                let (source, destination) = (Rank(self.rank as u32), Rank(to as u32));
                let envelope = Envelope { source, destination, tag, comm: 0, len: 8 };
                let outgoing = self.protocol.handle_send(&envelope)?;
                if outgoing.transmission != Transmission::Now {
                    return Err("a running rank may send".into());
                }
                let (ssn, payload) = (outgoing.header.ssn().0, self.image.payload());
                self.sent.push((to, ssn, payload));
                self.lanes[to].records.insert(ssn, (outgoing.header, payload));
            }
            Op::Receive { tag } => {
                let Some(at) = self.unexpected.iter().position(|(header, _)| header.tag() == tag) else {
                    return Ok(false);
                };
                let (_, payload) = self.unexpected.remove(at).ok_or("just found")?;
                self.image.take(payload);
            }
        }
        self.image.at += 1;
        self.apply_effects(disk)?;
        Ok(true)
    }

    /// Takes a checkpoint, or reports the last one durable.
    pub(crate) fn checkpoint(&mut self, disk: &mut Disk) -> Outcome<bool> {
        if let Some(checkpoint) = self.writing.take() {
            let epoch = checkpoint.epoch;
            disk.checkpoints.insert(epoch, checkpoint);
            self.protocol.handle_checkpoint_durable(epoch)?;
        } else if self.protocol.wants_checkpoint() {
            let snapshot = self.protocol.handle_checkpoint()?;
            self.writing = Some(self.checkpoint_of(snapshot.epoch, snapshot.tables));
        } else {
            return Ok(false);
        }
        self.apply_effects(disk)?;
        Ok(true)
    }

    /// Puts the next record for `peer` on the wire.
    pub(crate) fn transmit(&mut self, peer: usize, disk: &mut Disk) -> Outcome<Option<Frame>> {
        let Some(after) = self.cursors[peer] else { return Ok(None) };
        let Some((&ssn, &(mut header, payload))) = self.lanes[peer].records.range(after + 1..).next() else {
            return Ok(None);
        };
        self.cursors[peer] = Some(ssn);
        self.protocol.handle_transmit(&mut header)?;
        self.apply_effects(disk)?;
        Ok(Some(Frame::Wire(header, payload, Vec::new())))
    }

    pub(crate) fn arrive(&mut self, peer: usize, frame: Frame, disk: &mut Disk) -> Outcome<()> {
        let from = Rank(peer as u32);
        match frame {
            Frame::Hello(bytes) => match self.protocol.handle_hello(from, &Hello::decode(&bytes)?) {
                Err(ProtocolError::DeadHello { .. }) => {}
                other => other?,
            },
            Frame::Wire(header, payload, _) if header.kind() == Kind::Message => {
                self.arrived[peer].push_back((header, payload));
                self.present(peer)?;
            }
            Frame::Wire(header, _, body) => self.protocol.handle_control(Party::Rank(from), &header, &body)?,
        }
        self.apply_effects(disk)
    }

    pub(crate) fn handle_command(&mut self, body: &[u8], disk: &mut Disk) -> Outcome<()> {
        let rank = Rank(self.rank as u32);
        self.protocol.handle_control(Party::Coordinator, &command_header(rank, body), body)?;
        self.apply_effects(disk)
    }

    fn present(&mut self, peer: usize) -> Outcome<()> {
        while let Some(&(header, payload)) = self.arrived[peer].front() {
            match self.protocol.handle_message(&header)? {
                Incoming::Hold => return Ok(()),
                Incoming::Deliver { .. } => self.unexpected.push_back((header, payload)),
                Incoming::Discard(_) => {}
            }
            self.arrived[peer].pop_front();
        }
        Ok(())
    }

    fn apply_effects(&mut self, disk: &mut Disk) -> Outcome<()> {
        while let Some(effect) = self.protocol.poll_effect() {
            match effect {
                Effect::Transmit { to: Party::Coordinator, body, .. } => self.reports.push(body),
                // A frame to an unconnected peer can be dropped: its content is in the Hello.
                Effect::Transmit { to: Party::Rank(to), header, body } if self.cursors[to.index()].is_some() => {
                    self.out.push((to.index(), Frame::Wire(header, 0, body)));
                }
                Effect::Transmit { .. } => {}
                Effect::Acknowledged { peer, ack, keep, .. } => {
                    let lane = &mut self.lanes[peer.index()];
                    if !keep {
                        lane.records.retain(|&ssn, _| ssn <= lane.acked || ssn > ack.ssn.0);
                    } else {
                        self.logged += ack.ssn.0.saturating_sub(lane.acked);
                    }
                    lane.acked = lane.acked.max(ack.ssn.0);
                }
                Effect::ReceiverRolledBack { peer, to } => self.lanes[peer.index()].acked = to.0,
                Effect::Covered { peer, upto, .. } => {
                    let records = &mut self.lanes[peer.index()].records;
                    *records = records.split_off(&(upto.0 + 1));
                }
                Effect::Replay { peer, after, upto: Ssn::MAX, .. } => self.cursors[peer.index()] = Some(after.0),
                Effect::Resume => {
                    for peer in 0..self.arrived.len() {
                        self.present(peer)?;
                    }
                }
                Effect::KeepCheckpoints { first, last } => {
                    disk.checkpoints.retain(|&epoch, _| first <= epoch && epoch <= last);
                    self.writing.take_if(|writing| writing.epoch > last);
                }
                Effect::RollBack { epoch } => {
                    self.restore(epoch, disk)?;
                    self.rolled_back = true;
                }
                other => return Err(format!("an effect that this rule has no use for: {other:?}").into()),
            }
        }
        Ok(())
    }
}

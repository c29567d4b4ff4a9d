//! One incarnation of a virtual rank: the protocol driver.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_ack_piggyback::{AckPolicy, Kind, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{DiscardReason, Effect, Hello, Incoming, NextChoice, Party, Protocol, ProtocolError};
use counterfoil_protocols::sender_based::{Config, SenderBased};

use super::application::{Delivery, Memory, Op, Payload, WILDCARD_TAGS};
use super::world::{Frame, Outbox, Outcome, Settings, Tally};

/// Sender log record.
pub(crate) type Record = (WireHeader, Payload);

/// One destination's part in the sender log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    records: BTreeMap<u64, Record>,
    last: u64,
    acked: u64,
    covered: u64,
}

impl Lane {
    /// Returns the part kept by a checkpoint.
    fn saved(&self, without_records: bool) -> Lane {
        let mut saved = self.clone();
        if without_records {
            saved.records.clear();
        }
        saved
    }
}

/// Checkpoint contents.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    epoch: Epoch,
    tables: Vec<u8>,
    memory: Memory,
    lanes: Vec<Lane>,
    unexpected: VecDeque<Record>,
}

/// Rank state surviving its process.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) choices: BTreeMap<u64, Vec<u8>>,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Lanes of the dead process, in the process-crash-safe tier.
    pub(crate) lanes: Option<Vec<Lane>>,
}

#[derive(Debug)]
pub(crate) struct Process {
    rank: Rank,
    settings: Settings,
    pub(crate) protocol: SenderBased,
    pub(crate) memory: Memory,
    pub(crate) lanes: Vec<Lane>,
    /// Per peer: the incarnation transmitted to, and up to which SSN; `None` before its Hello.
    cursors: Vec<Option<(Incarnation, u64)>>,
    /// Arrived and not taken.
    unexpected: VecDeque<Record>,
    /// Wildcard receives in the current operation: call, tag, and matched message.
    posted: Vec<(NextChoice, i32, Option<Delivery>)>,
    /// Checkpoint not yet durable.
    writing: Option<Checkpoint>,
}

impl Process {
    pub(crate) fn start(rank: Rank, incarnation: Incarnation, settings: Settings, disk: &mut Disk) -> Outcome<Process> {
        let policy = AckPolicy { unacked_records_max: 4, exceptions_max: 64, ..AckPolicy::default() };
        let config = Config { rank, ranks: settings.ranks, incarnation, policy };
        let mut process = Process {
            rank,
            settings,
            protocol: SenderBased::new(config)?,
            memory: Memory::default(),
            lanes: vec![Lane::default(); settings.ranks as usize],
            cursors: vec![None; settings.ranks as usize],
            unexpected: VecDeque::new(),
            posted: Vec::new(),
            writing: None,
        };
        process.cursors[rank.index()] = if disk.checkpoint.is_none() { Some((incarnation, 0)) } else { None };
        if let Some(checkpoint) = disk.checkpoint.clone() {
            process.protocol.restore(&checkpoint.tables, Epoch::FIRST)?;
            process.memory = checkpoint.memory;
            process.lanes = checkpoint.lanes;
            process.unexpected = checkpoint.unexpected;
        }
        if let Some(lanes) = disk.lanes.take() {
            process.lanes = lanes;
        }
        process.lanes.iter_mut().for_each(|lane| lane.acked = 0);
        for record in disk.choices.values() {
            process.protocol.handle_recovered_choice(record)?;
        }
        process.apply_effects(disk, &mut Outbox::default(), &mut Tally::default())?;
        Ok(process)
    }

    /// Begins a connection to `peer`: nothing may be transmitted until its Hello is here.
    pub(crate) fn connect(&mut self, peer: Rank) -> Outcome<Frame> {
        self.cursors[peer.index()] = None;
        let hello = self.protocol.hello(peer)?;
        Ok(Frame::Hello(hello.encode()?))
    }

    /// Tries to carry out the next operation; returns `true` if anything happened.
    pub(crate) fn step(
        &mut self,
        program: &[Op],
        disk: &mut Disk,
        outbox: &mut Outbox,
        tally: &mut Tally,
    ) -> Outcome<bool> {
        if let Some(checkpoint) = self.writing.take() {
            let epoch = checkpoint.epoch;
            disk.checkpoint = Some(checkpoint);
            tally.checkpoints += 1;
            self.protocol.handle_checkpoint_durable(epoch)?;
            self.apply_effects(disk, outbox, tally)?;
            return Ok(true);
        }
        let Some(&op) = program.get(self.memory.at) else { return Ok(false) };
        let done = match op {
            Op::Send { to, tag, len } => self.send(to, tag, len, disk, outbox, tally)?,
            Op::Receive { source, tag } => self.receive(source, tag, outbox, tally)?,
            Op::ReceiveAny { tag } => self.receive_any(&[tag], disk, outbox, tally)?,
            Op::ReceiveBoth => self.receive_any(&WILDCARD_TAGS, disk, outbox, tally)?,
            Op::Probe { tag } => self.probe(tag, disk, tally)?,
            Op::Checkpoint => self.checkpoint()?,
        };
        self.memory.at += usize::from(done);
        if let Some(writing) = &mut self.writing {
            writing.memory = self.memory.clone();
            if self.settings.sabotage_cover_early {
                let epoch = writing.epoch;
                self.protocol.handle_checkpoint_durable(epoch)?;
                self.writing = None;
            }
        }
        self.apply_effects(disk, outbox, tally)?;
        Ok(done)
    }

    fn send(
        &mut self,
        to: Rank,
        tag: i32,
        len: u64,
        disk: &mut Disk,
        outbox: &mut Outbox,
        tally: &mut Tally,
    ) -> Outcome<bool> {
        let envelope = Envelope { source: self.rank, destination: to, tag, comm: 0, len };
        let header = self.protocol.handle_send(&envelope)?.header;
        self.apply_effects(disk, outbox, tally)?; // The record isn't committed yet: no effect may concern it.
        let payload = self.memory.next_payload(self.rank);
        outbox.sent.push((to, header.ssn(), payload));
        let lane = &mut self.lanes[to.index()];
        let ssn = header.ssn().0;
        if ssn <= lane.last {
            // The log survived its process: this send is a repetition.
            if lane.records.get(&ssn).is_some_and(|(_, before)| *before != payload) {
                return Err(format!("{} repeats {ssn} to {to} with other bytes", self.rank).into());
            }
        } else if ssn == lane.last + 1 {
            lane.records.insert(ssn, (header, payload));
            lane.last = ssn;
        } else {
            return Err(format!("{} leaves a gap before {ssn} to {to}", self.rank).into());
        }
        Ok(true)
    }

    fn receive(&mut self, source: Rank, tag: i32, outbox: &mut Outbox, tally: &mut Tally) -> Outcome<bool> {
        let taken = self.take(|header| header.source() == source && header.tag() == tag, tally)?;
        if let Some(delivery) = taken {
            self.deliver(delivery, outbox);
        }
        Ok(taken.is_some())
    }

    /// Receives from any source, one message for each tag; delivers when all are there.
    fn receive_any(&mut self, tags: &[i32], disk: &mut Disk, outbox: &mut Outbox, tally: &mut Tally) -> Outcome<bool> {
        if self.posted.is_empty() {
            self.posted = tags.iter().map(|&tag| (self.protocol.next_choice(), tag, None)).collect();
        }
        for at in 0..self.posted.len() {
            let (NextChoice { sequence, forced }, tag, matched) = self.posted[at];
            if matched.is_some() {
                continue;
            }
            let fits = |header: &WireHeader| match forced {
                Some(forced) => (header.source(), header.ssn()) == (forced.source, forced.ssn),
                None => header.tag() == tag,
            };
            if let Some(delivery) = self.take(fits, tally)? {
                let Delivery { source, ssn, .. } = delivery;
                self.decide(Determinant { sequence, source, ssn }, forced.is_some(), disk, tally)?;
                self.posted[at].2 = Some(delivery);
            }
        }
        if self.posted.iter().any(|(_, _, matched)| matched.is_none()) {
            return Ok(false);
        }
        for (_, _, matched) in std::mem::take(&mut self.posted) {
            matched.into_iter().for_each(|delivery| self.deliver(delivery, outbox));
        }
        Ok(true)
    }

    fn probe(&mut self, tag: i32, disk: &mut Disk, tally: &mut Tally) -> Outcome<bool> {
        if self.settings.judge_on_take {
            return Ok(true); // An unexpected message may be a duplicate until it is taken.
        }
        let NextChoice { sequence, forced } = self.protocol.next_choice();
        let choice = forced.unwrap_or_else(|| {
            let found = self.unexpected.iter().map(|(header, _)| header).find(|header| header.tag() == tag);
            let (source, ssn) = found.map_or((self.rank, Ssn::ZERO), |header| (header.source(), header.ssn()));
            Determinant { sequence, source, ssn }
        });
        self.decide(choice, forced.is_some(), disk, tally)?;
        self.memory.see(u64::from(choice.source.0) << 40 | choice.ssn.0);
        Ok(true)
    }

    fn decide(&mut self, choice: Determinant, forced: bool, disk: &mut Disk, tally: &mut Tally) -> Outcome<()> {
        let record = self.protocol.handle_choice(choice)?;
        tally.choices_forced += u64::from(forced);
        if let Some(record) = record
            && !self.settings.sabotage_drop_choices
        {
            disk.choices.insert(record.sequence, record.bytes.to_vec());
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Outcome<bool> {
        let snapshot = self.protocol.handle_checkpoint()?;
        let received_not_taken = !self.settings.judge_on_take && !self.settings.sabotage_drop_unexpected;
        self.writing = Some(Checkpoint {
            epoch: snapshot.epoch,
            tables: snapshot.tables,
            memory: self.memory.clone(),
            lanes: self.lanes.iter().map(|lane| lane.saved(self.settings.sabotage_drop_records)).collect(),
            unexpected: if received_not_taken { self.unexpected.clone() } else { VecDeque::new() },
        });
        Ok(true)
    }

    /// Takes the first fitting arrived message.
    fn take(&mut self, fits: impl Fn(&WireHeader) -> bool, tally: &mut Tally) -> Outcome<Option<Delivery>> {
        while let Some(at) = self.unexpected.iter().position(|(header, _)| fits(header)) {
            let Some((header, payload)) = self.unexpected.remove(at) else { break };
            if self.settings.judge_on_take && !self.judge(&header, tally)? {
                continue;
            }
            let (source, tag, ssn) = (header.source(), header.tag(), header.ssn());
            return Ok(Some(Delivery { source, tag, ssn, payload }));
        }
        Ok(None)
    }

    fn deliver(&mut self, delivery: Delivery, outbox: &mut Outbox) {
        outbox.delivered.push((self.memory.deliveries.len(), delivery));
        self.memory.see_delivery(delivery);
    }

    /// Returns `true` if the protocol delivers a message.
    fn judge(&mut self, header: &WireHeader, tally: &mut Tally) -> Outcome<bool> {
        match self.protocol.handle_message(header)? {
            Incoming::Deliver { keep: None } => return Ok(true),
            Incoming::Discard(DiscardReason::Duplicate { .. }) => tally.duplicates += 1,
            Incoming::Discard(DiscardReason::DeadIncarnation { .. }) => tally.dead_messages += 1,
            other => return Err(format!("unexpected verdict {other:?}").into()),
        }
        Ok(false)
    }

    /// Puts the next record for `peer` on the wire to the incarnation of the last Hello.
    pub(crate) fn transmit(&mut self, peer: Rank, tally: &mut Tally) -> Outcome<Option<(Incarnation, Frame)>> {
        let Some((incarnation, after)) = self.cursors[peer.index()] else { return Ok(None) };
        let lane = &self.lanes[peer.index()];
        let Some((&ssn, &(mut header, payload))) = lane.records.range(after + 1..).next() else { return Ok(None) };
        if ssn > after + 1 && ssn > lane.covered + 1 {
            return Err(format!("{} needs {} for {peer}, which isn't kept", self.rank, after + 1).into());
        }
        self.cursors[peer.index()] = Some((incarnation, ssn));
        self.protocol.handle_transmit(&mut header)?;
        tally.transmitted += 1;
        Ok(Some((incarnation, Frame::Wire(header, payload, Vec::new()))))
    }

    /// Handles a frame from `peer`.
    ///
    /// Returns `Ok(false)` if the process at the other end is dead: close the connection.
    pub(crate) fn arrive(
        &mut self,
        peer: Rank,
        frame: Frame,
        disk: &mut Disk,
        outbox: &mut Outbox,
        tally: &mut Tally,
    ) -> Outcome<bool> {
        match frame {
            Frame::Hello(bytes) => {
                let hello = Hello::decode(&bytes)?;
                match self.protocol.handle_hello(peer, &hello) {
                    Err(ProtocolError::DeadHello { .. }) => {
                        tally.dead_hellos += 1;
                        return Ok(false);
                    }
                    other => other?,
                }
            }
            Frame::Wire(header, payload, body) => match header.kind() {
                Kind::Message if self.settings.judge_on_take => self.unexpected.push_back((header, payload)),
                Kind::Message => {
                    if self.judge(&header, tally)? {
                        self.unexpected.push_back((header, payload));
                    }
                }
                _ => {
                    let handled = self.protocol.handle_control(Party::Rank(peer), &header, &body);
                    handled?;
                }
            },
        }
        self.apply_effects(disk, outbox, tally)?;
        Ok(true)
    }

    fn apply_effects(&mut self, disk: &mut Disk, outbox: &mut Outbox, tally: &mut Tally) -> Outcome<()> {
        while let Some(effect) = self.protocol.poll_effect() {
            match effect {
                Effect::Transmit { to: Party::Rank(to), header, body } => {
                    tally.explicit_acks += u64::from(header.kind() == Kind::Ack);
                    let nothing = Payload { content: 0, history: 0 };
                    outbox.frames.push((to, Frame::Wire(header, nothing, body)));
                }
                Effect::Acknowledged { peer, ack, .. } => {
                    let lane = &mut self.lanes[peer.index()];
                    if ack.ssn.0 > lane.last || ack.ssn.0 <= lane.acked {
                        return Err(format!("{} of {} acknowledged by {peer}: {lane:?}", ack.ssn, self.rank).into());
                    }
                    lane.acked = ack.ssn.0;
                }
                Effect::ReceiverRolledBack { peer, to } => {
                    tally.rolled_back += 1;
                    let lane = &mut self.lanes[peer.index()];
                    lane.acked = lane.acked.min(to.0);
                }
                Effect::Covered { peer, upto, .. } => {
                    let lane = &mut self.lanes[peer.index()];
                    if upto.0 > lane.last {
                        return Err(format!("{upto} of {} covered by {peer}: {lane:?}", self.rank).into());
                    }
                    lane.covered = lane.covered.max(upto.0);
                    lane.records = lane.records.split_off(&(lane.covered + 1));
                }
                Effect::Replay { peer, incarnation, after, upto: Ssn::MAX } => {
                    let covered = self.lanes[peer.index()].covered;
                    if after.0 < covered {
                        return Err(format!("{} asked to replay after {after} to {peer}: {covered}", self.rank).into());
                    }
                    self.cursors[peer.index()] = Some((incarnation, after.0));
                }
                Effect::DiscardChoices { before, .. } => disk.choices = disk.choices.split_off(&before),
                other => return Err(format!("an effect that this rule has no use for: {other:?}").into()),
            }
        }
        Ok(())
    }

    /// Ends the process and keeps what survives it.
    ///
    /// A checkpoint may have become durable without the process knowing.
    pub(crate) fn crash(self, disk: &mut Disk, checkpoint_durable: bool) {
        if let Some(checkpoint) = self.writing
            && checkpoint_durable
        {
            disk.checkpoint = Some(checkpoint);
        }
        if self.settings.lanes_survive {
            disk.lanes = Some(self.lanes);
        }
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Returns the last SSN acknowledged by `peer`, as reported to the log.
    pub(crate) fn acked(&self, peer: Rank) -> Ssn {
        Ssn(self.lanes[peer.index()].acked)
    }
}

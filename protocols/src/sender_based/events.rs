//! Event handlers.

use counterfoil_ack_piggyback::{Kind, ReceivedSet, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank, Ssn};

use super::channel::Channel;
use super::choices::{self, Choices};
use super::notice::{self, Covered};
use super::tables::Tables;
use super::{Config, Pending, SenderBased};
use crate::api::{
    ChoiceError, ChoiceRecord, Effect, Hello, Incoming, Misbehaviour, NextChoice, Outgoing, Party, Properties,
    Protocol, ProtocolError, RestoreError, Snapshot, Transmission,
};

impl Protocol for SenderBased {
    fn properties(&self) -> Properties {
        SenderBased::PROPERTIES
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn incarnation(&self) -> Incarnation {
        self.config.incarnation
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        let Config { rank, .. } = self.config;
        let peer = envelope.destination;
        ProtocolError::check_sender(envelope.source, peer, rank)?;
        self.apply_early(peer)?;
        let origin = self.origin();
        let stamp = self.channel(peer)?.stamp(envelope.len)?;
        // No acknowledgement here: it would count as sent, and be out of date (or lost) when the record is transmitted.
        let header = WireHeader::message(envelope, stamp, origin, None);
        Ok(Outgoing { header, keep_record: true, transmission: Transmission::Now })
    }

    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError> {
        let Config { rank, incarnation, .. } = self.config;
        ProtocolError::check_transmitted(header, rank)?;
        let destination = header.destination();
        *header = self.channel(destination)?.refresh(header, incarnation);
        self.apply_early(destination)
    }

    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_arrival(header, rank, ranks)?;
        ProtocolError::check_message(header)?;
        let peer = header.source();
        let channel = self.channel(peer)?;
        if !channel.is_living(header.incarnation())? {
            return Ok(Incoming::Discard(channel.dead_incarnation(header.incarnation())));
        }
        if let Some(ack) = header.ack() {
            self.handle_ack(peer, ack)?;
        }
        let verdict = self.channel(peer)?.receive(header.arrival())?;
        self.apply_early(peer)?;
        self.send_due_acks(peer)?;
        Ok(verdict)
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let Party::Rank(peer) = from else { return Err(ProtocolError::NoCoordinator) };
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_arrival_from(peer, header, rank, ranks)?;
        if !self.channel(peer)?.is_living(header.incarnation())? {
            return Ok(());
        }
        if let Some(ack) = header.ack() {
            self.handle_ack(peer, ack)?;
        }
        match header.kind() {
            Kind::Message => return Err(ProtocolError::UnexpectedKind { peer, kind: Kind::Message }),
            Kind::Ack => {}
            Kind::AckRequest => self.channel(peer)?.request_ack(header.ssn()),
            Kind::Control => {
                let covered = (header.tag() == notice::COVERED).then(|| Covered::decode(body)).flatten();
                let Some(Covered { epoch, upto }) = covered else {
                    let how = Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() };
                    return Err(ProtocolError::PeerMisbehaved { peer, how });
                };
                self.handle_covered(peer, epoch, upto)?;
            }
        }
        self.send_due_acks(peer)
    }

    fn next_choice(&mut self) -> NextChoice {
        self.choices.next()
    }

    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        self.choices.decide(choice, self.config.ranks)
    }

    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        let choice = ChoiceRecord::decode(record)?;
        choices::check(choice, self.config.ranks)?;
        self.choices.recover(choice)
    }

    /// Returns `false` while recorded choices are to be repeated: the log drops them at a checkpoint.
    fn wants_checkpoint(&mut self) -> bool {
        self.choices.are_repeated()
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let open = self.choices.open();
        let choices = self.choices.settled().ok_or(ProtocolError::ChoicesOpen { open })?;
        let epoch = self.epoch.next().ok_or(ProtocolError::EpochsExhausted)?;
        for channel in self.channels() {
            channel.begin_epoch(epoch)?;
        }
        self.epoch = epoch;
        self.pending = Some(Pending { epoch, choices });
        let tables = Tables {
            rank: self.config.rank.0,
            ranks: self.config.ranks,
            epoch: epoch.0,
            choices,
            channels: self.channels().map(|channel| channel.snapshot()).collect(),
        };
        Ok(Snapshot { epoch, tables: tables.encode() })
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let pending = self.pending.take_if(|pending| pending.epoch == epoch);
        let Pending { choices, .. } = pending.ok_or(ProtocolError::NotCheckpointing { epoch })?;
        self.durable = epoch;
        for peer in (0..self.config.ranks).map(Rank) {
            let covered = self.channels[peer.index()].as_mut().and_then(|channel| channel.checkpoint_durable(epoch));
            if let Some(upto) = covered {
                self.send_covered(peer, Covered { epoch, upto })?;
            }
        }
        self.effects.push_back(Effect::DiscardChoices { before: choices, epoch });
        Ok(())
    }

    /// Ignores `oldest`: no rank ever goes back before its newest checkpoint.
    fn restore(&mut self, tables: &[u8], _oldest: Epoch) -> Result<(), RestoreError> {
        let Config { rank, ranks, incarnation, policy } = self.config;
        let used = self.channels.iter().flatten().any(|channel| channel.is_used());
        if used || self.epoch > Epoch::FIRST || !self.choices.is_fresh() {
            return Err(RestoreError::NotFresh);
        }
        let tables = Tables::decode(tables, rank, ranks)?;
        let mut channels: Vec<Option<Box<Channel>>> = (0..ranks).map(|_| None).collect();
        for table in &tables.channels {
            channels[Rank(table.peer).index()] = Some(Box::new(Channel::restore(table, policy)?));
        }
        let own = channels[rank.index()].as_mut();
        let own = own.filter(|own| own.incarnation() <= incarnation);
        let own = own.ok_or(RestoreError::Contradiction { what: "no channel of this incarnation to itself" })?;
        own.set_own_incarnation(incarnation);
        let after = own.replay_after(own.received_upto());
        self.channels = channels;
        self.epoch = Epoch(tables.epoch);
        self.durable = self.epoch;
        self.choices = Choices::resume(tables.choices);
        self.effects.push_back(Effect::Replay { peer: rank, incarnation, after, upto: Ssn::MAX });
        Ok(())
    }

    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        // The lane waits for the replacement's Hello. Frames under way from the dead incarnation count until then.
        self.check_peer(peer)
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        self.check_peer(peer)?;
        let mut hello = Hello {
            rank: self.config.rank,
            incarnation: self.config.incarnation,
            epoch: self.epoch,
            received: ReceivedSet::new(),
            covered: (self.durable, Ssn::ZERO),
            sent: Ssn::ZERO,
            acked: Ssn::ZERO,
            opaque: Vec::new(),
        };
        if let Some(channel) = self.known(peer) {
            channel.describe(&mut hello);
        }
        Ok(hello)
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        self.check_peer(peer)?;
        if hello.rank != peer {
            let how = Misbehaviour::WrongRank { name: hello.rank };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        let reexecuting = self.reexecuting();
        let rolled_back = self.channel(peer)?.handle_hello(hello, reexecuting)?;
        if let Some(to) = rolled_back {
            self.effects.push_back(Effect::ReceiverRolledBack { peer, to });
        }
        let (epoch, upto) = hello.covered;
        self.handle_covered(peer, epoch, upto)?;
        let after = self.channel(peer)?.replay_after(hello.received.upto());
        self.effects.push_back(Effect::Replay { peer, incarnation: hello.incarnation, after, upto: Ssn::MAX });
        self.send_due_acks(peer)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}

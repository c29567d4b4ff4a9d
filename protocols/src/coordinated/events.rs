//! Event handlers.

use counterfoil_ack_piggyback::{Ack, Flags, Stamp, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Phase, Rank, Ssn};

use super::calls::{Calls, Word, id};
use super::channel::{Channel, Restored};
use super::message::{self, Counts, Greeting, Progress};
use super::tables::{COMMITTED, Log, SEALED, Tables, entry, place_of};
use super::{Bits, Coordinated};
use crate::agreement::Command;
use crate::api::{
    ChoiceError, ChoiceRecord, CollectiveCall, CollectiveClass, CollectivePlan, DiscardReason, Effect, EntryKey,
    EntryKind, Hello, Incoming, Inspect, Misbehaviour, NextChoice, Outgoing, Party, Properties, Protocol,
    ProtocolError, RestoreError, Scope, Snapshot, Transmission,
};
use crate::sender_based::Choices;

impl Protocol for Coordinated {
    fn properties(&self) -> Properties {
        Coordinated::PROPERTIES
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Figure 3, message send.
    ///
    /// An early message is counted, and not sent again (section 2.3).
    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        let peer = envelope.destination;
        ProtocolError::check_sender(envelope.source, peer, self.config.rank)?;
        let origin = self.origin();
        let flags = if self.am_logging() { Flags::AM_LOGGING } else { Flags::NONE };
        let channel = self.channel(peer)?;
        if channel.sent >= Ssn::MAX {
            return Err(ProtocolError::SsnsExhausted { peer });
        }
        channel.sent = channel.sent.next();
        channel.send_count += 1;
        let ssn = channel.sent;
        let is_early = channel.is_early_at_peer(ssn);
        let header = WireHeader::message(envelope, Stamp { ssn, flags }, origin, None);
        self.ask_for_checkpoint();
        let transmission = if is_early { Transmission::Suppress } else { Transmission::Now };
        Ok(Outgoing { header, keep_record: false, transmission })
    }

    /// Changes nothing: a record is transmitted once, by its creating execution.
    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError> {
        ProtocolError::check_transmitted(header, self.config.rank)
    }

    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        ProtocolError::check_arrival(header, self.config.rank, self.config.ranks)?;
        ProtocolError::check_message(header)?;
        let (sent_in, attempt) = (header.phase().0, self.member.attempt);
        if !self.member.is_running() || sent_in > attempt {
            return Ok(Incoming::Hold);
        }
        if sent_in < attempt {
            let (sent_by, now) = (Incarnation(sent_in), Incarnation(attempt));
            return Ok(Incoming::Discard(DiscardReason::DeadIncarnation { sent_by, now }));
        }
        self.receive(header)
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let peer = match from {
            Party::Coordinator => {
                self.handle_order(Command::decode(body).ok_or(ProtocolError::NoCoordinator)?);
                return Ok(());
            }
            Party::Rank(peer) => peer,
        };
        ProtocolError::check_arrival_from(peer, header, self.config.rank, self.config.ranks)?;
        let how = Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() };
        let counts = (header.tag() == message::COUNTS).then(|| message::decode(body)).flatten();
        let Counts { attempt, epoch, messages, calls } = counts.ok_or(ProtocolError::PeerMisbehaved { peer, how })?;
        if attempt == self.member.attempt {
            self.channel(peer)?.set_total_sent(Epoch(epoch), messages);
            self.calls_of_peers.insert(peer, calls);
            self.check_received_all();
        }
        Ok(())
    }

    fn next_choice(&mut self) -> NextChoice {
        self.choices.next()
    }

    /// Records the outcome while logging.
    ///
    /// The record is durable with the log; before, no line depends on it.
    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        self.choices.decide(choice, self.config.ranks)?;
        if self.am_logging() {
            self.log.outcomes.push((choice.sequence, choice.source.0, choice.ssn.0));
        }
        self.ask_for_checkpoint();
        Ok(None)
    }

    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        Err(ChoiceError::NotRecorded { len: record.len() })
    }

    /// Figures 6 to 8, before the call.
    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        if let Some(entry) = self.calls.logged(id(call)) {
            return Ok(CollectivePlan::Recorded(entry));
        }
        if let CollectiveClass::ToRoot(root) = call.class
            && self.must_suppress(root, call)
        {
            return Ok(CollectivePlan::Skip);
        }
        let word = self.word().encode();
        Ok(match self.config.bits {
            Bits::Exchanged => CollectivePlan::Exchange { word, scope: Scope::AlongData },
            Bits::Piggybacked => CollectivePlan::Piggyback { word },
        })
    }

    fn handle_collective_words(
        &mut self,
        call: &CollectiveCall,
        words: &[(Rank, u64)],
    ) -> Result<Option<EntryKey>, ProtocolError> {
        let own = (self.config.rank, self.word());
        let keep = self.calls.judge(call, own, words).keep;
        if let Some((peer, _)) = words.first().filter(|_| keep && !self.am_logging()) {
            let how = Misbehaviour::OutOfLine { sent_in: Epoch(self.epoch.0 - 1), received_in: self.epoch };
            return Err(ProtocolError::PeerMisbehaved { peer: *peer, how });
        }
        let place = self.log.results.len() as u32;
        Ok(keep.then(|| entry(EntryKind::Collective, self.epoch, place)))
    }

    fn handle_collective_completed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        self.conclude(call);
        self.calls.complete(call);
        self.check_received_all();
        self.ask_for_checkpoint();
        Ok(())
    }

    fn handle_collective_failed(&mut self, _: &CollectiveCall) -> Result<(), ProtocolError> {
        self.calls.fail();
        Ok(())
    }

    /// Takes up the logs of the restored line.
    ///
    /// Others belong to an undone or obsolete line.
    fn handle_recovered_entry(&mut self, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let (epoch, place) = place_of(entry);
        match (entry.kind, place) {
            (EntryKind::Note, COMMITTED) => self.member.committed = self.member.committed.max(epoch),
            (EntryKind::Note, SEALED) if epoch == self.epoch => {
                let log: Log = message::decode(bytes).ok_or(ProtocolError::UnexpectedEntry { entry })?;
                self.recover_log(&log);
            }
            (EntryKind::Message, _) if epoch == self.epoch => {
                let unexpected = ProtocolError::UnexpectedEntry { entry };
                let (header, _) = WireHeader::split(bytes).map_err(|_| unexpected)?;
                let (peer, ssn) = (header.source(), header.ssn());
                let inserted = self.channel(peer)?.received.insert(ssn, Hello::EXCEPTIONS_MAX);
                return inserted.map_err(|limit| ProtocolError::OutOfOrder { peer, limit });
            }
            _ => {}
        }
        Ok(false)
    }

    fn is_running(&self) -> bool {
        self.member.is_running()
    }

    fn first_checkpoint(&self) -> Option<Snapshot> {
        Some(Snapshot { epoch: self.epoch, tables: self.tables() })
    }

    /// *checkpointRequested*.
    fn wants_checkpoint(&mut self) -> bool {
        self.requested && self.has_repeated_log()
    }

    /// Figure 3, `potentialCheckpoint`.
    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let open = self.choices.open();
        self.choices_saved = self.choices.settled().ok_or(ProtocolError::ChoicesOpen { open })?;
        self.epoch = self.epoch.next().ok_or(ProtocolError::EpochsExhausted)?;
        self.calls_saved = self.calls.made.clone();
        self.channels.values_mut().for_each(Channel::begin_epoch);
        let tables = self.tables();
        self.calls.repeated.clear();
        self.calls.suppressed.clear();
        (self.requested, self.asked, self.durable) = (false, false, false);
        (self.progress, self.log) = (Progress::Logging, Log::default());
        let peers: Vec<Rank> = self.channels.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.announce(peer));
        Ok(Snapshot { epoch: self.epoch, tables })
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        if self.durable || epoch != self.epoch {
            return Err(ProtocolError::NotCheckpointing { epoch });
        }
        self.durable = true;
        self.check_received_all();
        Ok(())
    }

    fn handle_log_sealed(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        if epoch == self.epoch && self.progress == Progress::Stopping {
            self.progress = Progress::Stopped;
            self.report();
        }
        Ok(())
    }

    /// Restores the newest checkpoint; after a rollback, that of the line.
    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        let tables = Tables::decode(tables, self.config.rank, self.config.ranks)?;
        let mut fresh = Coordinated::new(self.config).map_err(|_| RestoreError::NotFresh)?;
        for table in &tables.channels {
            let channel = Channel::restore(table)?;
            *fresh.channel(Rank(table.peer)).map_err(|_| RestoreError::NotFresh)? = channel;
        }
        fresh.epoch = Epoch(tables.epoch);
        fresh.member = self.member.restored(oldest);
        fresh.choices = Choices::resume(tables.choices);
        fresh.choices_saved = tables.choices;
        fresh.calls = Calls::restore(&tables);
        fresh.calls_saved = tables.calls;
        fresh.incarnation = self.incarnation;
        fresh.effects = std::mem::take(&mut self.effects);
        fresh.incarnation.0 += u32::from(self.member.rolls_back());
        for (root, (comm, number)) in tables.repeated {
            let call = CollectiveCall { class: CollectiveClass::FromRoot(Rank(root)), comm, number, uniform: false };
            fresh.effects.push_back(Effect::RunCollective { call });
        }
        *self = fresh;
        if self.member.failed {
            self.report();
        }
        self.check_prepared();
        Ok(())
    }

    /// Requests a job rollback: messages under way to or from the peer are lost, and nothing may be taken beyond them.
    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        self.channel(peer)?;
        // The order to run may be under way.
        if self.member.fail() {
            self.report();
        }
        Ok(())
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        let ranks = self.config.ranks;
        let channel = self.channels.get(&peer).ok_or(ProtocolError::UnknownRank { rank: peer, ranks })?;
        let greeting = Greeting { restored: self.member.is_fresh, suppressed: self.calls.suppressed_of(peer) };
        Ok(Hello {
            rank: self.config.rank,
            incarnation: self.incarnation,
            epoch: self.epoch,
            received: channel.received.clone(),
            covered: (Epoch::FIRST, Ssn::ZERO),
            sent: channel.sent,
            acked: Ssn::ZERO,
            opaque: message::encode(&greeting),
        })
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        let how = Misbehaviour::WrongRank { name: hello.rank };
        if hello.rank != peer {
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        let how = Misbehaviour::MalformedNotice { tag: message::COUNTS, len: hello.opaque.len() };
        let greeting = message::decode(&hello.opaque).ok_or(ProtocolError::PeerMisbehaved { peer, how })?;
        let Greeting { restored, suppressed } = greeting;
        let (incarnation, epoch) = (hello.incarnation, self.epoch);
        let channel = self.channel(peer)?;
        let now = channel.incarnation;
        if incarnation < now {
            return Err(ProtocolError::DeadHello { peer, incarnation, now });
        }
        channel.incarnation = incarnation;
        if restored {
            channel.restored = Some(Restored { epoch: hello.epoch, received: hello.received.clone(), suppressed });
        }
        // Records from before the line have been received, or the line would not have been committed.
        let after = channel.base;
        if !std::mem::replace(&mut channel.released, true) && after > Ssn::ZERO {
            let ack = Ack { ssn: after, epoch };
            self.effects.push_back(Effect::Acknowledged { peer, ack, phase: Phase(0), keep: false });
        }
        self.effects.push_back(Effect::Replay { peer, incarnation, after, upto: Ssn::MAX });
        if self.member.is_running() && self.progress != Progress::Behind {
            // The peer wasn't connected when the checkpoint was taken.
            self.announce(peer);
        }
        self.check_prepared();
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn inspect(&self) -> &dyn Inspect {
        self
    }
}

impl Coordinated {
    fn word(&self) -> Word {
        Word { epoch: self.epoch, am_logging: self.am_logging() }
    }

    /// Returns `true` if a call must not be repeated, because its root doesn't (section 5.2).
    fn must_suppress(&self, root: Rank, call: &CollectiveCall) -> bool {
        let restored = self.channels.get(&root).and_then(|channel| channel.restored.as_ref());
        restored.is_some_and(|root| root.suppressed.contains(&id(call)))
    }

    /// Acts on the conclusions from the words of a call.
    fn conclude(&mut self, call: &CollectiveCall) {
        let log = matches!(self.progress, Progress::Logging | Progress::Ready).then_some(&mut self.log);
        if self.calls.conclude(call, log) {
            self.finalize_log();
        }
    }

    fn tables(&self) -> Vec<u8> {
        message::encode(&Tables {
            rank: self.config.rank.0,
            ranks: self.config.ranks,
            epoch: self.epoch.0,
            choices: self.choices_saved,
            calls: self.calls_saved.clone(),
            repeated: self.calls.repeated.clone(),
            suppressed: self.calls.suppressed.clone(),
            channels: self.channels.iter().map(|(peer, channel)| channel.snapshot(*peer)).collect(),
        })
    }
}

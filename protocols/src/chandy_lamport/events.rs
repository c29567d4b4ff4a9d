//! Event handlers.

use counterfoil_ack_piggyback::state::ReceivedSetState;
use counterfoil_ack_piggyback::{Flags, Kind, ReceivedSet, Stamp, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Phase, Rank, Ssn};

use super::channel::{Arrived, Channel};
use super::identification::{Identification, Message};
use super::line::Line;
use super::message::{REQUEST, Request, decode};
use super::tables::Tables;
use super::{Call, ChandyLamport, Config, DUE, LINES_MAX};
use crate::agreement::Command;
use crate::api::{
    ChoiceError, ChoiceRecord, CollectiveCall, CollectivePlan, DiscardReason, Effect, EntryKey, EntryKind, Hello,
    Incoming, Misbehaviour, NextChoice, Outgoing, Party, Properties, Protocol, ProtocolError, RestoreError, Scope,
    Snapshot, Transmission,
};
use crate::encoding;
use crate::sender_based::choices::{self, Choices};

impl<I: Identification> Protocol for ChandyLamport<I> {
    fn properties(&self) -> Properties {
        ChandyLamport::<I>::PROPERTIES
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn incarnation(&self) -> Incarnation {
        self.number()
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        let peer = envelope.destination;
        ProtocolError::check_sender(envelope.source, peer, self.config.rank)?;
        let origin = self.origin();
        let ssn = self.channel(peer)?.send(envelope.into()).ok_or(ProtocolError::SsnsExhausted { peer })?;
        let header = WireHeader::message(envelope, Stamp { ssn, flags: Flags::NONE }, origin, None);
        Ok(Outgoing { header, keep_record: false, transmission: Transmission::Now })
    }

    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError> {
        ProtocolError::check_transmitted(header, self.config.rank)?;
        *header = header.refreshed(self.number(), None, header.flags());
        Ok(())
    }

    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_arrival(header, rank, ranks)?;
        ProtocolError::check_message(header)?;
        let (peer, ssn, message) = (header.source(), header.ssn(), Message::from(header));
        if header.phase() != Phase(self.member.attempt) {
            let (sent_by, now) = (header.incarnation(), self.met[peer.index()]);
            return Ok(Incoming::Discard(DiscardReason::DeadIncarnation { sent_by, now }));
        }
        let epoch = self.epoch;
        let arrived = self.channel(peer)?.receive(message, ssn, epoch);
        self.member.is_fresh = false;
        match arrived {
            Arrived::New { copied } => {
                let mut keep = None;
                if copied {
                    keep = Some(EntryKey { kind: EntryKind::Message, number: self.copies });
                    self.channels[peer.index()].note_copy(self.copies, message.key, epoch);
                    self.copies += 1;
                }
                self.finish_lines();
                Ok(Incoming::Deliver { keep })
            }
            Arrived::Orphan => Ok(Incoming::Discard(DiscardReason::Orphan { ssn })),
            Arrived::Duplicate => Ok(Incoming::Discard(DiscardReason::Duplicate { receive_epoch: epoch })),
            Arrived::AfterGap => Ok(Incoming::Hold),
        }
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let Party::Rank(peer) = from else {
            let how = Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() };
            let misbehaved = ProtocolError::PeerMisbehaved { peer: self.config.rank, how };
            self.handle_order(Command::decode(body).ok_or(misbehaved)?);
            return Ok(());
        };
        ProtocolError::check_arrival_from(peer, header, self.config.rank, self.config.ranks)?;
        if header.kind() != Kind::Control {
            return Err(ProtocolError::UnexpectedKind { peer, kind: header.kind() });
        }
        let request: Option<Request<I::Request>> = decode(body).filter(|_| header.tag() == REQUEST);
        let Some(request) = request else {
            let how = Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        };
        if header.phase() != Phase(self.member.attempt) {
            return Ok(());
        }
        let (line, committed) = (request.line(), request.committed());
        self.channel(peer)?.handle_request(line, request.before);
        self.member.is_fresh = false;
        if line > self.requested {
            self.requested = line;
            if self.call.is_none() {
                self.ask_checkpoint();
            }
        }
        self.commit(committed);
        self.match_intervals();
        Ok(())
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

    /// Compares the interval numbers of all participants first (section 4.5.1), and holds the call until that of this
    /// rank is the highest.
    fn handle_collective(&mut self, _: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        if self.call_waits() {
            return Ok(CollectivePlan::Hold);
        }
        if self.call.is_some_and(|call| call.is_refused) {
            return Ok(CollectivePlan::Native { keep: None });
        }
        self.call = Some(Call { interval: self.epoch, is_refused: false, is_due: false });
        self.has_called = true;
        let due = if self.announces { DUE } else { 0 };
        Ok(CollectivePlan::Exchange { word: u64::from(self.epoch.0) | due, scope: Scope::All })
    }

    fn handle_collective_words(
        &mut self,
        _: &CollectiveCall,
        words: &[(Rank, u64)],
    ) -> Result<Option<EntryKey>, ProtocolError> {
        let is_due = words.iter().any(|(_, word)| word & DUE != 0);
        let words = words.iter().map(|(_, word)| *word % DUE);
        let interval = words.max().unwrap_or(0);
        let interval = Epoch(u32::try_from(interval).unwrap_or(u32::MAX).min(Epoch::MAX.0)).max(self.epoch);
        self.call.iter_mut().for_each(|call| (call.interval, call.is_due) = (interval, is_due));
        if self.call_waits() {
            self.effects.push_back(Effect::Resume);
            self.ask_checkpoint();
        }
        Ok(None)
    }

    fn handle_collective_completed(&mut self, _: &CollectiveCall) -> Result<(), ProtocolError> {
        if let Some(Call { interval, is_due: true, .. }) = self.call.take() {
            self.announces = false;
            self.requested = self.requested.max(interval.next().unwrap_or(interval));
        }
        self.ask_checkpoint();
        Ok(())
    }

    fn handle_collective_failed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        self.handle_collective_completed(call)
    }

    fn is_running(&self) -> bool {
        self.member.is_running()
    }

    fn first_checkpoint(&self) -> Option<Snapshot> {
        Some(Snapshot { epoch: Epoch::FIRST, tables: self.tables(0).encode(I::VERSION) })
    }

    /// Returns `false` while many lines are open, and if a checkpoint was requested since the last offer: it was in
    /// place of this one.
    ///
    /// So ranks offering checkpoints at the same points make one line, where the paper makes as many as there are ranks
    /// (section 4.3.1).
    fn wants_checkpoint(&mut self) -> bool {
        let was_taken = std::mem::take(&mut self.was_requested);
        !was_taken && self.epoch.0 - self.member.committed.0 < LINES_MAX
    }

    /// Returns `false` in a program with collectives: after the next one, in which the others hear of it, all take the
    /// checkpoint.
    ///
    /// If it were taken here, a rank with a slower clock would make that call before its own checkpoint, which would
    /// bisect the line (section 4.5.1).
    fn wants_due_checkpoint(&mut self) -> bool {
        if std::mem::take(&mut self.has_called) {
            self.announces = true;
            return false;
        }
        // No call was made since the last time, so no rank has heard of it.
        self.wants_checkpoint()
    }

    /// Begins an interval, and requests the line from all others (section 4.3.1).
    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let open = self.choices.open();
        let choices = self.choices.settled().ok_or(ProtocolError::ChoicesOpen { open })?;
        let epoch = self.epoch.next().ok_or(ProtocolError::EpochsExhausted)?;
        self.was_requested = self.requested >= epoch || self.call_waits();
        self.epoch = epoch;
        (self.announces, self.has_called) = (false, false);
        self.member.is_fresh = false;
        for peer in self.peers() {
            let before = self.channels[peer.index()].begin_interval(epoch);
            self.send_request(peer, epoch, before);
        }
        let copies = self.copies;
        self.lines.push_back(Line { epoch, choices, copies, is_durable: false, is_sealed: false, is_finished: false });
        let tables = self.tables(choices).encode(I::VERSION);
        self.match_intervals();
        self.ask_checkpoint();
        if self.call.is_some() && !self.call_waits() {
            self.effects.push_back(Effect::Resume);
        }
        Ok(Snapshot { epoch, tables })
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let line = self.lines.iter_mut().find(|line| line.epoch == epoch && !line.is_durable);
        line.ok_or(ProtocolError::NotCheckpointing { epoch })?.is_durable = true;
        self.finish_lines();
        Ok(())
    }

    fn handle_log_sealed(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let place = self.lines.iter().position(|line| line.epoch == epoch && line.is_sealed);
        self.finish(place.ok_or(ProtocolError::NotSealing { epoch })?);
        Ok(())
    }

    /// Makes the collective without the preceding checkpoint: the lines in between are never finished.
    fn handle_checkpoint_refused(&mut self) -> Result<(), ProtocolError> {
        if let Some(call) = &mut self.call
            && self.epoch < call.interval
        {
            call.is_refused = true;
            self.bisected = self.bisected.max(call.interval);
            self.effects.push_back(Effect::Resume);
        }
        Ok(())
    }

    /// Restores the newest checkpoint, or after a rollback that of the line.
    ///
    /// Messages in transit and orphans follow with the local-log entries.
    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        let Config { rank, ranks, .. } = self.config;
        let tables = Tables::decode(I::VERSION, tables, rank, ranks)?;
        self.rollbacks += u32::from(self.member.rolls_back());
        self.member = self.member.restored(oldest);
        let epoch = Epoch(tables.epoch);
        let channel = |&(sent, received): &(u64, u64)| Channel::new(epoch, Ssn(sent), Ssn(received));
        self.channels = tables.channels.iter().map(channel).collect();
        self.choices = Choices::resume(tables.choices);
        (self.copies, self.copies_restored) = (tables.copies, tables.copies);
        (self.epoch, self.requested, self.bisected) = (epoch, epoch, epoch);
        (self.call, self.was_requested) = (None, false);
        (self.announces, self.has_called) = (false, false);
        self.lines.clear();
        if self.member.failed {
            self.report();
        }
        self.report_prepared();
        Ok(())
    }

    /// Takes notes first, then copies of messages; presents those in transit over the line.
    fn handle_recovered_entry(&mut self, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let EntryKey { kind, number } = entry;
        let unexpected = ProtocolError::UnexpectedEntry { entry };
        match kind {
            EntryKind::Note => {
                let (line, part) = (Epoch((number >> 32) as u32), number as u32);
                if part == 0 {
                    self.member.committed = self.member.committed.max(line);
                    // The process may have died before it dropped older checkpoints.
                    self.effects.push_back(Effect::KeepCheckpoints { first: self.member.committed, last: self.epoch });
                } else if line == self.epoch {
                    let crossing = encoding::decode_versioned(I::VERSION, bytes).ok_or(unexpected)?;
                    self.channel(Rank(part - 1))?.restore_crossing(crossing);
                }
                Ok(false)
            }
            EntryKind::Message => {
                let (header, _) = WireHeader::split(bytes).map_err(|_| unexpected)?;
                self.copies = self.copies.max(number + 1);
                // Elsewhere it goes back to the line, and comes here again.
                if self.epoch != self.member.committed {
                    return Ok(false);
                }
                let (peer, message) = (header.source(), Message::from(header));
                let is_after_line = number >= self.copies_restored;
                let presented = is_after_line && self.channel(peer)?.present(number, message);
                if !presented {
                    self.discard(EntryKind::Message, number..number + 1);
                }
                Ok(presented)
            }
            _ => Err(unexpected),
        }
    }

    /// Does nothing: messages lost with the connection belong to an ending attempt.
    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        self.check_peer(peer)
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        self.check_peer(peer)?;
        let channel = &self.channels[peer.index()];
        let received = ReceivedSetState { upto: channel.received().0, exceptions: Vec::new() };
        Ok(Hello {
            rank: self.config.rank,
            incarnation: self.number(),
            epoch: self.epoch,
            received: ReceivedSet::restore(&received).unwrap_or_default(),
            covered: (Epoch::FIRST, Ssn::ZERO),
            sent: channel.sent,
            acked: Ssn::ZERO,
            opaque: Vec::new(),
        })
    }

    /// Transmits untransmitted records, and repeats requests possibly missing at the peer.
    ///
    /// Records saved with the checkpoint have the number of an undone attempt, and are discarded: they are in transit
    /// over the line.
    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        self.check_peer(peer)?;
        if hello.rank != peer {
            let how = Misbehaviour::WrongRank { name: hello.rank };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        let (incarnation, now) = (hello.incarnation, self.met[peer.index()]);
        if incarnation < now {
            return Err(ProtocolError::DeadHello { peer, incarnation, now });
        }
        self.met[peer.index()] = incarnation;
        self.effects.push_back(Effect::Replay { peer, incarnation, after: Ssn::ZERO, upto: Ssn::MAX });
        let requests: Vec<_> = self.channels[peer.index()].requests_sent().cloned().collect();
        requests.into_iter().for_each(|(line, before)| self.send_request(peer, line, before));
        Ok(())
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}

impl<I: Identification> ChandyLamport<I> {
    /// Returns the tables for a checkpoint here, covering this many non-deterministic calls.
    fn tables(&self, choices: u64) -> Tables {
        let channel = |channel: &Channel<I>| (channel.sent.0, channel.received().0);
        Tables {
            rank: self.config.rank.0,
            epoch: self.epoch.0,
            choices,
            copies: self.copies,
            channels: self.channels.iter().map(channel).collect(),
        }
    }
}

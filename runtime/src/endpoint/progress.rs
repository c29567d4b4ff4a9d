//! Progress: handles arrived events and transmits what connections take.

use std::time::Duration;

use bytes::Bytes;
use counterfoil::{Rank, Ssn};
use counterfoil_ack_piggyback::{Kind, WireHeader};
use counterfoil_protocols::api::{
    DiscardReason, Effect, Hello, Party, Protocol, ProtocolError, Repetition, command_header,
};

use super::Endpoint;
use super::choices::Probed;
use super::entries::is_entry;
use super::native::is_hop;
use super::synchronous::is_match_notice;
use super::wait::Wait;
use crate::Error;
use crate::damage::{DamageLocation, Expected};
use crate::matching::Message;
use crate::transport::{Event, Interest, Report, Transport};

/// Wait conditions of the current call besides requests; they select the connections to read.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// A send waits for log space: all connections are read, since any may bring an acknowledgement.
    pub(super) log_space: bool,
    /// Destinations of synchronous sends awaiting their matches.
    pub(super) matches: Vec<u32>,
    /// Message awaited by a probe.
    pub(super) probed: Option<Probed>,
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Polls the transport once, handles all events and transmits pending records.
    pub(super) fn progress(&mut self, wait: Wait) -> Result<(), Error> {
        self.check_goes_on()?;
        self.bytes_since_poll = 0;
        let timeout = match wait {
            Wait::Not => Some(Duration::ZERO),
            Wait::Forever => None,
            Wait::AtMost(most) => Some(most),
        };
        let is_selective = !self.reads_all();
        let awaited_room = self.native.awaited_room();
        let writes = awaited_room.is_some() || !self.backlogs.is_empty();
        if is_selective {
            let unwanted_bytes_max = self.unwanted_bytes_max(wait);
            for peer in 0..self.settings.ranks {
                self.interest.0[peer as usize] = self.is_read(peer, unwanted_bytes_max);
            }
        }
        if writes {
            self.interest.1.fill(false);
            for &peer in self.backlogs.iter().chain(&awaited_room) {
                self.interest.1[peer as usize] = true;
            }
        }
        let (read, write) = &self.interest;
        let (read, write) = (is_selective.then_some(&**read), writes.then_some(&**write));
        self.transport.poll(&Interest { read, write, timeout })?;
        while let Some(event) = self.transport.next_event() {
            self.handle_event(event)?;
            self.retry_held()?;
        }
        for peer in self.backlogs.iter().copied().collect::<Vec<_>>() {
            self.transmit(peer)?;
        }
        Ok(())
    }

    /// Returns `true` if few enough messages are queued to read all connections.
    ///
    /// Most calls need to know no more.
    fn reads_all(&self) -> bool {
        let waiting = self.matching.all_unexpected_bytes() + self.native.bytes();
        !self.held.is_holding_any() && waiting < self.settings.unexpected_bytes_max
    }

    /// Returns `true` if the connection to `peer` is read.
    ///
    /// It isn't while many of its messages are unexpected, or many hops wait for their calls, and no receive or probe
    /// could take one: then the peer has to wait. A send waiting for log space reads all connections, since only that
    /// can free space; and a call waiting for a synchronous send reads the receiver's, for the answer.
    fn is_read(&self, peer: u32, unwanted_bytes_max: usize) -> bool {
        let max = self.settings.unexpected_bytes_max;
        if self.awaited.matches.contains(&peer) {
            return true;
        }
        // No receive can take held messages, and they are in order: messages needed by a recovery precede them.
        self.held.bytes_of(peer) < max
            && (self.matching.unexpected_bytes(peer) + self.native.bytes() < max.max(unwanted_bytes_max)
                || self.awaited.log_space
                || self.native.is_open()
                || self.matching.is_awaited(peer)
                || self.awaited.probed.is_some_and(|probed| probed.may_come_from(peer)))
    }

    /// Returns the limit of a peer's unexpected bytes up to which it is read although no receive could take a message.
    ///
    /// While a message is held because another peer's precedes it in the recorded order, that peer has to be read,
    /// however many of its messages are unexpected: a waiting call needs all deliveries that preceded it in the dead
    /// incarnation. A call that doesn't wait has a lower limit.
    fn unwanted_bytes_max(&self, wait: Wait) -> usize {
        let is_ordered = self.properties.repeats == Repetition::SendsAndReceives && self.held.is_holding_any();
        match (is_ordered, wait) {
            (false, _) => 0,
            (true, Wait::Not) => self.settings.unexpected_bytes_limit / 2,
            (true, Wait::Forever | Wait::AtMost(_)) => usize::MAX,
        }
    }

    fn handle_event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Reachable { peer, incarnation } => self.greet(peer, incarnation),
            Event::Connected { peer, incarnation, hello, answer } => {
                self.handle_connected((peer, incarnation), &hello, answer)
            }
            Event::Frame { peer, header, body } => self.handle_frame(peer, &header, body),
            Event::Disconnected { peer } => {
                self.native.lose(peer);
                self.close(peer);
                self.protocol.handle_peer_lost(Rank(peer))?;
                self.carry_out_effects()
            }
            Event::Order { body } => {
                let header = command_header(Rank(self.rank), &body);
                self.protocol.handle_control(Party::Coordinator, &header, &body)?;
                self.carry_out_effects()
            }
            Event::Resume => self.check_recovery(),
            Event::Finish => {
                self.finish = true;
                Ok(())
            }
        }
    }

    fn greet(&mut self, peer: u32, incarnation: u32) -> Result<(), Error> {
        let hello = self.hello(peer)?;
        Ok(self.transport.greet(peer, incarnation, &hello)?)
    }

    fn handle_connected(&mut self, (peer, incarnation): (u32, u32), hello: &[u8], answer: bool) -> Result<(), Error> {
        let hello = Hello::decode(hello).map_err(|source| Error::Hello { peer, source })?;
        if self.is_connected(peer) {
            self.native.lose(peer);
        }
        self.close(peer);
        self.held.clear(peer);
        if answer {
            self.greet(peer, incarnation)?;
        }
        match self.protocol.handle_hello(Rank(peer), &hello) {
            Ok(()) => {}
            Err(ProtocolError::DeadHello { .. }) => {
                self.transport.disconnect(peer);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.note_hello(peer, &hello);
        }
        // A rule assigning new epochs and phases needs its repeated messages to arrive, too.
        self.outbound[peer as usize].received = if self.repeats_sends() { hello.received.upto() } else { Ssn::ZERO };
        self.repeat_match_queries(peer)?;
        self.carry_out_effects()?;
        self.check_recovery()
    }

    fn handle_frame(&mut self, peer: u32, header: &WireHeader, body: Bytes) -> Result<(), Error> {
        if is_match_notice(header) {
            return self.handle_match_notice(peer, header, &body);
        }
        if is_hop(header) {
            return self.handle_hop(peer, header, body);
        }
        if is_entry(header) {
            return self.handle_entry(peer, &body);
        }
        if header.kind() != Kind::Message {
            self.protocol.handle_control(Party::Rank(Rank(peer)), header, &body)?;
            return self.carry_out_effects();
        }
        // Checked before its SSN is used: a damaged SSN could make it a duplicate, which is dropped.
        let expected = Expected { from: peer, to: self.rank, ssn: header.ssn() };
        expected.check(DamageLocation::Arrival, header, &body)?;
        if self.held.is_holding(peer) {
            self.protocol.handle_deferred(header)?;
            self.carry_out_effects()?;
            self.held.push(peer, *header, body);
        } else if !self.offer_message(peer, header, &body)? {
            self.held.push(peer, *header, body);
        }
        Ok(())
    }

    /// Counts a discarded message.
    pub(super) fn note_discarded(&mut self, reason: DiscardReason) {
        if matches!(reason, DiscardReason::Duplicate { .. }) {
            self.tally.duplicates_dropped += 1;
        }
    }

    /// Records a message's arrival, for the first time or again: a recovery may be complete now.
    pub(super) fn note_received(&mut self, peer: u32, ssn: Ssn) -> Result<(), Error> {
        let Some(recovery) = &mut self.recovery else { return Ok(()) };
        recovery.note_received(peer, ssn);
        self.check_recovery()
    }

    /// Matches a fresh message with a posted receive, or keeps it as unexpected.
    pub(super) fn match_message(&mut self, message: Message) -> Result<(), Error> {
        let peer = message.source;
        if let Some((id, message)) = self.matching.handle_message(message) {
            return self.complete(id, message);
        }
        let (bytes, max) = (self.matching.unexpected_bytes(peer), self.settings.unexpected_bytes_limit);
        if bytes > max && peer != self.rank {
            return Err(Error::Unexpected { peer, bytes, max });
        }
        Ok(())
    }

    /// Carries out effects requested by the protocol.
    pub(super) fn carry_out_effects(&mut self) -> Result<(), Error> {
        while let Some(effect) = self.protocol.poll_effect() {
            match effect {
                Effect::Transmit { to: Party::Rank(to), header, body } => {
                    self.transport.send_control(to.0, &header, &[&body])?;
                }
                Effect::Transmit { to: Party::Coordinator, body, .. } => {
                    self.transport.report(Report::ToCoordinator { body })?;
                }
                Effect::Acknowledged { peer, ack, phase, keep } => {
                    let news = ack.ssn.0.saturating_sub(self.log.acked(peer).0);
                    let (count, done) = match keep {
                        true => (&mut self.tally.messages_kept, self.log.acknowledge(peer, ack, phase)),
                        false => {
                            (&mut self.tally.messages_released, self.log.acknowledge_and_release(peer, ack, phase))
                        }
                    };
                    *count += news;
                    done.map_err(|source| Error::Acknowledge { peer: peer.0, source })?;
                }
                // The log keeps uncovered records, acknowledged or not.
                Effect::ReceiverRolledBack { .. } => {}
                Effect::Covered { peer, epoch, upto } => self.cover(peer.0, epoch, upto)?,
                // A rank has one connection to each peer, so the replay goes to the one that brought the Hello.
                // Messages to itself are delivered as they are sent, and are never in flight.
                Effect::Replay { peer, .. } if peer.0 == self.rank => {}
                Effect::Replay { peer, after, upto, .. } => self.replay(peer.0, after, upto)?,
                Effect::DiscardChoices { before, epoch } => self.discard_sealed(epoch, before)?,
                Effect::DiscardDeliveries { .. } => {
                    let epoch = self.protocol.epoch();
                    self.discard_sealed(epoch, u64::MAX)?;
                }
                Effect::Resume => {
                    self.held.schedule_retry();
                    self.transmit_held()?;
                    self.native.resume();
                }
                Effect::KeepEntry { entry, bytes } => self.keep_entry(entry, bytes.into())?,
                Effect::SendEntry { to, entry } => self.send_entry(to, entry)?,
                Effect::DiscardEntries { kind, first, last } => self.discard_entries(kind, first, last)?,
                Effect::SealLog { epoch } => self.seal_log(epoch)?,
                Effect::TakeCheckpoint => self.asked.is_asked = true,
                Effect::RunCollective { call } => self.native.push_again(call),
                Effect::KeepCheckpoints { first, last } => self.keep_checkpoints(first, last)?,
                Effect::RollBack { epoch } => self.roll_back(epoch)?,
                Effect::SaveAndExit { saves } => self.begin_exit(saves)?,
                other => return Err(Error::Unsupported { effect: format!("{other:?}") }),
            }
        }
        Ok(())
    }

    /// Returns the SSN up to which the protocol's tables have all messages from `peer`.
    pub(super) fn received_upto(&self, peer: u32) -> Result<Ssn, Error> {
        if peer == self.rank {
            return Ok(Ssn::ZERO);
        }
        Ok(self.protocol.hello(Rank(peer))?.received.upto())
    }
}

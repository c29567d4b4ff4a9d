//! Progress: what has come is taken in, what can go out goes out.

use std::time::Duration;

use bytes::Bytes;
use counterfoil::{Rank, Ssn};
use counterfoil_ack_piggyback::{Kind, WireHeader};
use counterfoil_protocols::frame::{DiscardReason, Effect, Hello, Party, Protocol, ProtocolError};
use counterfoil_protocols::send_deterministic::order_header;

use super::Endpoint;
use super::recovery::Recovery;
use crate::Error;
use crate::damage::{Expected, Place};
use crate::matching::Message;
use crate::transport::{Event, Interest, Report, Transport};

/// How long to wait for something to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not at all.
    Not,
    /// As long as it takes.
    Forever,
    /// At most this long.
    AtMost(Duration),
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Sends what can be sent, takes in what has come, and waits for it if it has to.
    pub(super) fn progress(&mut self, wait: Wait) -> Result<(), Error> {
        self.sent_unseen_bytes = 0;
        let timeout = match wait {
            Wait::Not => Some(Duration::ZERO),
            Wait::Forever => None,
            Wait::AtMost(most) => Some(most),
        };
        let more_bytes_max = self.more_bytes_max(wait);
        for peer in 0..self.settings.ranks {
            self.interest.0[peer as usize] = self.is_read(peer, more_bytes_max);
            self.interest.1[peer as usize] = self.outlets[peer as usize].is_behind;
        }
        let (read, write) = &self.interest;
        self.transport.poll(&Interest { read, write, timeout })?;
        while let Some(event) = self.transport.next_event() {
            self.handle_event(event)?;
            self.present_held()?;
        }
        for peer in 0..self.settings.ranks {
            if self.outlets[peer as usize].is_behind {
                self.transmit(peer)?;
            }
        }
        Ok(())
    }

    /// Whether to read what `peer` sends. Not if much of it waits already and nobody asks for it: then the peer has to
    /// wait, too. But a sender without room reads everything, since only that can bring it room.
    fn is_read(&self, peer: u32, more_bytes_max: usize) -> bool {
        let max = self.settings.unexpected_bytes_max;
        // What waits for the rule is nobody's to take, and in order: what a recovery needs comes before it.
        self.standing.held_bytes(peer) < max
            && (self.matching.unexpected_bytes(peer) < max.max(more_bytes_max)
                || self.starved
                || self.matching.is_awaited(peer))
    }

    /// How much of a peer's messages is read though nobody asks for it. While one is held because another peer's comes before it in
    /// the recorded order, that one has to be read, whatever of that peer waits: what is delivered before the program can go on
    /// is what was delivered before. A program that only looks in takes no more than it has to.
    fn more_bytes_max(&self, wait: Wait) -> usize {
        let is_ordered = self.settings.rule.repeats_receive_order() && self.standing.is_holding_any();
        match (is_ordered, wait) {
            (false, _) => 0,
            (true, Wait::Not) => self.settings.unexpected_bytes_limit / 2,
            (true, Wait::Forever | Wait::AtMost(_)) => usize::MAX,
        }
    }

    fn handle_event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Met { peer, incarnation, hello, answer } => self.handle_met((peer, incarnation), &hello, answer),
            Event::Frame { peer, header, body } => self.handle_frame(peer, &header, body),
            Event::Lost { peer } => {
                self.outlets[peer as usize].close();
                self.protocol.handle_peer_lost(Rank(peer))?;
                self.carry_out_effects()
            }
            Event::Order { body } => {
                let header = order_header(Rank(self.rank), &body);
                self.protocol.handle_control(Party::Coordinator, &header, &body)?;
                self.carry_out_effects()
            }
            Event::Resume => {
                self.recovery.iter_mut().for_each(Recovery::resume);
                self.check_recovery()
            }
            Event::Finish => {
                self.finish = true;
                Ok(())
            }
        }
    }

    fn handle_met(&mut self, (peer, incarnation): (u32, u32), hello: &[u8], answer: bool) -> Result<(), Error> {
        let hello = Hello::decode(hello).map_err(|source| Error::Hello { peer, source })?;
        self.outlets[peer as usize].close();
        self.standing.forget(peer);
        if answer {
            let own = self.protocol.hello(Rank(peer))?;
            let own = own.encode().map_err(|source| Error::Hello { peer, source })?;
            self.transport.greet(peer, incarnation, &own)?;
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
        self.carry_out_effects()?;
        self.check_recovery()
    }

    fn handle_frame(&mut self, peer: u32, header: &WireHeader, body: Bytes) -> Result<(), Error> {
        if header.kind() != Kind::Message {
            self.protocol.handle_control(Party::Rank(Rank(peer)), header, &body)?;
            return self.carry_out_effects();
        }
        // Before anything in it is believed: as another one it might be a duplicate, and be dropped.
        let expected = Expected { from: peer, to: self.rank, ssn: header.ssn() };
        expected.check(Place::Arrival, header, &body)?;
        if self.standing.is_holding(peer) {
            self.protocol.handle_waiting(header)?;
            self.carry_out_effects()?;
            self.standing.hold(peer, *header, body);
        } else if !self.present(peer, header, &body)? {
            self.standing.hold(peer, *header, body);
        }
        Ok(())
    }

    /// A message was dropped.
    pub(super) fn note_discarded(&mut self, reason: DiscardReason) {
        if matches!(reason, DiscardReason::Duplicate { .. }) {
            self.tally.duplicates_dropped += 1;
        }
    }

    /// A message has come, for the first time or again: a recovery may be over.
    pub(super) fn note_received(&mut self, peer: u32, ssn: Ssn) -> Result<(), Error> {
        let Some(recovery) = &mut self.recovery else { return Ok(()) };
        recovery.note_received(peer, ssn);
        self.check_recovery()
    }

    /// A fresh message: a posted receive takes it, or it waits.
    pub(super) fn arrive(&mut self, message: Message) -> Result<(), Error> {
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

    /// Does what the protocol asks for.
    pub(super) fn carry_out_effects(&mut self) -> Result<(), Error> {
        while let Some(effect) = self.protocol.poll_effect() {
            match effect {
                Effect::Transmit { to: Party::Rank(to), header, body } => {
                    self.transport.send_control(to.0, &header, &body)?;
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
                // The log keeps what isn't covered, acknowledged or not.
                Effect::ReceiverRolledBack { .. } => {}
                Effect::Covered { peer, epoch, upto } => self.cover(peer.0, epoch, upto)?,
                // The connection that the Hello came on is the only one that there is: a newer one takes its place.
                // Messages to itself are delivered as they are sent, and are never under way.
                Effect::Replay { peer, .. } if peer.0 == self.rank => {}
                Effect::Replay { peer, after, upto, .. } => self.replay(peer.0, after, upto)?,
                Effect::DiscardChoices { .. } | Effect::DiscardDeliveries { .. } => {
                    let epoch = self.protocol.epoch();
                    self.log.local().discard_sealed(epoch);
                }
                Effect::Resume => self.standing.resume(),
                Effect::KeepCheckpoints { first, last } => self.keep_checkpoints(first, last)?,
                Effect::RollBack { epoch } => self.go_back(epoch)?,
                other => return Err(Error::Unsupported { effect: format!("{other:?}") }),
            }
        }
        Ok(())
    }

    /// All from `peer` up to here is in the protocol's tables.
    pub(super) fn received_upto(&self, peer: u32) -> Result<Ssn, Error> {
        if peer == self.rank {
            return Ok(Ssn::ZERO);
        }
        Ok(self.protocol.hello(Rank(peer))?.received.upto())
    }
}

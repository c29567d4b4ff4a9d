//! Sending: appends a message to the log, and transmits it from there as often as needed.
//!
//! ```text
//! Communicator::send, isend        a call of the program (communicator.rs); isend_internal: of a collective
//!   isend_in -> post_send          in a context (contexts.rs), with a request (endpoint.rs)
//!     send_message                 logs, traces and transmits
//!       append -> Log::claim       a record in memory: src/log.rs, log-core/src/lanes.rs
//!         if memory is short       to disk: src/budget/disk.rs, src/spill.rs, src/spill/worker.rs, log-io/src/store/
//!       transmit -> send_record    from the record to the peer: local/sockets.rs, or mpi/src/transport.rs
//! ```

use std::collections::BTreeSet;
use std::time::Instant;

use counterfoil::{
    Ack, AppendError, Cursor, CursorError, Diverged, Envelope, Epoch, Log, OnFull, Phase, Rank, RepeatError,
    ReplayError, Ssn,
};
use counterfoil_ack_piggyback::WireHeader;
use counterfoil_protocols::api::{Kept, Outgoing, Protocol, Transmission};

use bytes::Bytes;

use super::Endpoint;
use super::wait::Wait;
use crate::Error;
use crate::damage::{DamageLocation, Expected};
use crate::history::Event;
use crate::matching::Message;
use crate::replay::RecordEnd;
use crate::tally::Tally;
use crate::transport::{Step, Transport};

/// Bytes (header and payload) until a sender polls the transport, mainly for acknowledgements and failures.
pub(super) const POLL_EVERY_BYTES: usize = 64 << 10;
/// Maximum number of sends until a sender polls.
pub(super) const POLL_EVERY_SENDS: usize = 32;

/// Transmission state for one rank.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// Next record to transmit; `None` while the peer isn't connected.
    cursor: Option<Cursor>,
    /// Last record to transmit.
    upto: Ssn,
    /// Header of the partly sent record at the cursor, and the number of bytes sent.
    partial: Option<(WireHeader, usize)>,
    /// Position in a dead incarnation's records, repeated by this one.
    repeated: Option<Cursor>,
    /// SSN of the program's last sent message.
    pub(super) sent: Ssn,
    /// Highest SSN ever on the wire, in this incarnation or a dead one.
    pub(super) transmitted: Ssn,
    /// Last message in the prefix received by the peer, by its hello.
    pub(super) received: Ssn,
    /// Coverage by a peer's durable checkpoint, ahead of this execution's sends.
    pub(super) pending_coverage: Option<(Epoch, Ssn)>,
    /// First record held until the rule releases it and its successors.
    pub(super) held_from: Option<Ssn>,
    /// Records never to be transmitted.
    suppressed: BTreeSet<Ssn>,
}

impl Outbound {
    /// Obeys the rule's verdict on a send.
    fn obey(&mut self, outgoing: &Outgoing, keeps: Kept, tally: &mut Tally) -> Result<(), Error> {
        let Outgoing { header, keep_record, transmission } = outgoing;
        if *keep_record == (keeps == Kept::Nothing) {
            return Err(Error::Unsupported { effect: format!("to keep a record: {keep_record}") });
        }
        match transmission {
            Transmission::Now => {}
            Transmission::Hold => drop(self.held_from.get_or_insert(header.ssn())),
            Transmission::Suppress => {
                self.suppressed.insert(header.ssn());
                tally.sends_suppressed += 1;
            }
        }
        Ok(())
    }

    /// Resets the transmission after the connection has closed.
    fn close(&mut self) {
        self.cursor = None;
        self.partial = None;
        self.received = Ssn::ZERO;
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Returns `true` if a peer's hello was handled on the current connection.
    pub(super) fn is_connected(&self, peer: u32) -> bool {
        peer == self.rank || self.outbound[peer as usize].cursor.is_some()
    }

    /// Resets the transmission to a peer after the connection has closed.
    pub(super) fn close(&mut self, peer: u32) {
        self.outbound[peer as usize].close();
        self.backlogs.remove(&peer);
    }

    /// Logs a message and begins to transmit it.
    ///
    /// Traces it in between, when a crash can no longer undo it.
    pub(super) fn send_message(
        &mut self,
        to: u32,
        tag: i32,
        comm: u32,
        payload: &[u8],
        is_synchronous: bool,
    ) -> Result<Ssn, Error> {
        self.await_running()?;
        self.take_asked_checkpoint()?;
        self.record_polls()?;
        let envelope =
            Envelope { source: Rank(self.rank), destination: Rank(to), tag, comm, len: payload.len() as u64 };
        if to == self.rank && !self.repeats_sends() {
            self.trace.send(to, tag, comm, payload)?;
            return self.send_unlogged_to_self(&envelope, payload, is_synchronous);
        }
        let header = match self.log.rewound_to(Rank(to)) {
            Some(_) => self.repeat(&envelope, payload)?,
            None if self.transport.repeats_only() => {
                return Err(RecordEnd::Send { to, ssn: self.log.next_ssn(Rank(to)).0 }.into());
            }
            None => self.append(&envelope, payload)?,
        };
        self.end_step(Step::Logged { context: comm })?;
        self.sync_choices()?;
        self.trace.send(to, tag, comm, payload)?;
        self.record(|_| Event::Send { to, comm, tag })?;
        self.outbound[to as usize].sent = header.ssn();
        self.apply_pending_coverage(to)?;
        self.carry_out_effects()?;
        if is_synchronous {
            self.expect_match(to, header.ssn())?;
        }
        if to == self.rank {
            if self.properties.keeps == Kept::Nothing {
                release(&mut self.log, self.protocol.epoch(), to, header.ssn())?;
            }
            self.deliver_to_self(&header, payload)?;
        } else {
            self.transmit(to)?;
        }
        self.bytes_since_poll += (WireHeader::LEN + payload.len()).max(POLL_EVERY_BYTES / POLL_EVERY_SENDS);
        if self.bytes_since_poll >= POLL_EVERY_BYTES {
            self.progress(Wait::Not)?;
        }
        self.advance_recovery()?;
        Ok(header.ssn())
    }

    /// Appends a message to its lane.
    ///
    /// If the log is full, waits for space as set.
    fn append(&mut self, envelope: &Envelope, payload: &[u8]) -> Result<WireHeader, Error> {
        let to = envelope.destination;
        let mut waiting_since = None;
        loop {
            self.await_running()?;
            let source = match self.log.claim(to, WireHeader::LEN, payload.len()) {
                Ok(mut claim) => {
                    // Claim first: an SSN assigned by the protocol can't be returned.
                    let mut outgoing = self.protocol.handle_send(envelope)?;
                    let outbound = &mut self.outbound[to.index()];
                    outbound.obey(&outgoing, self.properties.keeps, &mut self.tally)?;
                    claim.payload_mut().copy_from_slice(payload);
                    // The checksum covers the program's own bytes, so that it also verifies the copy.
                    outgoing.header.seal(payload);
                    claim.prefix_mut().copy_from_slice(outgoing.header.as_bytes());
                    let ssn = claim.commit();
                    debug_assert_eq!(ssn, outgoing.header.ssn(), "log and protocol assign the same SSNs");
                    self.awaited.log_space = false;
                    self.tally.messages_logged += 1;
                    self.tally.bytes_logged += payload.len() as u64;
                    return Ok(outgoing.header);
                }
                Err(source) => *source,
            };
            let is_full = matches!(source, AppendError::Full(_) | AppendError::DiskRefused(_));
            let may_wait = is_full && self.settings.on_full != OnFull::Fail;
            if !may_wait {
                return Err(Error::Append { to: to.0, source });
            }
            let waited = waiting_since.get_or_insert_with(Instant::now).elapsed();
            let rest = self.settings.full_wait_max.saturating_sub(waited);
            if rest.is_zero() {
                return Err(Error::StillFull { to: to.0, waited, source });
            }
            self.awaited.log_space = true;
            self.progress(Wait::AtMost(rest))?;
        }
    }

    /// Returns the first difference tolerated since the last call.
    pub fn take_divergence(&mut self) -> Option<Diverged> {
        self.divergence.take()
    }

    /// Repeats a send committed by a dead incarnation: it must be the same message.
    ///
    /// Epoch and phase aren't compared: they belong to the protocol, and a phase may depend on the receive order. The
    /// committed record is transmitted.
    fn repeat(&mut self, envelope: &Envelope, payload: &[u8]) -> Result<WireHeader, Error> {
        let mut outgoing = self.protocol.handle_send(envelope)?;
        let to = envelope.destination;
        self.outbound[to.index()].obey(&outgoing, self.properties.keeps, &mut self.tally)?;
        let before = self.committed_envelope(to, outgoing.header.ssn())?;
        let ssn = match self.log.repeat(to, payload) {
            Err(RepeatError::Diverged(other)) if self.settings.tolerates_divergence && other.has_same_length() => {
                self.tally.sends_diverged += 1;
                self.divergence.get_or_insert(other);
                self.log.repeat_as_recorded(to)?
            }
            repeated => repeated?,
        };
        debug_assert_eq!(ssn, outgoing.header.ssn(), "log and protocol assign the same SSNs");
        if let Some(before) = before.filter(|before| before != envelope) {
            return Err(Error::DivergedEnvelope { to: to.0, ssn: ssn.0, before, now: *envelope });
        }
        outgoing.header.seal(payload);
        self.tally.messages_logged += 1;
        self.tally.bytes_logged += payload.len() as u64;
        self.tally.sends_repeated += 1;
        Ok(outgoing.header)
    }

    /// Returns the envelope with which a dead incarnation committed message `ssn`; `None` if the record was collected
    /// since.
    ///
    /// Called in SSN order.
    fn committed_envelope(&mut self, to: Rank, ssn: Ssn) -> Result<Option<Envelope>, Error> {
        let outbound = &mut self.outbound[to.index()];
        let mut cursor = match outbound.repeated.take() {
            Some(cursor) => cursor,
            None => cursor_from(&mut self.log, to.0, ssn).map_err(|source| Error::Replay { peer: to.0, source })?,
        };
        let expected = Expected { from: self.rank, to: to.0, ssn };
        let failed = |source| Error::Replay { peer: to.0, source };
        let header = match cursor.peek().map_err(failed)?.filter(|record| record.ssn() == ssn) {
            Some(record) => Some(expected.check_record(DamageLocation::Log, record.prefix(), record.payload())?),
            None => None,
        };
        if header.is_some() {
            cursor.advance();
        }
        // A cursor pins the records from its position on, so drop it after the last one.
        if ssn.next() < self.log.next_ssn(to) {
            outbound.repeated = Some(cursor);
        }
        Ok(header.map(|header| header.envelope()))
    }

    /// Delivers a message from this rank to itself: like any other, without a connection.
    fn deliver_to_self(&mut self, header: &WireHeader, payload: &[u8]) -> Result<(), Error> {
        let payload = Bytes::copy_from_slice(payload);
        let expected = Expected { from: self.rank, to: self.rank, ssn: header.ssn() };
        expected.check(DamageLocation::Arrival, header, &payload)?;
        if self.held.is_holding(self.rank) || !self.offer_message(self.rank, header, &payload)? {
            self.held.push(self.rank, *header, payload);
        }
        // Held messages from others may follow it in the recorded order.
        self.retry_held()
    }

    /// Sends a message to this rank itself outside log and rule: a checkpoint has it among the received messages.
    fn send_unlogged_to_self(
        &mut self,
        envelope: &Envelope,
        payload: &[u8],
        is_synchronous: bool,
    ) -> Result<Ssn, Error> {
        self.to_self += 1;
        if is_synchronous {
            self.expect_match(self.rank, Ssn(self.to_self))?;
        }
        let Envelope { tag, comm, .. } = *envelope;
        let (ssn, payload) = (self.to_self, Bytes::copy_from_slice(payload));
        self.match_message(Message { source: self.rank, tag, comm, ssn, payload })?;
        Ok(Ssn(ssn))
    }

    /// Sends as many records to `peer` as its connection takes.
    pub(super) fn transmit(&mut self, peer: u32) -> Result<(), Error> {
        let outbound = &mut self.outbound[peer as usize];
        self.backlogs.remove(&peer);
        let Some(cursor) = &mut outbound.cursor else { return Ok(()) };
        let failed = |source| Error::Replay { peer, source };
        let upto = outbound.held_from.map_or(outbound.upto, |held| held.prev().min(outbound.upto));
        while let Some(record) = cursor.peek().map_err(failed)?.filter(|record| record.ssn() <= upto) {
            let ssn = record.ssn();
            if ssn <= outbound.received || outbound.suppressed.remove(&ssn) {
                // A repetition of a message sent by a dead incarnation.
                outbound.transmitted = outbound.transmitted.max(ssn);
                cursor.advance();
                continue;
            }
            let (header, offset) = match outbound.partial {
                Some(partial) => partial,
                None => {
                    let expected = Expected { from: self.rank, to: peer, ssn };
                    let mut header = if ssn <= outbound.transmitted {
                        expected.check_record(DamageLocation::Log, record.prefix(), record.payload())?
                    } else {
                        // First transmission: only the receiver verifies it.
                        expected.parse(DamageLocation::Log, record.prefix())?
                    };
                    self.protocol.handle_transmit(&mut header)?;
                    (header, 0)
                }
            };
            let end = WireHeader::LEN + record.payload().len();
            let offset = offset + self.transport.send_record(peer, &header, record.payload(), offset)?;
            if offset < end {
                // The header is kept: the protocol counts its piggybacked acknowledgement as sent.
                outbound.partial = Some((header, offset));
                self.backlogs.insert(peer);
                return Ok(());
            }
            outbound.partial = None;
            if ssn <= outbound.transmitted {
                self.tally.messages_replayed += 1;
            }
            outbound.transmitted = outbound.transmitted.max(ssn);
            cursor.advance();
            if self.properties.keeps == Kept::Nothing {
                release(&mut self.log, self.protocol.epoch(), peer, ssn)?;
            }
        }
        Ok(())
    }

    /// Transmits held records.
    pub(super) fn transmit_held(&mut self) -> Result<(), Error> {
        for peer in 0..self.settings.ranks {
            if self.outbound[peer as usize].held_from.take().is_some() {
                self.transmit(peer)?;
            }
        }
        Ok(())
    }

    /// Moves the transmission to `peer` to the records after `after`, up to `upto`.
    pub(super) fn replay(&mut self, peer: u32, after: Ssn, upto: Ssn) -> Result<(), Error> {
        // Transmitted or checkpointed records are released: on disk they may still be there, with their successors
        // gone.
        let after = match self.properties.keeps {
            Kept::Nothing => after.max(self.outbound[peer as usize].transmitted),
            _ => after,
        };
        // Under a rule keeping logged messages only, the re-execution resends released ones. Records dropped because
        // the log was full can't be sent again.
        let may_skip =
            matches!(self.properties.keeps, Kept::Logged | Kept::Nothing) && !self.log.stats().stopped_logging;
        let cursor = match may_skip {
            true => cursor_from(&mut self.log, peer, after.next()),
            false => self.log.cursor(Rank(peer), after.next()),
        };
        let cursor = cursor.map_err(|source| Error::Replay { peer, source })?;
        let outbound = &mut self.outbound[peer as usize];
        outbound.cursor = Some(cursor);
        outbound.upto = upto;
        outbound.partial = None;
        self.transmit(peer)
    }

    /// Applies a coverage that arrived before the re-execution had sent the covered messages.
    fn apply_pending_coverage(&mut self, peer: u32) -> Result<(), Error> {
        let outbound = &mut self.outbound[peer as usize];
        let sent = outbound.sent;
        match outbound.pending_coverage.take_if(|(_, upto)| *upto <= sent) {
            Some((epoch, upto)) => self.cover(peer, epoch, upto),
            None => Ok(()),
        }
    }

    /// Collects records: a durable checkpoint on `peer` covers the messages to it up to `upto`.
    pub(super) fn cover(&mut self, peer: u32, epoch: Epoch, upto: Ssn) -> Result<(), Error> {
        if upto >= self.log.next_ssn(Rank(peer)) {
            self.outbound[peer as usize].pending_coverage = Some((epoch, upto));
            return Ok(());
        }
        let failed = |source| Error::Acknowledge { peer, source };
        self.log.receiver_covered(Rank(peer), epoch, upto).map_err(failed)?;
        self.log.collect();
        Ok(())
    }
}

/// Releases the records to `peer` up to `ssn`, under a rule that keeps none.
fn release(log: &mut Log, epoch: Epoch, peer: u32, ssn: Ssn) -> Result<(), Error> {
    let released = log.acknowledge_and_release(Rank(peer), Ack { ssn, epoch }, Phase::default());
    released.map_err(|source| Error::Acknowledge { peer, source })
}

/// Opens a cursor on the records to `peer`, from `from` or from the first one kept.
pub(crate) fn cursor_from(log: &mut Log, peer: u32, from: Ssn) -> Result<Cursor, ReplayError> {
    match log.cursor(Rank(peer), from) {
        Err(ReplayError::Cursor(CursorError::Gone { kept_from, .. })) => log.cursor(Rank(peer), kept_from),
        other => other,
    }
}

//! Sending: a message goes into the log first, and from there to its receiver, as often as it takes.

use std::time::Instant;

use counterfoil::{AppendError, Cursor, CursorError, Envelope, Log, Rank, ReplayError, Ssn};
use counterfoil_ack_piggyback::WireHeader;
use counterfoil_protocols::frame::{Protocol, Transmission};

use bytes::Bytes;

use super::Endpoint;
use super::progress::Wait;
use crate::Error;
use crate::damage::{Expected, Place};
use crate::matching::Message;
use crate::settings::{LogOnFull, Rule};
use crate::transport::Transport;

/// Bytes (header and payload) after which a sender looks at what has come: acknowledgements, above all.
const LOOK_EVERY_BYTES: usize = 64 << 10;

/// Where transmission to one rank is.
#[derive(Debug, Default)]
pub(super) struct Outlet {
    /// The next record to transmit; `None` while the peer isn't met.
    cursor: Option<Cursor>,
    /// The last record to transmit.
    upto: Ssn,
    /// The header of the record at the cursor, and how many bytes of the record were taken.
    begun: Option<(WireHeader, usize)>,
    /// What a dead incarnation had committed and this one sends again: where that is.
    repeated: Option<Cursor>,
    /// The last message that was given a number.
    pub(super) sent: Ssn,
    /// The highest number that was ever on the wire, in this incarnation or a dead one.
    pub(super) transmitted: Ssn,
    /// A durable checkpoint of the peer covers more than this execution has sent.
    pub(super) covered_ahead: Option<(counterfoil::Epoch, Ssn)>,
    /// The connection took less than there is.
    pub(super) is_behind: bool,
}

impl Outlet {
    /// The connection is gone.
    pub(super) fn close(&mut self) {
        self.cursor = None;
        self.begun = None;
        self.is_behind = false;
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Logs a message and begins to transmit it.
    pub(super) fn send_message(&mut self, to: u32, tag: i32, comm: u32, payload: &[u8]) -> Result<(), Error> {
        self.await_running()?;
        self.trace.send(to, tag, comm, payload)?;
        let envelope =
            Envelope { source: Rank(self.rank), destination: Rank(to), tag, comm, len: payload.len() as u64 };
        if to == self.rank && !self.settings.rule.keeps_every_message() {
            return self.keep_for_self(&envelope, payload);
        }
        let header = match self.log.rewound_to(Rank(to)) {
            Some(_) => self.repeat(&envelope, payload)?,
            None => self.append(&envelope, payload)?,
        };
        self.settle_choices()?;
        self.outlets[to as usize].sent = header.ssn();
        self.take_covered_ahead(to)?;
        self.carry_out_effects()?;
        if to == self.rank {
            self.deliver_to_self(&header, payload)?;
        } else {
            self.transmit(to)?;
        }
        self.sent_unseen_bytes += WireHeader::LEN + payload.len();
        if self.sent_unseen_bytes >= LOOK_EVERY_BYTES {
            self.progress(Wait::Not)?;
        }
        self.hold_recovery()
    }

    /// Appends a message to its lane. At the budget it waits for room, as the settings say.
    fn append(&mut self, envelope: &Envelope, payload: &[u8]) -> Result<WireHeader, Error> {
        let to = envelope.destination;
        let mut waiting_since = None;
        loop {
            self.await_running()?;
            let source = match self.log.claim(to, WireHeader::LEN, payload.len()) {
                Ok(mut claim) => {
                    // The claim comes first: a number that was given out is never taken back.
                    let mut outgoing = self.protocol.handle_send(envelope)?;
                    if outgoing.transmission != Transmission::Now {
                        return Err(Error::Unsupported { effect: format!("{:?}", outgoing.transmission) });
                    }
                    claim.payload_mut().copy_from_slice(payload);
                    // Over the program's own bytes: the copy is checked with everything that comes after it.
                    outgoing.header.seal(payload);
                    claim.prefix_mut().copy_from_slice(outgoing.header.as_bytes());
                    let ssn = claim.commit();
                    debug_assert_eq!(ssn, outgoing.header.ssn(), "log and protocol count alike");
                    self.starved = false;
                    self.tally.messages_logged += 1;
                    self.tally.bytes_logged += payload.len() as u64;
                    return Ok(outgoing.header);
                }
                Err(source) => *source,
            };
            let is_full = matches!(source, AppendError::Full(_) | AppendError::DiskRefused(_));
            let may_wait = is_full && self.settings.on_full != LogOnFull::Fail;
            if !may_wait {
                return Err(Error::Append { to: to.0, source });
            }
            let waited = waiting_since.get_or_insert_with(Instant::now).elapsed();
            let rest = self.settings.full_wait_max.saturating_sub(waited);
            if rest.is_zero() {
                return Err(Error::StillFull { to: to.0, waited, source });
            }
            self.starved = true;
            self.progress(Wait::AtMost(rest))?;
        }
    }

    /// Sends again what a dead incarnation had committed: it has to be the same message. Epoch and phase need not be
    /// compared: they are the protocol's, and a phase may depend on the order in which messages came. What is transmitted
    /// is the record as it was committed.
    fn repeat(&mut self, envelope: &Envelope, payload: &[u8]) -> Result<WireHeader, Error> {
        let mut outgoing = self.protocol.handle_send(envelope)?;
        let to = envelope.destination;
        let before = self.committed_envelope(to, outgoing.header.ssn())?;
        let ssn = self.log.repeat(to, payload)?;
        debug_assert_eq!(ssn, outgoing.header.ssn(), "log and protocol count alike");
        if let Some(before) = before.filter(|before| before != envelope) {
            return Err(Error::DivergedEnvelope { to: to.0, ssn: ssn.0, before, now: *envelope });
        }
        outgoing.header.seal(payload);
        self.tally.messages_logged += 1;
        self.tally.bytes_logged += payload.len() as u64;
        self.tally.sends_repeated += 1;
        Ok(outgoing.header)
    }

    /// The envelope with which a dead incarnation committed a message, in the order of the re-execution; `None` if the
    /// record was collected since.
    fn committed_envelope(&mut self, to: Rank, ssn: Ssn) -> Result<Option<Envelope>, Error> {
        let outlet = &mut self.outlets[to.index()];
        let mut cursor = match outlet.repeated.take() {
            Some(cursor) => cursor,
            None => cursor_from(&mut self.log, to.0, ssn).map_err(|source| Error::Replay { peer: to.0, source })?,
        };
        let expected = Expected { from: self.rank, to: to.0, ssn };
        let failed = |source| Error::Replay { peer: to.0, source };
        let header = match cursor.peek().map_err(failed)?.filter(|record| record.ssn() == ssn) {
            Some(record) => Some(expected.check_record(Place::Log, record.prefix(), record.payload())?),
            None => None,
        };
        if header.is_some() {
            cursor.advance();
        }
        // A cursor keeps what comes after it from being freed: none is needed behind the last.
        if ssn.next() < self.log.next_ssn(to) {
            outlet.repeated = Some(cursor);
        }
        Ok(header.map(|header| header.envelope()))
    }

    /// A message to this rank itself takes the same way, without a connection.
    fn deliver_to_self(&mut self, header: &WireHeader, payload: &[u8]) -> Result<(), Error> {
        let payload = Bytes::copy_from_slice(payload);
        let expected = Expected { from: self.rank, to: self.rank, ssn: header.ssn() };
        expected.check(Place::Arrival, header, &payload)?;
        if self.standing.is_holding(self.rank) || !self.present(self.rank, header, &payload)? {
            self.standing.hold(self.rank, *header, payload);
        }
        // It may be what others wait for.
        self.present_held()
    }

    /// A message to this rank itself is part of what it has received, and no business of the rule.
    fn keep_for_self(&mut self, envelope: &Envelope, payload: &[u8]) -> Result<(), Error> {
        self.standing.to_self += 1;
        let Envelope { tag, comm, .. } = *envelope;
        let (ssn, payload) = (self.standing.to_self, Bytes::copy_from_slice(payload));
        self.arrive(Message { source: self.rank, tag, comm, ssn, payload })
    }

    /// Sends as many records to `peer` as its connection takes.
    pub(super) fn transmit(&mut self, peer: u32) -> Result<(), Error> {
        let outlet = &mut self.outlets[peer as usize];
        outlet.is_behind = false;
        let Some(cursor) = &mut outlet.cursor else { return Ok(()) };
        let failed = |source| Error::Replay { peer, source };
        while let Some(record) = cursor.peek().map_err(failed)?.filter(|record| record.ssn() <= outlet.upto) {
            let ssn = record.ssn();
            let (header, offset) = match outlet.begun {
                Some(begun) => begun,
                None => {
                    let expected = Expected { from: self.rank, to: peer, ssn };
                    let mut header = if ssn <= outlet.transmitted {
                        expected.check_record(Place::Log, record.prefix(), record.payload())?
                    } else {
                        // It has only just been written.
                        expected.parse(Place::Log, record.prefix())?
                    };
                    self.protocol.handle_transmit(&mut header)?;
                    (header, 0)
                }
            };
            let end = WireHeader::LEN + record.payload().len();
            let offset = offset + self.transport.send(peer, &header, record.payload(), offset)?;
            if offset < end {
                // The header is kept: what rides on it counts as said.
                outlet.begun = Some((header, offset));
                outlet.is_behind = true;
                return Ok(());
            }
            outlet.begun = None;
            if ssn <= outlet.transmitted {
                self.tally.messages_replayed += 1;
            }
            outlet.transmitted = outlet.transmitted.max(ssn);
            cursor.advance();
        }
        Ok(())
    }

    /// Transmits to `peer` what comes after `after`, from now on.
    pub(super) fn replay(&mut self, peer: u32, after: Ssn, upto: Ssn) -> Result<(), Error> {
        let cursor = match self.settings.rule {
            // What was given up because the log was full is not.
            _ if self.log.stats().stopped_logging => self.log.cursor(Rank(peer), after.next()),
            Rule::SenderBased | Rule::Pessimistic => self.log.cursor(Rank(peer), after.next()),
            // What was released is sent again by executing.
            Rule::SendDeterministic { .. } => cursor_from(&mut self.log, peer, after.next()),
        };
        let cursor = cursor.map_err(|source| Error::Replay { peer, source })?;
        let outlet = &mut self.outlets[peer as usize];
        outlet.cursor = Some(cursor);
        outlet.upto = upto;
        outlet.begun = None;
        self.transmit(peer)
    }

    /// A coverage that came before what it covers was sent again.
    fn take_covered_ahead(&mut self, peer: u32) -> Result<(), Error> {
        let outlet = &mut self.outlets[peer as usize];
        let sent = outlet.sent;
        match outlet.covered_ahead.take_if(|(_, upto)| *upto <= sent) {
            Some((epoch, upto)) => self.cover(peer, epoch, upto),
            None => Ok(()),
        }
    }

    /// A durable checkpoint of `peer` covers what was sent to it up to `upto`.
    pub(super) fn cover(&mut self, peer: u32, epoch: counterfoil::Epoch, upto: Ssn) -> Result<(), Error> {
        if upto >= self.log.next_ssn(Rank(peer)) {
            self.outlets[peer as usize].covered_ahead = Some((epoch, upto));
            return Ok(());
        }
        let failed = |source| Error::Acknowledge { peer, source };
        self.log.receiver_covered(Rank(peer), epoch, upto).map_err(failed)?;
        self.log.collect();
        Ok(())
    }
}

/// A cursor on the records to `peer` from `from` on, as far as they are kept.
pub(super) fn cursor_from(log: &mut Log, peer: u32, from: Ssn) -> Result<Cursor, ReplayError> {
    match log.cursor(Rank(peer), from) {
        Err(ReplayError::Cursor(CursorError::Gone { kept_from, .. })) => log.cursor(Rank(peer), kept_from),
        other => other,
    }
}

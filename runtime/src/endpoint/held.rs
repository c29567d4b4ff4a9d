//! Held messages and blocked ranks: a rule may defer deliveries, or stop the program, until an event releases them.

use std::collections::VecDeque;

use bytes::Bytes;
use counterfoil::Determinant;
use counterfoil_ack_piggyback::WireHeader;
use counterfoil_protocols::api::{ChoiceRecord, EntryKey, EntryKind, Incoming, Protocol};

use super::wait::Wait;
use super::{DELIVERY, Endpoint};
use crate::Error;
use crate::matching::Message;
use crate::transport::Transport;

/// Arrived messages that may not be delivered yet.
#[derive(Debug)]
pub(super) struct HeldMessages {
    /// For each rank, in arrival order.
    queues: Vec<VecDeque<(WireHeader, Bytes)>>,
    /// For each rank: payload bytes in its queue.
    bytes: Vec<usize>,
    /// Number of messages in all queues.
    messages: usize,
    /// The rule allows another attempt to deliver.
    retry: bool,
}

impl HeldMessages {
    pub(super) fn new(ranks: u32) -> HeldMessages {
        HeldMessages {
            queues: (0..ranks).map(|_| VecDeque::new()).collect(),
            bytes: vec![0; ranks as usize],
            messages: 0,
            retry: false,
        }
    }

    /// Drops the messages received from `peer` on an older connection.
    pub(super) fn clear(&mut self, peer: u32) {
        self.messages -= self.queues[peer as usize].len();
        self.queues[peer as usize].clear();
        self.bytes[peer as usize] = 0;
    }

    pub(super) fn bytes_of(&self, peer: u32) -> usize {
        self.bytes[peer as usize]
    }

    /// Appends a message to the queue for `peer`.
    pub(super) fn push(&mut self, peer: u32, header: WireHeader, body: Bytes) {
        self.bytes[peer as usize] += body.len();
        self.queues[peer as usize].push_back((header, body));
        self.messages += 1;
    }

    pub(super) fn is_holding(&self, peer: u32) -> bool {
        !self.queues[peer as usize].is_empty()
    }

    pub(super) fn is_holding_any(&self) -> bool {
        self.messages > 0
    }

    /// Requests another attempt to deliver the held messages.
    pub(super) fn schedule_retry(&mut self) {
        self.retry = true;
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Waits until the rule lets the program continue.
    pub(super) fn await_running(&mut self) -> Result<(), Error> {
        while !self.protocol.is_running() && !self.finish {
            self.progress(Wait::Forever)?;
        }
        Ok(())
    }

    /// Passes a message to the rule, which delivers or discards it.
    ///
    /// Returns `false` if the rule holds it.
    pub(super) fn offer_message(&mut self, peer: u32, header: &WireHeader, body: &Bytes) -> Result<bool, Error> {
        let verdict = self.protocol.handle_message(header)?;
        self.carry_out_effects()?;
        match verdict {
            Incoming::Deliver { keep } => {
                if let Some(entry) = keep {
                    match entry.kind {
                        EntryKind::Message => self.keep_message(entry, header, body)?,
                        _ => self.record_delivery(entry, header)?,
                    }
                }
                let (comm, payload) = (header.envelope().comm, body.clone());
                self.match_message(Message { source: peer, tag: header.tag(), comm, ssn: header.ssn().0, payload })?;
            }
            Incoming::Discard(reason) => self.note_discarded(reason),
            Incoming::Hold => return Ok(false),
        }
        self.note_received(peer, header.ssn())?;
        Ok(true)
    }

    /// Records a delivery, before anything can depend on it.
    fn record_delivery(&mut self, entry: EntryKey, header: &WireHeader) -> Result<(), Error> {
        let EntryKey { kind: EntryKind::Delivery, number: sequence } = entry else {
            return Err(Error::Unsupported { effect: format!("a copy of a message as {entry:?}") });
        };
        let record = ChoiceRecord::new(Determinant { sequence, source: header.source(), ssn: header.ssn() });
        self.log.local().append(DELIVERY, sequence, &record.bytes)?;
        self.tally.determinants_logged += 1;
        self.tally.determinant_bytes += record.bytes.len() as u64;
        Ok(())
    }

    /// Passes the held messages to the rule again, if requested.
    pub(super) fn retry_held(&mut self) -> Result<(), Error> {
        while std::mem::take(&mut self.held.retry) {
            for peer in 0..self.settings.ranks {
                while let Some((header, body)) = self.held.queues[peer as usize].pop_front() {
                    if !self.offer_message(peer, &header, &body)? {
                        self.held.queues[peer as usize].push_front((header, body));
                        break;
                    }
                    let bytes = &mut self.held.bytes[peer as usize];
                    *bytes = bytes.saturating_sub(body.len());
                    self.held.messages -= 1;
                }
            }
        }
        Ok(())
    }
}

//! Local log entries kept by the rule: message copies, collective results, notes.
//!
//! They survive the process, and stay until the rule discards them. The local log forgets everything before a
//! checkpoint, so entries still kept are appended anew before. A discard is an entry itself: a replacement reading the
//! log leaves out discarded entries.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use counterfoil::{Entry, Epoch, Rank};
use counterfoil_ack_piggyback::{Kind, Origin, WireHeader};
use counterfoil_protocols::api::{EntryKey, EntryKind, Misbehaviour, Protocol, ProtocolError};

use super::{CHOICE, Endpoint};
use crate::Error;
use crate::matching::Message;
use crate::transport::Transport;

/// Kind for a discard in the local log.
///
/// Its key is the lowest number; kind and highest number follow.
const DISCARD: u8 = 64;
/// Tag of a frame with an entry copy.
///
/// The protocols' tags are positive.
const ENTRY: i32 = -5;

/// Kept entries.
#[derive(Debug, Default)]
pub(super) struct Entries(BTreeMap<EntryKey, Bytes>);

impl Entries {
    pub(super) fn get(&self, entry: EntryKey) -> Option<Bytes> {
        self.0.get(&entry).cloned()
    }

    /// Reads an entry from a dead process's log, in order.
    pub(super) fn read(&mut self, entry: &Entry) {
        if entry.kind == DISCARD {
            if let Some((kind, last)) = entry.bytes.split_first()
                && let (Some(kind), Ok(last)) = (kind_of(*kind), last.try_into())
            {
                self.discard(kind, entry.key, u64::from_le_bytes(last));
            }
        } else if let Some(kind) = kind_of(entry.kind) {
            self.0.insert(EntryKey { kind, number: entry.key }, Bytes::copy_from_slice(&entry.bytes));
        }
    }

    fn discard(&mut self, kind: EntryKind, first: u64, last: u64) {
        self.0.retain(|key, _| key.kind != kind || !(first..=last).contains(&key.number));
    }
}

/// Returns the kind of an entry handled by this module.
fn kind_of(kind: u8) -> Option<EntryKind> {
    [EntryKind::Message, EntryKind::Collective, EntryKind::Note].into_iter().find(|known| *known as u8 == kind)
}

/// Returns `true` for a frame handled by this module.
pub(super) fn is_entry(header: &WireHeader) -> bool {
    header.kind() == Kind::Control && header.tag() == ENTRY
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Appends an entry to the local log.
    pub(super) fn keep_entry(&mut self, entry: EntryKey, bytes: Bytes) -> Result<(), Error> {
        if kind_of(entry.kind as u8).is_none() {
            return Err(Error::Unsupported { effect: format!("an entry of its own as {entry:?}") });
        }
        self.log.local().append(entry.kind as u8, entry.number, &bytes)?;
        self.tally.entries_kept += 1;
        self.tally.entry_bytes += bytes.len() as u64;
        self.entries.0.insert(entry, bytes);
        Ok(())
    }

    /// Keeps a message copy.
    pub(super) fn keep_message(&mut self, entry: EntryKey, header: &WireHeader, body: &Bytes) -> Result<(), Error> {
        self.keep_entry(entry, [header.as_bytes(), body].concat().into())
    }

    /// Discards entries, durably.
    pub(super) fn discard_entries(&mut self, kind: EntryKind, first: u64, last: u64) -> Result<(), Error> {
        let bytes = [&[kind as u8][..], &last.to_le_bytes()].concat();
        self.log.local().append(DISCARD, first, &bytes)?;
        self.entries.discard(kind, first, last);
        Ok(())
    }

    /// Forgets the local log before the checkpoint that began `epoch`.
    ///
    /// Appends anew the kept entries, and the recorded outcomes from number `first_choice` on, not covered by the
    /// checkpoint.
    pub(super) fn discard_sealed(&mut self, epoch: Epoch, first_choice: u64) -> Result<(), Error> {
        let mut kept = BTreeSet::new();
        for entry in self.log.local().sealed(epoch) {
            if entry.kind == CHOICE && entry.key >= first_choice {
                self.log.local().append(CHOICE, entry.key, &entry.bytes)?;
            } else if let Some(kind) = kind_of(entry.kind) {
                kept.insert(EntryKey { kind, number: entry.key });
            }
        }
        for key in kept {
            if let Some(bytes) = self.entries.0.get(&key) {
                self.log.local().append(key.kind as u8, key.number, bytes)?;
            }
        }
        self.log.local().discard_sealed(epoch);
        Ok(())
    }

    /// Makes the local log durable and reports it.
    pub(super) fn seal_log(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.sync_choices()?;
        Ok(self.protocol.handle_log_sealed(epoch)?)
    }

    /// Sends an entry copy to a peer, if it is connected.
    pub(super) fn send_entry(&mut self, to: Rank, entry: EntryKey) -> Result<(), Error> {
        let bytes = self.entries.get(entry).ok_or_else(|| Error::NoEntry { entry: format!("{entry:?}") })?;
        let (kind, number) = ([entry.kind as u8], entry.number.to_le_bytes());
        let len = kind.len() + number.len() + bytes.len();
        let header = WireHeader::control(Rank(self.rank), to, Origin::default(), ENTRY, len as u64, None);
        self.tally.entries_sent += 1;
        Ok(self.transport.send_control(to.0, &header, &[&kind, &number, &bytes])?)
    }

    /// Handles an entry copy from a peer.
    pub(super) fn handle_entry(&mut self, peer: u32, body: &Bytes) -> Result<(), Error> {
        let how = Misbehaviour::MalformedNotice { tag: ENTRY, len: body.len() };
        let malformed = ProtocolError::PeerMisbehaved { peer: Rank(peer), how };
        let parsed = body.split_first_chunk::<9>().and_then(|([kind, number @ ..], _)| {
            Some(EntryKey { kind: kind_of(*kind)?, number: u64::from_le_bytes(*number) })
        });
        let entry = parsed.ok_or(malformed)?;
        let bytes = body.slice(9..);
        if self.protocol.handle_entry(Rank(peer), entry, &bytes)? {
            self.keep_entry(entry, bytes)?;
        }
        self.carry_out_effects()
    }

    /// Passes dead incarnations' entries to the rule, notes first, and those messages to matching that the rule wants
    /// presented again.
    pub(super) fn present_entries(&mut self) -> Result<(), Error> {
        let (notes, others): (Vec<_>, Vec<_>) =
            self.entries.0.clone().into_iter().partition(|(key, _)| key.kind == EntryKind::Note);
        for (key, bytes) in notes.into_iter().chain(others) {
            let presented = self.protocol.handle_recovered_entry(key, &bytes)?;
            if presented && key.kind == EntryKind::Message {
                let (header, body) =
                    WireHeader::split(&bytes).map_err(|_| Error::NoEntry { entry: format!("{key:?}") })?;
                let envelope = header.envelope();
                let payload = bytes.slice_ref(body);
                let (source, tag, comm, ssn) = (envelope.source.0, envelope.tag, envelope.comm, header.ssn().0);
                // No receive is posted yet, so it is kept.
                let _ = self.matching.handle_message(Message { source, tag, comm, ssn, payload });
            }
        }
        Ok(())
    }
}

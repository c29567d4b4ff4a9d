//! A rank's prologue: everything received until its program reports that it is set up.
//!
//! A program that continues from a checkpoint begins at its first line again, and makes its communicators, datatypes
//! and arrays anew. The messages received up to that point are kept with its checkpoints, so peers needn't keep them: a
//! replacement repeats its prologue alone, as in a [replay](crate::replay), and then continues from the checkpoint.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use counterfoil::{Entry, Ssn};
use counterfoil_ack_piggyback::{Kind, WireHeader};

/// A prologue's messages and outcomes.
#[derive(Clone, Debug, Default)]
pub struct Prologue {
    /// Messages, each sender's in order.
    messages: Vec<(u32, WireHeader, Bytes)>,
    /// Entries in the rank's local log: outcomes of its calls.
    entries: Vec<Entry>,
}

/// A prologue that can't be decoded: from another version, or damaged.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the checkpoint has no usable prologue: it was written by another version")]
pub struct PrologueError;

impl Prologue {
    /// Returns the messages by sender, for `ranks` senders.
    pub(crate) fn by_sender(&self, ranks: u32) -> Vec<VecDeque<(WireHeader, Bytes)>> {
        let mut senders = vec![VecDeque::new(); ranks as usize];
        for (peer, header, body) in &self.messages {
            if let Some(sender) = senders.get_mut(*peer as usize) {
                sender.push_back((*header, body.clone()));
            }
        }
        senders
    }

    /// Returns the local log's entries.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Encodes the prologue.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((self.messages.len() as u64).to_le_bytes());
        for (peer, header, body) in &self.messages {
            bytes.extend(peer.to_le_bytes());
            bytes.extend(header.as_bytes());
            bytes.extend((body.len() as u64).to_le_bytes());
            bytes.extend_from_slice(body);
        }
        for entry in &self.entries {
            bytes.push(entry.kind);
            bytes.extend(entry.key.to_le_bytes());
            bytes.extend((entry.bytes.len() as u64).to_le_bytes());
            bytes.extend_from_slice(&entry.bytes);
        }
        bytes
    }

    /// Decodes a prologue.
    ///
    /// # Errors
    /// [`PrologueError`].
    pub fn decode(mut bytes: Bytes) -> Result<Prologue, PrologueError> {
        fn take(bytes: &mut Bytes, len: u64) -> Result<Bytes, PrologueError> {
            let len = usize::try_from(len).ok().filter(|len| *len <= bytes.remaining()).ok_or(PrologueError)?;
            Ok(bytes.split_to(len))
        }
        let mut prologue = Prologue::default();
        for _ in 0..bytes.try_get_u64_le().map_err(|_| PrologueError)? {
            let peer = bytes.try_get_u32_le().map_err(|_| PrologueError)?;
            let header = *WireHeader::parse(&take(&mut bytes, WireHeader::LEN as u64)?).map_err(|_| PrologueError)?;
            let len = bytes.try_get_u64_le().map_err(|_| PrologueError)?;
            prologue.messages.push((peer, header, take(&mut bytes, len)?));
        }
        while bytes.has_remaining() {
            let kind = bytes.try_get_u8().map_err(|_| PrologueError)?;
            let key = bytes.try_get_u64_le().map_err(|_| PrologueError)?;
            let len = bytes.try_get_u64_le().map_err(|_| PrologueError)?;
            let bytes = take(&mut bytes, len)?.into();
            prologue.entries.push(Entry { kind, key, bytes });
        }
        Ok(prologue)
    }
}

/// Keeps a copy of the messages received by a rank in its prologue.
#[derive(Debug)]
pub struct PrologueRecorder {
    messages: Vec<(u32, WireHeader, Bytes)>,
    /// For each rank, the last message kept.
    last: Vec<Ssn>,
    bytes: usize,
    bytes_max: usize,
}

impl PrologueRecorder {
    /// Begins with nothing, for `ranks` peers.
    ///
    /// At most `bytes_max` bytes are kept.
    pub fn new(ranks: u32, bytes_max: usize) -> PrologueRecorder {
        PrologueRecorder { messages: Vec::new(), last: vec![Ssn::ZERO; ranks as usize], bytes: 0, bytes_max }
    }

    /// Keeps a message, unless it is no program message or was kept before.
    ///
    /// Returns `false` if there is no room.
    pub fn note(&mut self, peer: u32, header: &WireHeader, body: &Bytes) -> bool {
        let Some(last) = self.last.get_mut(peer as usize) else { return true };
        if header.kind() != Kind::Message || header.ssn() <= *last {
            return true;
        }
        *last = header.ssn();
        self.bytes += body.len() + size_of::<(u32, WireHeader, Bytes)>();
        self.messages.push((peer, *header, body.clone()));
        self.bytes <= self.bytes_max
    }

    /// Ends the prologue; `entries` are from the rank's local log.
    pub fn end(self, entries: Vec<Entry>) -> Prologue {
        Prologue { messages: self.messages, entries }
    }
}

#[cfg(test)]
mod tests {
    use counterfoil::{Envelope, Rank};
    use counterfoil_ack_piggyback::{AckPolicy, Origin, SendWindow};

    use super::*;

    fn message(window: &mut SendWindow, payload: &'static [u8]) -> (WireHeader, Bytes) {
        let envelope = Envelope { source: Rank(2), destination: Rank(0), tag: 7, comm: 0, len: payload.len() as u64 };
        let stamp = window.stamp(payload.len()).unwrap();
        let mut header = WireHeader::message(&envelope, stamp, Origin::default(), None);
        header.seal(payload);
        (header, Bytes::from_static(payload))
    }

    #[test]
    fn a_prologue_has_each_message_once_and_round_trips() {
        let mut window = SendWindow::new(AckPolicy::default());
        let (first, second) = (message(&mut window, b"one"), message(&mut window, b""));
        let mut recorder = PrologueRecorder::new(3, 1000);
        for (header, body) in [&first, &second, &first, &second] {
            assert!(recorder.note(2, header, body));
        }
        let entries = vec![Entry { kind: 5, key: 1 << 40, bytes: b"outcome".to_vec() }];
        let encoded = recorder.end(entries.clone()).encode();
        let decoded = Prologue::decode(encoded.clone().into()).unwrap();
        assert_eq!(decoded.entries(), entries);
        assert_eq!(decoded.by_sender(3)[2], [first, second]);
        assert!(decoded.by_sender(3)[..2].iter().all(VecDeque::is_empty));
        for len in [0, 7, 8, 20, encoded.len() - 1] {
            assert!(Prologue::decode(Bytes::copy_from_slice(&encoded[..len])).is_err(), "{len}");
        }
    }

    #[test]
    fn too_many_bytes_are_refused() {
        let mut window = SendWindow::new(AckPolicy::default());
        let mut recorder = PrologueRecorder::new(3, 150);
        let (first, second) = (message(&mut window, b"one"), message(&mut window, b"two"));
        assert!(recorder.note(2, &first.0, &first.1));
        assert!(!recorder.note(2, &second.0, &second.1));
    }
}

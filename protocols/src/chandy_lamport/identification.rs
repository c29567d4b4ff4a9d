//! Identification of the messages crossing a line, which distinguishes the rules in this frame.

use std::fmt;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Envelope, Epoch, Ssn};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Envelope of a message with known source and destination (section 4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    comm: u32,
    tag: i32,
}

#[cfg(test)]
impl Key {
    /// Returns the envelope for a message with this tag, in the job's communicator.
    pub(crate) fn tagged(tag: i32) -> Key {
        Key { comm: 0, tag }
    }
}

impl From<&Envelope> for Key {
    fn from(envelope: &Envelope) -> Key {
        Key { comm: envelope.comm, tag: envelope.tag }
    }
}

/// Message arriving or presented again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its envelope.
    pub key: Key,
    /// Send interval.
    pub interval: Epoch,
}

impl From<&WireHeader> for Message {
    fn from(header: &WireHeader) -> Message {
        Message { key: Key { comm: header.comm(), tag: header.tag() }, interval: header.epoch() }
    }
}

/// Result from matching one line.
#[derive(Debug)]
pub struct Matched<C> {
    /// Messages crossing the line; `None` if there is nothing to note.
    pub crossing: Option<C>,
    /// Copy numbers of messages found to be sent after the line.
    pub dropped: Vec<u64>,
}

/// Message identification (section 3.3): state for the messages from and to one peer, in both directions.
///
/// A message *crosses* a line in transit (sent before, and received after it) or as an orphan (received before, and
/// sent after it). Messages on a channel arrive in order, each once; lost or repeated frames aren't seen here.
pub trait Identification: fmt::Debug {
    /// Content of a line request about earlier messages.
    type Request: Clone + fmt::Debug + Serialize + DeserializeOwned;
    /// Local-log note about the messages crossing a line.
    type Crossing: Serialize + DeserializeOwned;

    /// Version of tables and notes.
    ///
    /// Distinct from those of other rules.
    const VERSION: u8;

    /// Begins at a line.
    fn new(line: Epoch) -> Self;

    /// Notes a message to the peer.
    fn log_send(&mut self, key: Key);

    /// Begins an interval; returns what the request for its line says.
    ///
    /// `sent`, `received`: messages to and from the peer before it.
    fn begin_interval(&mut self, sent: Ssn, received: Ssn) -> Self::Request;

    /// Removes a message from the orphan queue (section 4.4.2); returns `false` if it isn't an orphan.
    fn take_orphan(&mut self, message: Message) -> bool;

    /// Notes a message received in `interval`; returns `true` if it is in transit over the interval's line, or may be:
    /// a copy is kept.
    fn log_receipt(&mut self, message: Message, interval: Epoch) -> bool;

    /// Notes the number of a copy, for a message received in `interval` or presented again in it.
    fn note_copy(&mut self, number: u64, key: Key, interval: Epoch);

    /// Matches the next line, which has been requested and precedes the current interval.
    fn match_line(&mut self, line: Epoch, request: Self::Request) -> Matched<Self::Crossing>;

    /// Returns `true` once all messages in transit over a matched line have arrived.
    ///
    /// `arrived`: messages received from the peer.
    fn is_complete(&self, line: Epoch, arrived: Ssn) -> bool;

    /// Forgets what precedes a committed line.
    fn commit(&mut self, line: Epoch);

    /// Takes the messages crossing its first line.
    fn restore(&mut self, crossing: Self::Crossing);

    /// Returns the length of the orphan queue.
    fn orphans(&self) -> u64;

    /// Presents a copy again, as received in the new interval, if it is in transit over its line (section 4.4.1);
    /// returns `false` otherwise.
    fn present(&mut self, message: Message) -> bool;
}

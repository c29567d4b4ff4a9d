//! What distinguishes the rules of this frame: how they find the messages that cross a line.

use std::fmt;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Envelope, Epoch, Ssn};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Envelope of a message whose source and destination are known (section 4.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    comm: u32,
    tag: i32,
}

#[cfg(test)]
impl Key {
    /// Returns the envelope of a message with a tag, in the job's communicator.
    pub(crate) fn tagged(tag: i32) -> Key {
        Key { comm: 0, tag }
    }
}

impl From<&Envelope> for Key {
    fn from(envelope: &Envelope) -> Key {
        Key { comm: envelope.comm, tag: envelope.tag }
    }
}

/// Message that arrives, or is presented again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its envelope.
    pub key: Key,
    /// Interval in which it was sent.
    pub interval: Epoch,
}

impl From<&WireHeader> for Message {
    fn from(header: &WireHeader) -> Message {
        Message { key: Key { comm: header.comm(), tag: header.tag() }, interval: header.epoch() }
    }
}

/// Result of matching one line.
#[derive(Debug)]
pub struct Matched<C> {
    /// What crosses the line; `None` if nothing does that has to be noted.
    pub crossing: Option<C>,
    /// Numbers of copies of messages that turn out to be sent after the line.
    pub dropped: Vec<u64>,
}

/// Message identification (section 3.3): state of the messages from and to one peer, in both directions.
///
/// A message *crosses* a line in transit (sent before, and received after it) or as an orphan (received before, and
/// sent after it). Messages of a channel arrive in order, each once; a frame that is lost, or arrives again, isn't seen
/// here.
pub trait Identification: fmt::Debug {
    /// What a request for a line says of the messages before it.
    type Request: Clone + fmt::Debug + Serialize + DeserializeOwned;
    /// Note in the local log about the messages that cross a line.
    type Crossing: Serialize + DeserializeOwned;

    /// Version of tables and notes. Distinct from those of other rules.
    const VERSION: u8;

    /// Begins at a line.
    fn new(line: Epoch) -> Self;

    /// Notes a message to the peer.
    fn log_send(&mut self, key: Key);

    /// Begins an interval; returns what the request for its line says. `sent`, `received`: messages to and from the
    /// peer before it.
    fn begin_interval(&mut self, sent: Ssn, received: Ssn) -> Self::Request;

    /// Takes a message out of the orphan queue (section 4.4.2); returns `false` if it isn't an orphan.
    fn take_orphan(&mut self, message: Message) -> bool;

    /// Notes a message that is received in `interval`; returns `true` if it is in transit over the interval's line, or
    /// may be: a copy is kept.
    fn log_receipt(&mut self, message: Message, interval: Epoch) -> bool;

    /// Notes the number of a copy: of a message received in `interval`, or presented again in it.
    fn note_copy(&mut self, number: u64, key: Key, interval: Epoch);

    /// Matches the next line, for which the request has come, and which precedes the present interval.
    fn match_line(&mut self, line: Epoch, request: Self::Request) -> Matched<Self::Crossing>;

    /// Returns `true` once all messages in transit over a matched line have arrived. `arrived`: messages of the peer
    /// that have.
    fn is_complete(&self, line: Epoch, arrived: Ssn) -> bool;

    /// Forgets what precedes a committed line.
    fn commit(&mut self, line: Epoch);

    /// Takes the messages that cross the line at which it begins.
    fn restore(&mut self, crossing: Self::Crossing);

    /// Returns the number of messages in the orphan queue.
    fn orphans(&self) -> u64;

    /// Presents a copy again, as received in the interval that begins, if it is in transit over its line (section
    /// 4.4.1); returns `false` otherwise.
    fn present(&mut self, message: Message) -> bool;
}

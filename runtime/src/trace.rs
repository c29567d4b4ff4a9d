//! The trace: a record of a program's sends and receives, independent of the log.
//!
//! Each incarnation of a rank writes one file of 64-byte events, one unbuffered `write(2)` for each, so a SIGKILL loses
//! no written event. This module reads no log, window or protocol: the trace counts sends itself, deliveries carry the
//! SSN received with the message, and payloads are hashed as seen by the program. The [`oracle`](crate::oracle) judges
//! a run by its traces alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use counterfoil_log_core::crc32c;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of an event in a trace file, in bytes.
///
/// A power of two, so no event spans two pages: a kill can then not tear an event's write.
pub const EVENT_BYTES: usize = 64;

const MAGIC: u32 = 0x5443_4643; // "CFCT"

/// Event kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The program sent a message.
    Send,
    /// A message was delivered to the program (or to a collective called by it).
    Deliver,
    /// The process restored a checkpoint covering [`Event::index`] events in the rank's timeline.
    Restore,
}

/// One event on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Event kind.
    pub kind: EventKind,
    /// Destination for a send, source for a delivery, 0 for a restore.
    pub peer: u32,
    /// Message tag.
    pub tag: i32,
    /// Context number.
    pub comm: u32,
    /// Message SSN: counted by the trace for a send, received with the message for a delivery.
    pub ssn: u64,
    /// Number of earlier events in the rank's timeline.
    ///
    /// For a restore: number of remaining events.
    pub index: u64,
    /// Payload length in bytes.
    pub len: u64,
    /// XXH3 of the payload.
    pub hash: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Encoded {
    magic: U32,
    kind: U32,
    peer: U32,
    tag: I32,
    comm: U32,
    check: U32,
    ssn: U64,
    index: U64,
    len: U64,
    hash: U64,
    reserved: U64,
}

const _: () = assert!(size_of::<Encoded>() == EVENT_BYTES);

impl Event {
    fn encode(&self) -> Encoded {
        let kind = match self.kind {
            EventKind::Send => 1,
            EventKind::Deliver => 2,
            EventKind::Restore => 3,
        };
        let mut encoded = Encoded {
            magic: MAGIC.into(),
            kind: kind.into(),
            peer: self.peer.into(),
            tag: self.tag.into(),
            comm: self.comm.into(),
            check: 0.into(),
            ssn: self.ssn.into(),
            index: self.index.into(),
            len: self.len.into(),
            hash: self.hash.into(),
            reserved: 0.into(),
        };
        encoded.check = crc32c(encoded.as_bytes()).into();
        encoded
    }

    /// Parses [`EVENT_BYTES`] bytes; `None` if they are no valid event.
    pub fn parse(bytes: &[u8]) -> Option<Event> {
        let mut encoded = Encoded::read_from_bytes(bytes).ok()?;
        let check = encoded.check.get();
        encoded.check = 0.into();
        if encoded.magic.get() != MAGIC || crc32c(encoded.as_bytes()) != check {
            return None;
        }
        let kind = match encoded.kind.get() {
            1 => EventKind::Send,
            2 => EventKind::Deliver,
            3 => EventKind::Restore,
            _ => return None,
        };
        Some(Event {
            kind,
            peer: encoded.peer.get(),
            tag: encoded.tag.get(),
            comm: encoded.comm.get(),
            ssn: encoded.ssn.get(),
            index: encoded.index.get(),
            len: encoded.len.get(),
            hash: encoded.hash.get(),
        })
    }
}

/// Trace counters.
///
/// A checkpoint holds them, so a restarted trace continues from there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceCounters {
    /// Number of events in the rank's timeline so far.
    pub events: u64,
    /// Messages sent so far to each rank.
    pub sent: Vec<u64>,
}

/// A trace file could not be created or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the trace {}: {source}", path.display())]
pub struct TraceError {
    /// The trace file.
    pub path: PathBuf,
    /// Operating system error.
    pub source: io::Error,
}

/// Writes one incarnation's trace, or nothing if tracing is off.
#[derive(Debug)]
pub struct Trace {
    file: Option<(File, PathBuf)>,
    counters: TraceCounters,
}

/// Returns one incarnation's trace file in the job's trace directory.
pub fn trace_path(directory: &Path, rank: u32, incarnation: u32) -> PathBuf {
    directory.join(format!("{rank}.{incarnation}"))
}

impl Trace {
    /// Makes a trace that counts events and writes none.
    pub fn off(ranks: u32) -> Trace {
        Trace { file: None, counters: TraceCounters { events: 0, sent: vec![0; ranks as usize] } }
    }

    /// Creates an incarnation's trace file; it must not exist.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn create(path: &Path, ranks: u32) -> Result<Trace, TraceError> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| TraceError { path: path.to_owned(), source })?;
        Ok(Trace { file: Some((file, path.to_owned())), ..Trace::off(ranks) })
    }

    /// Returns the counters, for a checkpoint.
    pub fn counters(&self) -> &TraceCounters {
        &self.counters
    }

    /// Restores the counters from a checkpoint, and records the restore in the trace.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn restore(&mut self, counters: TraceCounters) -> Result<(), TraceError> {
        self.counters = counters;
        let index = self.counters.events;
        let kind = EventKind::Restore;
        self.write(&Event { kind, peer: 0, tag: 0, comm: 0, ssn: 0, index, len: 0, hash: 0 })
    }

    /// Records a send to `peer`.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn send(&mut self, peer: u32, tag: i32, comm: u32, payload: &[u8]) -> Result<(), TraceError> {
        let sent = &mut self.counters.sent[peer as usize];
        *sent += 1;
        let ssn = *sent;
        self.message(EventKind::Send, peer, tag, comm, ssn, payload)
    }

    /// Records the delivery of message `ssn` from `peer` to the program.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn deliver(&mut self, peer: u32, tag: i32, comm: u32, ssn: u64, payload: &[u8]) -> Result<(), TraceError> {
        self.message(EventKind::Deliver, peer, tag, comm, ssn, payload)
    }

    fn message(
        &mut self,
        kind: EventKind,
        peer: u32,
        tag: i32,
        comm: u32,
        ssn: u64,
        payload: &[u8],
    ) -> Result<(), TraceError> {
        let index = self.counters.events;
        self.counters.events += 1;
        if self.file.is_none() {
            return Ok(()); // avoids the hash
        }
        let (len, hash) = (payload.len() as u64, xxh3_64(payload));
        self.write(&Event { kind, peer, tag, comm, ssn, index, len, hash })
    }

    fn write(&mut self, event: &Event) -> Result<(), TraceError> {
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        file.write_all(event.encode().as_bytes()).map_err(|source| TraceError { path: path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event { kind: EventKind::Deliver, peer: 3, tag: -7, comm: 1, ssn: 9, index: 12, len: 5, hash: 77 }
    }

    #[test]
    fn an_event_round_trips() {
        assert_eq!(Event::parse(event().encode().as_bytes()), Some(event()));
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let bytes = event().encode();
        for at in 0..EVENT_BYTES {
            let mut damaged = bytes.as_bytes().to_vec();
            damaged[at] ^= 0x40;
            assert_eq!(Event::parse(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn counting_goes_on_after_a_restore() {
        let directory = tempfile::tempdir().unwrap();
        let first = trace_path(directory.path(), 0, 0);
        let mut trace = Trace::create(&first, 2).unwrap();
        trace.send(1, 5, 0, b"a").unwrap();
        let counters = trace.counters().clone();
        let mut trace = Trace::create(&trace_path(directory.path(), 0, 1), 2).unwrap();
        trace.restore(counters).unwrap();
        trace.send(1, 5, 0, b"b").unwrap();
        let bytes = std::fs::read(trace_path(directory.path(), 0, 1)).unwrap();
        let events: Vec<_> = bytes.chunks(EVENT_BYTES).map(|event| Event::parse(event).unwrap()).collect();
        assert_eq!((events[0].kind, events[0].index), (EventKind::Restore, 1));
        assert_eq!((events[1].kind, events[1].index, events[1].ssn), (EventKind::Send, 1, 2));
    }
}

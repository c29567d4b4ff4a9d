//! The local log: a rank's records of its own past.
//!
//! It holds determinants, and later late messages, pending and orphan queues, collective results. Entries are appended,
//! sealed with a checkpoint, and consumed by matching: the oldest unconsumed entry with a kind and key, at any
//! position. They need no acknowledgement; [`discard_sealed`](LocalLog::discard_sealed) forgets the ones covered by a
//! durable checkpoint.
//!
//! There is no second copy to compare a changed entry with, so each entry has a checksum:
//!
//! ```text
//! prefix   kind u8 | three zeros | crc32c u32 | key u64     little-endian
//! payload  the entry's bytes
//! ```
//!
//! The checksum is over prefix and bytes, with a zero in its own place. A recovery checks every entry's checksum.

use std::collections::VecDeque;
use std::ops::Range;

use crate::checksum::{crc32c, crc32c_append};
use crate::lane::{AppendError, Cursor, Disposition, ImportError, LaneWriter};
use crate::nouns::{Epoch, Rank, Ssn};
use crate::pool::Pool;
use crate::sync::Arc;

/// Kind of a seal; the caller's kinds are below.
const SEAL: u8 = u8::MAX;
/// Entry prefix length in bytes.
const PREFIX: usize = 16;
/// Destination of the local log's lane; not a rank.
const NOWHERE: Rank = Rank(u32::MAX);

/// Error of the local log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalLogError {
    /// There is no room for the entry.
    #[error("local log: {0}")]
    Append(#[from] AppendError),
    /// The kind is the log's own.
    #[error("local log: kind {SEAL} is the log's own; use 0 to {}", SEAL - 1)]
    Kind,
    /// A recovered file has an entry differing from the one written: its memory is damaged, or another process wrote
    /// there.
    ///
    /// The dead process's entries are lost.
    #[error("local log: the entry with {ssn} was changed after it was written; a replacement can't go on from it")]
    Damaged {
        /// The entry's number; [`Ssn::ZERO`] if the lane is not a local log's.
        ssn: Ssn,
    },
}

/// A local log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The caller's kind.
    pub kind: u8,
    /// The caller's key: a call number, a hash of an envelope.
    pub key: u64,
    /// The entry's bytes.
    pub bytes: Vec<u8>,
}

/// Index entry of the local log.
#[derive(Clone, Copy, Debug)]
struct Slot {
    ssn: Ssn,
    kind: u8,
    key: u64,
    consumed: bool,
}

/// A rank's log of its own past: entries in append order.
#[derive(Debug)]
pub struct LocalLog {
    lane: LaneWriter,
    slots: VecDeque<Slot>,
    /// Every slot before this one is consumed or a seal.
    first_open: usize,
}

impl LocalLog {
    /// Makes an empty local log in a pool of its own, process-crash-safe if the entries must survive the process.
    pub fn new(pool: Arc<Pool>) -> LocalLog {
        LocalLog { lane: LaneWriter::new(pool, NOWHERE), slots: VecDeque::new(), first_open: 0 }
    }

    /// Reads a local log found by a recovery: the only lane in its pool, or none if nothing was appended.
    ///
    /// Every entry is there again, and none is consumed.
    ///
    /// # Errors
    /// [`LocalLogError::Damaged`] names the first entry with a wrong checksum.
    pub fn recovered(pool: Arc<Pool>, lanes: Vec<LaneWriter>) -> Result<LocalLog, LocalLogError> {
        let Some(lane) = lanes.into_iter().next() else { return Ok(LocalLog::new(pool)) };
        let mut log = LocalLog { lane, slots: VecDeque::new(), first_open: 0 };
        if log.lane.peer() != NOWHERE {
            return Err(LocalLogError::Damaged { ssn: Ssn::ZERO });
        }
        if let Some(mut cursor) = log.open(Ssn::ZERO) {
            while let Some(record) = cursor.peek() {
                let parsed = parse(record.prefix(), record.payload());
                let (kind, key) = parsed.ok_or(LocalLogError::Damaged { ssn: record.ssn() })?;
                log.slots.push_back(Slot { ssn: record.ssn(), kind, key, consumed: kind == SEAL });
                cursor.advance();
            }
        }
        Ok(log)
    }

    /// Appends an entry.
    ///
    /// In a process-crash-safe pool the replacement finds it as soon as this returns.
    ///
    /// # Errors
    /// [`LocalLogError`]: no room, or a reserved kind.
    pub fn append(&mut self, kind: u8, key: u64, bytes: &[u8]) -> Result<(), LocalLogError> {
        if kind == SEAL {
            return Err(LocalLogError::Kind);
        }
        self.put(kind, key, bytes)
    }

    /// Seals the entries appended so far with the checkpoint beginning `epoch`.
    ///
    /// # Errors
    /// [`LocalLogError::Append`].
    pub fn seal(&mut self, epoch: Epoch) -> Result<(), LocalLogError> {
        self.put(SEAL, u64::from(epoch.0), &[])
    }

    /// Restores an entry from a checkpoint, possibly a seal, under its number, unconsumed.
    ///
    /// # Errors
    /// [`LocalLogError::Damaged`] if the numbers don't rise; [`LocalLogError::Append`].
    pub fn restore(&mut self, ssn: Ssn, kind: u8, key: u64, bytes: &[u8]) -> Result<(), LocalLogError> {
        let mut claim = self.lane.import(ssn, PREFIX, bytes.len()).map_err(|error| match error {
            ImportError::OutOfOrder { ssn, .. } => LocalLogError::Damaged { ssn },
            ImportError::Append(source) => LocalLogError::Append(source),
        })?;
        let (to_prefix, to_payload) = claim.parts_mut();
        to_prefix.copy_from_slice(&prefix(kind, key, bytes));
        to_payload.copy_from_slice(bytes);
        claim.commit();
        self.slots.push_back(Slot { ssn, kind, key, consumed: kind == SEAL });
        Ok(())
    }

    /// Returns copies of the entries with numbers above `after`, seals included, each with its number.
    pub fn entries_after(&self, after: Ssn) -> Vec<(Ssn, Entry)> {
        self.entries(self.slots.partition_point(|slot| slot.ssn <= after)..self.slots.len())
    }

    /// Returns copies of the entries before the seal of `epoch`, other seals included; none if there is no such seal.
    pub fn sealed(&self, epoch: Epoch) -> Vec<Entry> {
        let entries = self.entries(0..self.seal_of(epoch).unwrap_or(0));
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    fn entries(&self, range: Range<usize>) -> Vec<(Ssn, Entry)> {
        let Some(mut cursor) = self.slots.get(range.start).and_then(|slot| self.open(slot.ssn)) else {
            return Vec::new();
        };
        let mut entries = Vec::with_capacity(range.len());
        for slot in self.slots.range(range) {
            let Some(record) = cursor.read() else { break };
            entries.push((slot.ssn, Entry { kind: slot.kind, key: slot.key, bytes: record.payload().to_vec() }));
        }
        entries
    }

    /// Returns the place of the newest seal for `epoch`.
    fn seal_of(&self, epoch: Epoch) -> Option<usize> {
        self.slots.iter().rposition(|slot| slot.kind == SEAL && slot.key == u64::from(epoch.0))
    }

    /// Returns the newest entry's number; [`Ssn::ZERO`] before the first.
    pub fn last(&self) -> Ssn {
        self.lane.next_ssn().prev()
    }

    /// Consumes the oldest unconsumed entry with this kind and key.
    ///
    /// Entries consumed in append order are found at once; others cost a walk over the entries between.
    pub fn consume(&mut self, kind: u8, key: u64) -> Option<Entry> {
        let index = (self.first_open..self.slots.len()).find(|&index| {
            let slot = &self.slots[index];
            !slot.consumed && slot.kind == kind && slot.key == key
        })?;
        let entry = self.read(index)?;
        self.slots[index].consumed = true;
        while self.slots.get(self.first_open).is_some_and(|slot| slot.consumed) {
            self.first_open += 1;
        }
        Some(entry)
    }

    /// Returns the oldest entry with this kind and key, consumed or not: one entry, many readers.
    pub fn get(&self, kind: u8, key: u64) -> Option<Entry> {
        let index = self.slots.iter().position(|slot| slot.kind == kind && slot.key == key)?;
        self.read(index)
    }

    /// Returns the key of the oldest unconsumed entry of this kind.
    pub fn next_key(&self, kind: u8) -> Option<u64> {
        let open = self.slots.range(self.first_open..);
        open.clone().find(|slot| !slot.consumed && slot.kind == kind).map(|slot| slot.key)
    }

    /// Returns the number of unconsumed entries of this kind.
    pub fn pending(&self, kind: u8) -> usize {
        self.slots.range(self.first_open..).filter(|slot| !slot.consumed && slot.kind == kind).count()
    }

    /// Marks the entries of this kind with smaller keys as consumed: a restart from a checkpoint has passed them.
    pub fn skip_below(&mut self, kind: u8, key: u64) {
        for slot in self.slots.range_mut(self.first_open..).filter(|slot| slot.kind == kind && slot.key < key) {
            slot.consumed = true;
        }
        while self.slots.get(self.first_open).is_some_and(|slot| slot.consumed) {
            self.first_open += 1;
        }
    }

    /// Forgets every entry up to the seal for `epoch`, the seal included, and frees the memory.
    ///
    /// Returns `false` if there is no such seal.
    pub fn discard_sealed(&mut self, epoch: Epoch) -> bool {
        let Some(index) = self.seal_of(epoch) else { return false };
        let ssn = self.slots[index].ssn;
        self.slots.drain(..=index);
        self.first_open = self.first_open.saturating_sub(index + 1);
        // The SSN was appended to this lane, so it was sent.
        let _ = self.lane.acknowledge(ssn, Disposition::Release);
        true
    }

    /// Returns the number of kept entries, seals included.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns `true` if no entry is kept.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the memory taken by the log, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.lane.held_bytes()
    }

    fn put(&mut self, kind: u8, key: u64, bytes: &[u8]) -> Result<(), LocalLogError> {
        let mut claim = self.lane.claim(PREFIX, bytes.len())?;
        let (to_prefix, to_payload) = claim.parts_mut();
        to_prefix.copy_from_slice(&prefix(kind, key, bytes));
        to_payload.copy_from_slice(bytes);
        let ssn = claim.commit();
        self.slots.push_back(Slot { ssn, kind, key, consumed: kind == SEAL });
        Ok(())
    }

    fn read(&self, index: usize) -> Option<Entry> {
        let slot = self.slots[index];
        let mut cursor = self.open(slot.ssn)?;
        let record = cursor.peek().filter(|record| record.ssn() == slot.ssn)?;
        Some(Entry { kind: slot.kind, key: slot.key, bytes: record.payload().to_vec() })
    }

    /// Opens a cursor at `ssn`, or at the oldest kept entry.
    fn open(&self, ssn: Ssn) -> Option<Cursor> {
        let reader = self.lane.reader();
        match reader.open(ssn) {
            Ok(cursor) => Some(cursor),
            Err(crate::lane::CursorError::Gone { kept_from, .. }) => reader.open(kept_from).ok(),
            Err(_) => None,
        }
    }
}

/// Returns an entry's prefix.
fn prefix(kind: u8, key: u64, bytes: &[u8]) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[0] = kind;
    prefix[8..].copy_from_slice(&key.to_le_bytes());
    let checksum = crc32c_append(crc32c(&prefix), bytes);
    prefix[4..8].copy_from_slice(&checksum.to_le_bytes());
    prefix
}

/// Returns an entry's kind and key; `None` if its checksum is wrong.
fn parse(found: &[u8], bytes: &[u8]) -> Option<(u8, u64)> {
    let kind = *found.first()?;
    let key = u64::from_le_bytes(found.get(8..)?.try_into().ok()?);
    (found == prefix(kind, key, bytes)).then_some((kind, key))
}

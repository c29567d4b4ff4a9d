//! The local log: what a rank keeps about its own past.
//!
//! Determinants, and later late messages, pending and orphan queues, collective results. Entries are appended, sealed
//! with a checkpoint, and consumed by matching: the first entry of a kind and key that was not consumed, wherever it
//! stands. They need no acknowledgement; [`discard_sealed`](LocalLog::discard_sealed) forgets what a durable checkpoint
//! made superfluous.
//!
//! Nobody else has what stands here and could notice that it changed, so each entry has a checksum:
//!
//! ```text
//! prefix   kind u8 | three zeros | crc32c u32 | key u64     little-endian
//! payload  the entry's bytes
//! ```
//!
//! The checksum is over prefix and bytes, with a zero in its own place. A recovery checks that of every entry.

use std::collections::VecDeque;

use crate::lane::{AppendError, Cursor, Disposition, ImportError, LaneWriter};
use crate::nouns::{Epoch, Rank, Ssn};
use crate::pool::Pool;
use crate::sync::Arc;

/// Kind of the entries that seal; the caller's kinds are below.
const SEAL: u8 = u8::MAX;
/// Bytes of prefix.
const PREFIX: usize = 16;
/// The lane's "destination": the local log has none.
const NOWHERE: Rank = Rank(u32::MAX);

/// Why the local log refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalLogError {
    /// There is no room for the entry.
    #[error("local log: {0}")]
    Append(#[from] AppendError),
    /// The kind is the log's own.
    #[error("local log: kind {SEAL} is the log's own; use 0 to {}", SEAL - 1)]
    Kind,
    /// A recovered file holds an entry that isn't as it was written: the memory that it was in is damaged, or somebody
    /// else wrote there. What the dead process noted is not known any more.
    #[error("local log: the entry with {ssn} was changed after it was written; a replacement can't go on from it")]
    Damaged {
        /// Its number; [`Ssn::ZERO`] where the whole lane is not the local log's.
        ssn: Ssn,
    },
}

/// An entry of the local log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the caller called it.
    pub kind: u8,
    /// The caller's key: a call number, a hash of an envelope.
    pub key: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Where an entry stands, and whether it was consumed.
#[derive(Clone, Copy, Debug)]
struct Slot {
    ssn: Ssn,
    kind: u8,
    key: u64,
    consumed: bool,
}

/// Entries of a rank about itself, in the order in which they were appended.
#[derive(Debug)]
pub struct LocalLog {
    lane: LaneWriter,
    slots: VecDeque<Slot>,
    /// Slots in front of this one are all consumed or seals.
    first_open: usize,
}

impl LocalLog {
    /// An empty local log in a pool of its own: process-crash-safe where its entries must survive the process.
    pub fn new(pool: Arc<Pool>) -> LocalLog {
        LocalLog { lane: LaneWriter::new(pool, NOWHERE), slots: VecDeque::new(), first_open: 0 }
    }

    /// The local log that a recovery found: the one lane of its pool, or none where nothing was appended.
    ///
    /// Every entry is there again, none is consumed.
    ///
    /// # Errors
    /// [`LocalLogError::Damaged`] names the first entry whose checksum is wrong.
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

    /// Appends an entry. In a process-crash-safe pool it is there for the replacement from the moment this returns.
    ///
    /// # Errors
    /// [`LocalLogError`]: no room, or a reserved kind.
    pub fn append(&mut self, kind: u8, key: u64, bytes: &[u8]) -> Result<(), LocalLogError> {
        if kind == SEAL {
            return Err(LocalLogError::Kind);
        }
        self.put(kind, key, bytes)
    }

    /// Seals what was appended so far with the checkpoint that begins `epoch`.
    ///
    /// # Errors
    /// [`LocalLogError::Append`].
    pub fn seal(&mut self, epoch: Epoch) -> Result<(), LocalLogError> {
        self.put(SEAL, u64::from(epoch.0), &[])
    }

    /// Puts an entry that a checkpoint kept back under its number, seals included; none of them is consumed.
    ///
    /// # Errors
    /// [`LocalLogError::Damaged`] where the numbers don't rise; [`LocalLogError::Append`].
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

    /// The entries with numbers above `after`, seals included, for keeping them elsewhere: number, kind, key, bytes.
    pub fn entries_after(&self, after: Ssn) -> Vec<(Ssn, Entry)> {
        let first = self.slots.partition_point(|slot| slot.ssn <= after);
        let Some(mut cursor) = self.slots.get(first).and_then(|slot| self.open(slot.ssn)) else { return Vec::new() };
        let mut entries = Vec::with_capacity(self.slots.len() - first);
        for slot in self.slots.range(first..) {
            let Some(record) = cursor.read() else { break };
            entries.push((slot.ssn, Entry { kind: slot.kind, key: slot.key, bytes: record.payload().to_vec() }));
        }
        entries
    }

    /// The number of the newest entry; [`Ssn::ZERO`] before the first.
    pub fn last(&self) -> Ssn {
        self.lane.next_ssn().prev()
    }

    /// Takes the oldest entry of this kind and key that was not consumed.
    ///
    /// Entries taken in the order in which they were appended are found at once; others cost a walk over those between.
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

    /// The oldest entry of this kind and key, consumed or not: one entry, many readers.
    pub fn get(&self, kind: u8, key: u64) -> Option<Entry> {
        let index = self.slots.iter().position(|slot| slot.kind == kind && slot.key == key)?;
        self.read(index)
    }

    /// The key of the oldest entry of this kind that was not consumed.
    pub fn next_key(&self, kind: u8) -> Option<u64> {
        let open = self.slots.range(self.first_open..);
        open.clone().find(|slot| !slot.consumed && slot.kind == kind).map(|slot| slot.key)
    }

    /// How many entries of this kind were not consumed.
    pub fn pending(&self, kind: u8) -> usize {
        self.slots.range(self.first_open..).filter(|slot| !slot.consumed && slot.kind == kind).count()
    }

    /// Marks the entries of this kind with smaller keys as consumed: a restart from a checkpoint is beyond them.
    pub fn skip_below(&mut self, kind: u8, key: u64) {
        for slot in self.slots.range_mut(self.first_open..).filter(|slot| slot.kind == kind && slot.key < key) {
            slot.consumed = true;
        }
        while self.slots.get(self.first_open).is_some_and(|slot| slot.consumed) {
            self.first_open += 1;
        }
    }

    /// Forgets everything in front of the seal of `epoch`, the seal included, and frees its memory.
    ///
    /// Says whether there was such a seal.
    pub fn discard_sealed(&mut self, epoch: Epoch) -> bool {
        let is_seal = |slot: &Slot| slot.kind == SEAL && slot.key == u64::from(epoch.0);
        let Some(index) = self.slots.iter().rposition(is_seal) else { return false };
        let ssn = self.slots[index].ssn;
        self.slots.drain(..=index);
        self.first_open = self.first_open.saturating_sub(index + 1);
        // The SSN was appended here: it can't be beyond the end.
        let _ = self.lane.acknowledge(ssn, Disposition::Release);
        true
    }

    /// Entries that are kept, seals included.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of memory that the log takes.
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

    /// A cursor at `ssn`, or at the oldest entry that is kept.
    fn open(&self, ssn: Ssn) -> Option<Cursor> {
        let reader = self.lane.reader();
        match reader.open(ssn) {
            Ok(cursor) => Some(cursor),
            Err(crate::lane::CursorError::Gone { kept_from, .. }) => reader.open(kept_from).ok(),
            Err(_) => None,
        }
    }
}

/// The prefix that an entry is written with.
fn prefix(kind: u8, key: u64, bytes: &[u8]) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix[0] = kind;
    prefix[8..].copy_from_slice(&key.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&prefix), bytes);
    prefix[4..8].copy_from_slice(&checksum.to_le_bytes());
    prefix
}

/// Kind and key of an entry that is as it was written.
fn parse(found: &[u8], bytes: &[u8]) -> Option<(u8, u64)> {
    let kind = *found.first()?;
    let key = u64::from_le_bytes(found.get(8..)?.try_into().ok()?);
    (found == prefix(kind, key, bytes)).then_some((kind, key))
}

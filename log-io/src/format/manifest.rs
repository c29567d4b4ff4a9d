//! The manifest: the list of valid checkpoint files.
//!
//! ```text
//! slot 0 | slot 1        each half of the file: header, 80 bytes | kept checkpoints, 24 each | floors, 16 each | zeros
//! ```
//!
//! Both slots are equal, except during a change. A change writes slot 0, syncs, writes slot 1, and syncs: at any moment
//! one slot is whole, and if both are, the one with the higher sequence is valid. So damage to one slot later loses
//! nothing. If they differ when the store is opened, the first change starts with the invalid slot.

use std::collections::BTreeMap;

use counterfoil_log_core::{Epoch, Rank, Ssn, crc32c, crc32c_append};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::fields::{Fields, Malformed};
use crate::format::names::{MANIFEST, file_number};
use crate::format::{CHECKPOINTS_KEPT_MAX, FORMAT_VERSION, SESSIONS_MAX};
use crate::{PAGE_BYTES, ReadAt, StoreError};

const MAGIC: u64 = u64::from_le_bytes(*b"CFmanif\0");
/// Maximum checkpoint file size in bytes: 256 TiB.
const CHECKPOINT_BYTES_MAX: u64 = 1 << 48;
/// Largest slot accepted, in bytes.
///
/// With 2^20 ranks a slot has 17 MiB.
const SLOT_BYTES_MAX: u64 = 32 << 20;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SlotHeader {
    magic: U64,
    version: U32,
    zero: U32,
    store: U64,
    sequence: U64,
    session: U64,
    tail_session: U64,
    slot_bytes: U64,
    rank: U32,
    ranks: U32,
    kept: U32,
    floors: U32,
    zero_too: U32,
    crc: U32,
}

const SLOT_HEADER_BYTES: usize = size_of::<SlotHeader>();
const _: () = assert!(SLOT_HEADER_BYTES == 80);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct KeptEntry {
    number: U32,
    epoch: U32,
    bytes: U64,
    header_crc: U32,
    zero: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FloorEntry {
    lane: U32,
    zero: U32,
    ssn: U64,
}

/// The contents of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Random identity of the store.
    pub(crate) store: u64,
    /// Number of manifest changes.
    pub(crate) sequence: u64,
    /// Number of sessions: openings for writing, and checkpoint discards.
    pub(crate) session: u64,
    /// First session with valid local log blocks.
    pub(crate) tail_session: u64,
    pub(crate) rank: Rank,
    pub(crate) ranks: u32,
    /// The kept checkpoints, oldest first.
    pub(crate) kept: Vec<KeptCheckpoint>,
    /// For each lane, the SSN up to which records are unneeded, although a kept checkpoint may have them.
    pub(crate) floors: BTreeMap<Rank, Ssn>,
}

/// A valid checkpoint file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptCheckpoint {
    pub(crate) number: u32,
    pub(crate) epoch: Epoch,
    /// File length in bytes.
    pub(crate) bytes: u64,
    /// Checksum of the file's header, which includes the checksums of its parts.
    pub(crate) header_crc: u32,
}

/// Returns the slot size in bytes for a job with `ranks` ranks.
pub(crate) fn slot_bytes(ranks: u32) -> u64 {
    let bytes =
        SLOT_HEADER_BYTES + CHECKPOINTS_KEPT_MAX * size_of::<KeptEntry>() + ranks as usize * size_of::<FloorEntry>();
    bytes.next_multiple_of(PAGE_BYTES) as u64
}

impl Manifest {
    /// Counts a change.
    ///
    /// Refuses one that readers would refuse.
    ///
    /// # Errors
    /// [`StoreError::NumbersExhausted`].
    pub(crate) fn count_change(&mut self) -> Result<(), StoreError> {
        if self.sequence >= SESSIONS_MAX || self.session > SESSIONS_MAX {
            return Err(StoreError::NumbersExhausted);
        }
        self.sequence += 1;
        Ok(())
    }

    /// Encodes a slot, without its final padding.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut header = SlotHeader {
            magic: MAGIC.into(),
            version: FORMAT_VERSION.into(),
            zero: U32::ZERO,
            store: self.store.into(),
            sequence: self.sequence.into(),
            session: self.session.into(),
            tail_session: self.tail_session.into(),
            slot_bytes: slot_bytes(self.ranks).into(),
            rank: self.rank.0.into(),
            ranks: self.ranks.into(),
            kept: (self.kept.len() as u32).into(),
            floors: (self.floors.len() as u32).into(),
            zero_too: U32::ZERO,
            crc: U32::ZERO,
        };
        let mut entries = Vec::new();
        for kept in &self.kept {
            let entry = KeptEntry {
                number: kept.number.into(),
                epoch: kept.epoch.0.into(),
                bytes: kept.bytes.into(),
                header_crc: kept.header_crc.into(),
                zero: U32::ZERO,
            };
            entries.extend_from_slice(entry.as_bytes());
        }
        for (lane, ssn) in &self.floors {
            let entry = FloorEntry { lane: lane.0.into(), zero: U32::ZERO, ssn: ssn.0.into() };
            entries.extend_from_slice(entry.as_bytes());
        }
        header.crc = checksum(&header, &entries).into();
        let mut bytes = header.as_bytes().to_vec();
        bytes.append(&mut entries);
        bytes
    }

    /// Decodes a whole slot.
    fn decode(slot: &[u8]) -> Result<Manifest, SlotState> {
        Manifest::decode_fields(slot).map_err(|Malformed| SlotState::Damaged).and_then(|manifest| manifest)
    }

    fn decode_fields(slot: &[u8]) -> Result<Result<Manifest, SlotState>, Malformed> {
        let mut fields = Fields::new(slot);
        let header: &SlotHeader = fields.one()?;
        if header.magic.get() != MAGIC {
            return Err(Malformed);
        }
        let kept: &[KeptEntry] = fields.many(header.kept.get())?;
        let floors: &[FloorEntry] = fields.many(header.floors.get())?;
        let mut entries = kept.as_bytes().to_vec();
        entries.extend_from_slice(floors.as_bytes());
        if header.crc.get() != checksum(header, &entries) || header.slot_bytes.get() != slot.len() as u64 {
            return Err(Malformed);
        }
        // After the checksum: a bit flip in the version is damage, not another version.
        if header.version.get() != FORMAT_VERSION {
            return Ok(Err(SlotState::Version(header.version.get())));
        }
        let counts = [header.sequence, header.session, header.tail_session];
        let is_too_long = |entry: &KeptEntry| entry.bytes.get() > CHECKPOINT_BYTES_MAX;
        if counts.iter().any(|count| count.get() > SESSIONS_MAX) || kept.iter().any(is_too_long) {
            return Err(Malformed);
        }
        let kept = kept.iter().map(|entry| KeptCheckpoint {
            number: entry.number.get(),
            epoch: Epoch(entry.epoch.get()),
            bytes: entry.bytes.get(),
            header_crc: entry.header_crc.get(),
        });
        Ok(Ok(Manifest {
            store: header.store.get(),
            sequence: header.sequence.get(),
            session: header.session.get(),
            tail_session: header.tail_session.get(),
            rank: Rank(header.rank.get()),
            ranks: header.ranks.get(),
            kept: kept.collect(),
            floors: floors.iter().map(|floor| (Rank(floor.lane.get()), Ssn(floor.ssn.get()))).collect(),
        }))
    }
}

fn checksum(header: &SlotHeader, entries: &[u8]) -> u32 {
    crc32c_append(crc32c(&header.as_bytes()[..SLOT_HEADER_BYTES - 4]), entries)
}

/// State of a manifest slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Whole, with this sequence.
    Valid {
        /// Number of manifest changes.
        sequence: u64,
    },
    /// All zeros: never written.
    Empty,
    /// Whole, with another format version.
    Version(u32),
    /// Torn or damaged.
    Damaged,
}

/// The manifest's file, as read.
#[derive(Debug)]
pub(crate) struct FoundManifest {
    pub(crate) slots: [SlotState; 2],
    /// Contents of the newest whole slot.
    pub(crate) newest: Option<Manifest>,
}

impl FoundManifest {
    /// Reads both slots.
    pub(crate) fn read(file: &dyn ReadAt) -> Result<FoundManifest, StoreError> {
        let bytes = file.len().map_err(StoreError::io("read the length of", MANIFEST))?;
        let slot = bytes / 2;
        let mut found = FoundManifest { slots: [SlotState::Damaged; 2], newest: None };
        if bytes > 2 * SLOT_BYTES_MAX {
            return Ok(found);
        }
        let mut all = vec![0; bytes as usize];
        file.read_at(0, &mut all).map_err(StoreError::read(MANIFEST, 0))?;
        if all.iter().all(|&byte| byte == 0) {
            // A creation interrupted by a power cut may leave any length: the file is synced before the first write.
            found.slots = [SlotState::Empty; 2];
            return Ok(found);
        }
        if slot < SLOT_HEADER_BYTES as u64 {
            return Ok(found);
        }
        for (state, slot) in found.slots.iter_mut().zip(all.chunks_exact(slot as usize)) {
            *state = match Manifest::decode(slot) {
                Ok(manifest) => {
                    let sequence = manifest.sequence;
                    if found.newest.as_ref().is_none_or(|newest| newest.sequence < sequence) {
                        found.newest = Some(manifest);
                    }
                    SlotState::Valid { sequence }
                }
                Err(_) if slot.iter().all(|&byte| byte == 0) => SlotState::Empty,
                Err(state) => state,
            };
        }
        Ok(found)
    }

    /// Returns the slot to write first in a change: never the only valid one.
    pub(crate) fn first_to_write(&self) -> usize {
        match (&self.newest, self.slots) {
            (Some(newest), [SlotState::Valid { sequence }, second]) if newest.sequence == sequence => {
                usize::from(second != SlotState::Valid { sequence })
            }
            _ => 0,
        }
    }

    /// Returns `true` if the creation of the store wasn't finished.
    ///
    /// `names` are the directory's files.
    pub(crate) fn is_unfinished(&self, names: &[String]) -> bool {
        self.newest.is_none() && is_unfinished(self.slots, names)
    }

    /// Returns the newest whole slot, or the error for a manifest without one.
    ///
    /// `names` are the directory's files.
    pub(crate) fn newest(self, names: &[String]) -> Result<Manifest, StoreError> {
        self.newest.ok_or_else(|| no_manifest(self.slots, names))
    }
}

/// Returns the error for a manifest without a whole slot.
///
/// `names` are the directory's files.
pub(crate) fn no_manifest(slots: [SlotState; 2], names: &[String]) -> StoreError {
    let version = slots.iter().find_map(|slot| match slot {
        SlotState::Version(version) => Some(*version),
        _ => None,
    });
    match version {
        Some(found) => StoreError::Version { file: MANIFEST.to_owned(), found },
        None if is_unfinished(slots, names) => StoreError::Missing,
        None => StoreError::damaged(MANIFEST, 0, "neither slot is whole"),
    }
}

/// Returns `true` if a manifest without a whole slot belongs to a store with an unfinished creation.
///
/// The first change writes slot 0 before slot 1, and segments and checkpoint files are created after both: if there is
/// one, the manifest was whole once.
fn is_unfinished(slots: [SlotState; 2], names: &[String]) -> bool {
    let came_later = |name: &String| file_number(name, "segment").or(file_number(name, "checkpoint")).is_some();
    slots[1] == SlotState::Empty && !names.iter().any(came_later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory_file::MemoryFile;

    fn manifest(sequence: u64) -> Manifest {
        Manifest {
            store: 1,
            sequence,
            session: 1,
            tail_session: 1,
            rank: Rank(0),
            ranks: 2,
            kept: Vec::new(),
            floors: BTreeMap::new(),
        }
    }

    fn encoded(manifest: &Manifest) -> Vec<u8> {
        let mut slot = manifest.encode();
        slot.resize(slot_bytes(manifest.ranks) as usize, 0);
        slot
    }

    fn slot(sequence: u64) -> Vec<u8> {
        encoded(&manifest(sequence))
    }

    /// Returns the sequence of a manifest with these two slots.
    fn newest(slots: [Vec<u8>; 2]) -> Option<u64> {
        FoundManifest::read(&MemoryFile(slots.concat())).unwrap().newest.map(|manifest| manifest.sequence)
    }

    #[test]
    fn the_newest_whole_slot_is_the_manifest() {
        let empty = || vec![0; slot_bytes(2) as usize];
        let torn = |sequence| {
            let mut torn = slot(sequence);
            torn[40] ^= 1;
            torn
        };
        assert_eq!(newest([slot(3), slot(4)]), Some(4));
        assert_eq!(newest([slot(5), slot(4)]), Some(5));
        assert_eq!(newest([slot(1), empty()]), Some(1));
        assert_eq!(newest([slot(3), torn(4)]), Some(3));
        assert_eq!(newest([torn(5), slot(4)]), Some(4));
        assert_eq!(newest([torn(5), torn(4)]), None);
        assert_eq!(newest([empty(), empty()]), None);
    }

    #[test]
    fn a_slot_has_room_for_all_checkpoints_and_a_floor_of_each_rank() {
        // 80 bytes of header, 64 checkpoints with 24 bytes each, and 16 bytes for each rank.
        for (ranks, bytes) in [(1, 4096), (155, 4096), (156, 8192), (411, 8192), (412, 12_288), (1 << 20, 4097 << 12)] {
            assert_eq!(slot_bytes(ranks), bytes, "{ranks}");
        }
        let mut full = Manifest { ranks: 155, ..manifest(1) };
        let kept = |number| KeptCheckpoint { number, epoch: Epoch(number), bytes: 4096, header_crc: 5 };
        full.kept = (1..=64).map(kept).collect();
        full.floors = (0..155).map(|lane| (Rank(lane), Ssn(lane.into()))).collect();
        assert_eq!((full.encode().len(), Manifest::decode(&encoded(&full))), (4096, Ok(full)));
    }

    #[test]
    fn numbers_beyond_their_limits_are_neither_written_nor_read() {
        let most = SESSIONS_MAX;
        let counted = |change: fn(&mut Manifest)| {
            let mut manifest = manifest(7);
            change(&mut manifest);
            manifest.count_change().map(|()| manifest.sequence).ok()
        };
        assert_eq!(counted(|_| ()), Some(8));
        assert_eq!(counted(|manifest| manifest.sequence = SESSIONS_MAX - 1), Some(most));
        assert_eq!(counted(|manifest| manifest.sequence = SESSIONS_MAX), None);
        assert_eq!(counted(|manifest| manifest.session = SESSIONS_MAX), Some(8));
        assert_eq!(counted(|manifest| manifest.session = SESSIONS_MAX + 1), None);

        let kept = |bytes| KeptCheckpoint { number: 1, epoch: Epoch(1), bytes, header_crc: 0 };
        let is_read = |manifest: Manifest| match Manifest::decode(&encoded(&manifest)) {
            Ok(read) => {
                assert_eq!(read, manifest);
                true
            }
            Err(state) => {
                assert_eq!(state, SlotState::Damaged);
                false
            }
        };
        for (count, expected) in [(most, true), (most + 1, false), (u64::MAX, false)] {
            assert_eq!(is_read(manifest(count)), expected);
            assert_eq!(is_read(Manifest { session: count, ..manifest(1) }), expected);
            assert_eq!(is_read(Manifest { tail_session: count, ..manifest(1) }), expected);
        }
        for (bytes, expected) in [(CHECKPOINT_BYTES_MAX, true), (CHECKPOINT_BYTES_MAX + 1, false), (u64::MAX, false)] {
            assert_eq!(is_read(Manifest { kept: vec![kept(4096), kept(bytes)], ..manifest(1) }), expected);
        }
    }

    #[test]
    fn the_state_of_each_slot_is_told_apart() {
        let slots = |bytes: Vec<u8>| FoundManifest::read(&MemoryFile(bytes)).unwrap().slots;
        let empty = vec![0; slot_bytes(2) as usize];
        let valid = SlotState::Valid { sequence: 3 };
        assert_eq!(slots([slot(3), empty.clone()].concat()), [valid, SlotState::Empty]);
        assert_eq!(slots([empty.clone(), slot(3)].concat()), [SlotState::Empty, valid]);
        assert_eq!(slots([slot(3), vec![7; empty.len()]].concat()), [valid, SlotState::Damaged]);
        // Zeros of any length are an interrupted creation; other bytes are damage.
        for len in [0, 10, 8192] {
            assert_eq!(slots(vec![0; len]), [SlotState::Empty; 2], "{len}");
        }
        for len in [10, 158, 160, 8192] {
            assert_eq!(slots(vec![7; len]), [SlotState::Damaged; 2], "{len}");
        }
        assert_eq!(slots(vec![0; (2 * SLOT_BYTES_MAX) as usize]), [SlotState::Empty; 2]);
        assert_eq!(slots(vec![0; (2 * SLOT_BYTES_MAX) as usize + 1]), [SlotState::Damaged; 2], "longer than any");
    }

    #[test]
    fn a_change_writes_the_slot_first_that_is_not_the_only_valid_one() {
        let first = |slots: [Vec<u8>; 2]| FoundManifest::read(&MemoryFile(slots.concat())).unwrap().first_to_write();
        let empty = || vec![0; slot_bytes(2) as usize];
        assert_eq!(first([slot(3), slot(3)]), 0);
        assert_eq!(first([slot(4), slot(3)]), 1);
        assert_eq!(first([slot(3), slot(4)]), 0);
        assert_eq!(first([slot(3), empty()]), 1);
        assert_eq!(first([empty(), slot(3)]), 0);
        assert_eq!(first([empty(), empty()]), 0);
    }
}

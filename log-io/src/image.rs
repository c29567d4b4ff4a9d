//! What a checkpoint holds.

use counterfoil_log_core::{Epoch, Rank, Record, Run, Ssn};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Block, RecordSource};

/// A checkpoint: which blocks make up each lane, and what else a recovery needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointImage {
    /// The epoch that it begins; 0 where there is no checkpoint, only entries of the local log.
    pub epoch: Epoch,
    /// The lanes.
    pub lanes: Vec<LaneImage>,
    /// The local log.
    pub local: Vec<LocalImage>,
    /// Tables of the layers above, by name.
    pub tables: Vec<(String, Vec<u8>)>,
    /// The program's own bytes.
    pub application: Vec<u8>,
}

/// A lane as a checkpoint has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneImage {
    /// The destination.
    pub peer: Rank,
    /// The SSN that the next message gets.
    pub next: Ssn,
    /// Everything up to here is acknowledged.
    pub acked: Ssn,
    /// Nothing up to here is needed.
    pub covered: Ssn,
    /// How acknowledged SSNs were acknowledged.
    pub runs: Vec<Run>,
    /// Where the records are, in SSN order. Where two overlap, the later one counts.
    pub blocks: Vec<Block>,
}

/// An entry of the local log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalImage {
    /// Its number.
    pub ssn: Ssn,
    /// What its owner calls it; 255 is a seal.
    pub kind: u8,
    /// Its owner's key.
    pub key: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What stands in front of an entry's bytes in a record, as the local log in memory has it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LocalPrefix {
    kind: u8,
    zero: [u8; 7],
    key: U64,
}

const PREFIX_BYTES: usize = size_of::<LocalPrefix>();

impl LocalImage {
    /// Entries as records of the lane [`LOCAL`](crate::LOCAL), in their order.
    pub fn source(entries: &[LocalImage]) -> LocalSource<'_> {
        LocalSource { entries: entries.iter(), wire: Vec::new() }
    }

    /// The entry that a record of the lane [`LOCAL`](crate::LOCAL) holds; `None` where it is no such record.
    pub fn from_record(record: &Record<'_>) -> Option<LocalImage> {
        let prefix = LocalPrefix::read_from_bytes(record.prefix()).ok().filter(|prefix| prefix.zero == [0; 7])?;
        let bytes = record.payload().to_vec();
        Some(LocalImage { ssn: record.ssn(), kind: prefix.kind, key: prefix.key.get(), bytes })
    }
}

/// Entries of the local log as records.
#[derive(Debug)]
pub struct LocalSource<'a> {
    entries: std::slice::Iter<'a, LocalImage>,
    wire: Vec<u8>,
}

impl RecordSource for LocalSource<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        let entry = self.entries.next()?;
        self.wire.clear();
        let prefix = LocalPrefix { kind: entry.kind, zero: [0; 7], key: entry.key.into() };
        self.wire.extend_from_slice(prefix.as_bytes());
        self.wire.extend_from_slice(&entry.bytes);
        Record::new(entry.ssn, &self.wire, PREFIX_BYTES)
    }
}

//! The contents of a checkpoint.

use counterfoil_log_core::{Epoch, Rank, Record, Run, Ssn};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Block, RecordSource};

/// A checkpoint: the blocks in each lane, and everything else needed for recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointImage {
    /// The epoch begun by it; 0 without a checkpoint, with only local log entries.
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

/// A lane in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneImage {
    /// The destination.
    pub peer: Rank,
    /// SSN of the next message.
    pub next: Ssn,
    /// Highest acknowledged SSN.
    pub acked: Ssn,
    /// SSN up to which records are unneeded.
    pub covered: Ssn,
    /// Dispositions of the acknowledged SSNs.
    pub runs: Vec<Run>,
    /// The blocks, in SSN order.
    ///
    /// Where two overlap, the later one is valid.
    pub blocks: Vec<Block>,
}

/// A local log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalImage {
    /// Its sequence number.
    pub ssn: Ssn,
    /// Kind, chosen by its owner; 255 is a seal.
    pub kind: u8,
    /// Key, chosen by its owner.
    pub key: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The prefix of an entry's record, as in the in-memory local log.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LocalPrefix {
    kind: u8,
    zero: [u8; 7],
    key: U64,
}

const PREFIX_BYTES: usize = size_of::<LocalPrefix>();

impl LocalImage {
    /// Returns the entries as records for the lane [`LOCAL`](crate::LOCAL), in order.
    pub fn source(entries: &[LocalImage]) -> LocalSource<'_> {
        LocalSource { entries: entries.iter(), wire: Vec::new() }
    }

    /// Returns the entry from a record of the lane [`LOCAL`](crate::LOCAL), or `None` if the record isn't a valid
    /// entry.
    pub fn from_record(record: &Record<'_>) -> Option<LocalImage> {
        let prefix = LocalPrefix::read_from_bytes(record.prefix()).ok().filter(|prefix| prefix.zero == [0; 7])?;
        let bytes = record.payload().to_vec();
        Some(LocalImage { ssn: record.ssn(), kind: prefix.kind, key: prefix.key.get(), bytes })
    }
}

/// Local log entries as records.
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

//! Checkpoint files.
//!
//! ```text
//! header, 4,096 bytes | lanes | segments | local log | tables | application | zeros up to a multiple of 4,096
//! ```
//!
//! The header has each part's length and checksum, and its own checksum, repeated by the manifest.

mod decode;
mod encode;

use counterfoil_log_core::Rank;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) use decode::{Application, checksum, decode, parse};
pub(crate) use encode::{Encoded, encode};

const MAGIC: u64 = u64::from_le_bytes(*b"CFcheckp");
const PARTS: usize = 5;
/// The error for each damaged part.
const PART_DAMAGED: [&str; PARTS] = [
    "the lanes' checksum is wrong",
    "the segments' checksum is wrong",
    "the local log's checksum is wrong",
    "the tables' checksum is wrong",
    "the application's checksum is wrong",
];

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: U64,
    version: U32,
    number: U32,
    store: U64,
    session: U64,
    rank: U32,
    ranks: U32,
    epoch: U32,
    written_segment: U32,
    written_end: U64,
    next_number: U32,
    zero: U32,
    parts: [Part; PARTS],
    zero_too: U32,
    crc: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Part {
    bytes: U64,
    crc: U32,
    zero: U32,
}

const CHECKPOINT_HEADER_BYTES: usize = size_of::<Header>();
const _: () = assert!(CHECKPOINT_HEADER_BYTES == 152);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LaneEntry {
    peer: U32,
    runs: U32,
    blocks: U32,
    zero: U32,
    next: U64,
    acked: U64,
    covered: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RunEntry {
    first: U64,
    last: U64,
    retained: U32,
    epoch: U32,
    phase: U32,
    zero: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BlockEntry {
    first: U64,
    last: U64,
    at: U64,
    disk_bytes: U64,
    raw_bytes: U64,
    segment: U32,
    records: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SegmentEntry {
    segment: U32,
    zero: U32,
    generation: U64,
    covered: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LocalEntry {
    ssn: U64,
    key: U64,
    bytes: U64,
    kind: U32,
    zero: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TableEntry {
    name_bytes: U32,
    zero: U32,
    bytes: U64,
}

/// Checkpoint file fields other than its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) number: u32,
    pub(crate) store: u64,
    pub(crate) session: u64,
    pub(crate) rank: Rank,
    pub(crate) ranks: u32,
    pub(crate) written: Written,
    pub(crate) segments: Vec<CoveredSegment>,
}

/// Extent of the store when the checkpoint was taken.
///
/// Later local log blocks are not part of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The active segment; 0 for none.
    pub(crate) segment: u32,
    /// End of its last block.
    pub(crate) end: u64,
    /// Files with this number or a higher one are newer.
    pub(crate) next_number: u32,
}

/// A segment referenced by a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoveredSegment {
    pub(crate) segment: u32,
    pub(crate) generation: u64,
    /// End of the last block referenced by the checkpoint.
    pub(crate) covered: u64,
}

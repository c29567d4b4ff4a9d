//! Blocks: runs of one lane's records, the unit of writing and verification.
//!
//! ```text
//! header, 96 bytes | stored bytes | zeros up to a multiple of 4,096
//! header, 96 bytes | table of chunks, zeros up to 4,096 | chunks as in memory
//! ```
//!
//! The module `chunk_table` describes the second kind. In the first kind the stored bytes are the records, or their lz4
//! block. A record is `ssn u64 | prefix length u32 | 0 u32 | body length u64 | body`, padded with zeros to a multiple
//! of eight. All numbers are little-endian; docs/book/src/reference/formats.md has every byte.

use counterfoil_log_core::{ChunkImage, Rank, Record, Ssn, crc32c};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::PAGE_BYTES;
use crate::format::{BLOCK_BYTES_MAX, CHUNKS_MAX, FORMAT_VERSION, HEADER_BYTES, RECORD_BYTES_MIN};

/// The lane for local log entries; no rank has this number.
pub const LOCAL: Rank = Rank(u32::MAX);

/// A block's entry in the index: its records and its location on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The lane.
    pub lane: Rank,
    /// Its first record.
    pub first: Ssn,
    /// Its last record.
    pub last: Ssn,
    /// Number of records.
    pub records: u32,
    /// Number of its segment.
    pub segment: u32,
    /// Offset in the segment, in bytes.
    pub at: u64,
    /// Bytes on disk, a multiple of 4,096.
    pub disk_bytes: u64,
    /// Size of its records in bytes, uncompressed, including their headers.
    pub raw_bytes: u64,
}

/// A source for records to append.
pub trait RecordSource {
    /// Returns the next record, in rising SSN order, or `None` at the end.
    fn next(&mut self) -> Option<Record<'_>>;

    /// Returns the next records as a chunk with at most `bytes_max` bytes, written without a copy.
    ///
    /// Returns `None`, the default, if the next records have to be taken one by one, or at the end.
    fn next_chunk(&mut self, bytes_max: usize) -> Option<ChunkImage> {
        let _ = bytes_max;
        None
    }
}

const MAGIC: u32 = u32::from_le_bytes(*b"CFbk");
/// The stored bytes are an lz4 block.
pub(crate) const FLAG_LZ4: u16 = 1;
/// The stored bytes have no checksum.
pub(crate) const FLAG_UNCHECKED: u16 = 2;
/// The stored bytes are a chunk table and the chunks, as in memory.
pub(crate) const FLAG_CHUNKS: u16 = 4;

/// A block header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BlockHeader {
    pub(crate) magic: U32,
    pub(crate) version: U16,
    pub(crate) flags: U16,
    /// The segment's random number: bytes from an earlier use of the disk never validate.
    pub(crate) generation: U64,
    pub(crate) segment: U32,
    pub(crate) lane: U32,
    pub(crate) at: U64,
    /// Number of preceding blocks in the segment.
    pub(crate) index: U32,
    pub(crate) records: U32,
    pub(crate) first: U64,
    pub(crate) last: U64,
    /// In the local log's lane: the previous block's last SSN, 0 for the first block since the newest checkpoint.
    pub(crate) after: U64,
    pub(crate) raw_bytes: U64,
    pub(crate) stored_bytes: U64,
    pub(crate) stored_crc: U32,
    /// Number of chunks; 0 in a block of copied records.
    pub(crate) chunks: U32,
    pub(crate) zero: U32,
    pub(crate) header_crc: U32,
}

const _: () = assert!(size_of::<BlockHeader>() == HEADER_BYTES);

/// Size of a record's header before its body, in bytes.
pub(crate) const FRAME_BYTES: usize = 24;

impl BlockHeader {
    /// Creates the header for a block in `segment` at offset `at`; the caller fills in counts, SSNs and checksums.
    pub(crate) fn new(generation: u64, segment: u32, lane: Rank, at: u64) -> BlockHeader {
        let mut header = BlockHeader::new_zeroed();
        header.magic = MAGIC.into();
        header.version = (FORMAT_VERSION as u16).into();
        header.generation = generation.into();
        header.segment = segment.into();
        header.lane = lane.0.into();
        header.at = at.into();
        header
    }

    /// Sets the header's checksum.
    ///
    /// The header must not change afterwards.
    pub(crate) fn seal(&mut self) {
        self.header_crc = self.checksum().into();
    }

    /// Seals the header of a block to be written, and parses it as a reader will.
    ///
    /// `room` is the number of bytes from the block's offset to the segment's end. A block refused here must not be
    /// written: no recovery could read it.
    pub(crate) fn seal_and_parse(&mut self, room: u64) -> Result<(), &'static str> {
        self.seal();
        let (generation, segment, at) = (self.generation.get(), self.segment.get(), self.at.get());
        BlockHeader::parse(self.as_bytes(), generation, segment, at, room).map(drop)
    }

    fn checksum(&self) -> u32 {
        crc32c(&self.as_bytes()[..HEADER_BYTES - 4])
    }

    /// Parses the header at the start of `bytes`.
    ///
    /// Accepts only a header written for this generation, segment and offset, with consistent lengths that fit into
    /// `room`, the bytes from there to the segment's end.
    pub(crate) fn parse(
        bytes: &[u8],
        generation: u64,
        segment: u32,
        at: u64,
        room: u64,
    ) -> Result<BlockHeader, &'static str> {
        let (header, _) = BlockHeader::read_from_prefix(bytes).map_err(|_| "the file ends in a block's header")?;
        if header.magic.get() != MAGIC {
            return Err("no block begins here");
        }
        if header.header_crc.get() != header.checksum() {
            return Err("the checksum of the block's header is wrong");
        }
        const FLAGS: u16 = FLAG_LZ4 | FLAG_UNCHECKED | FLAG_CHUNKS;
        if u32::from(header.version.get()) != FORMAT_VERSION || header.flags.get() & !FLAGS != 0 {
            return Err("the block has another version");
        }
        if header.generation.get() != generation || header.segment.get() != segment || header.at.get() != at {
            return Err("the block was written for another place");
        }
        let (raw, stored) = (header.raw_bytes.get(), header.stored_bytes.get());
        let (lengths, least) = match header.flags.get() & (FLAG_LZ4 | FLAG_CHUNKS) {
            0 => (stored == raw, FRAME_BYTES),
            // Decompression is limited to the largest block written by this program.
            FLAG_LZ4 => (raw <= BLOCK_BYTES_MAX as u64 && stored <= raw, FRAME_BYTES),
            FLAG_CHUNKS => (chunk_lengths_fit(&header), RECORD_BYTES_MIN),
            _ => (false, 1),
        };
        let records = u64::from(header.records.get());
        if !lengths || stored > room || header.disk_bytes() > room || records == 0 || records * least as u64 > raw {
            return Err("the lengths in the block's header are wrong");
        }
        if header.has_chunks() && header.lane.get() == LOCAL.0 {
            return Err("the local log isn't written in chunks");
        }
        let is_odd = header.has_chunks() == (header.chunks.get() == 0) || header.zero != U32::ZERO;
        let (first, last) = (Ssn(header.first.get()), Ssn(header.last.get()));
        if first < Ssn::FIRST || first > last || last >= Ssn::MAX || is_odd {
            return Err("the block's header is wrong");
        }
        Ok(header)
    }

    pub(crate) fn is_lz4(&self) -> bool {
        self.flags.get() & FLAG_LZ4 != 0
    }

    pub(crate) fn has_chunks(&self) -> bool {
        self.flags.get() & FLAG_CHUNKS != 0
    }

    pub(crate) fn is_unchecked(&self) -> bool {
        self.flags.get() & FLAG_UNCHECKED != 0
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        (HEADER_BYTES as u64 + self.stored_bytes.get()).next_multiple_of(PAGE_BYTES as u64)
    }

    pub(crate) fn block(&self) -> Block {
        Block {
            lane: Rank(self.lane.get()),
            first: Ssn(self.first.get()),
            last: Ssn(self.last.get()),
            records: self.records.get(),
            segment: self.segment.get(),
            at: self.at.get(),
            disk_bytes: self.disk_bytes(),
            raw_bytes: self.raw_bytes.get(),
        }
    }
}

/// Returns the number of bytes taken in a block by a record with this body.
pub(crate) fn framed(body: usize) -> usize {
    (FRAME_BYTES + body).next_multiple_of(8)
}

/// Returns a record's header, which precedes its body.
pub(crate) fn frame(record: &Record<'_>) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..8].copy_from_slice(&record.ssn().0.to_le_bytes());
    frame[8..12].copy_from_slice(&(record.prefix().len() as u32).to_le_bytes());
    frame[16..].copy_from_slice(&(record.wire().len() as u64).to_le_bytes());
    frame
}

/// Returns the record at offset `at` of a block's records, and the offset of the next one; `None` at the end, or if
/// there is no valid record.
pub(crate) fn record_at(records: &[u8], at: usize) -> Option<(Record<'_>, usize)> {
    let (frame, rest) = records.get(at..)?.split_first_chunk::<FRAME_BYTES>()?;
    let word = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| frame[from + i]));
    let (prefix, body) = (word(8), usize::try_from(word(16)).ok()?);
    let wire = rest.get(..body)?;
    // The upper half of the word is the reserved zero: a record with another value there is refused.
    let record = Record::new(Ssn(word(0)), wire, usize::try_from(prefix).ok()?)?;
    Some((record, at + framed(body)))
}

/// Returns `true` if the lengths in the header of a chunk block are possible.
fn chunk_lengths_fit(header: &BlockHeader) -> bool {
    let (raw, stored) = (header.raw_bytes.get(), header.stored_bytes.get());
    let is_pages = stored.checked_add(HEADER_BYTES as u64).is_some_and(|bytes| bytes.is_multiple_of(PAGE_BYTES as u64));
    is_pages
        && stored <= (BLOCK_BYTES_MAX + PAGE_BYTES - HEADER_BYTES) as u64
        && raw < stored
        && header.chunks.get() as usize <= CHUNKS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the header of a block with `chunks` MiB of chunks, half of them records.
    fn header(chunks: u64) -> BlockHeader {
        let mut header = BlockHeader::new(1, 2, Rank(0), 4096);
        (header.flags, header.chunks) = (FLAG_CHUNKS.into(), (chunks as u32).into());
        (header.first, header.last, header.records) = (1.into(), 100.into(), 100.into());
        header.raw_bytes = (chunks << 19).into();
        header.stored_bytes = ((chunks << 20) + (PAGE_BYTES - HEADER_BYTES) as u64).into();
        header
    }

    #[test]
    fn a_header_that_a_reader_would_refuse_is_not_sealed_for_writing() {
        let room = 64 << 20;
        assert_eq!(header(16).seal_and_parse(room), Ok(()));
        assert!(header(17).seal_and_parse(room).is_err(), "more than 16 MiB of chunks");
        assert!(header(16).seal_and_parse(16 << 20).is_err(), "more than the segment has left");
        let with_stored = |stored: u64| {
            let mut header = header(16);
            header.stored_bytes = stored.into();
            header.seal_and_parse(room)
        };
        let most = header(16).stored_bytes.get();
        assert_eq!(with_stored(most), Ok(()));
        assert!(with_stored(most + PAGE_BYTES as u64).is_err(), "one page more than 16 MiB of chunks");
        assert!(with_stored(most - 8).is_err(), "no whole pages");
    }

    #[test]
    fn chunks_with_as_many_bytes_of_records_as_the_block_has_are_refused() {
        let with_raw = |raw: u64| {
            let mut header = header(1);
            header.raw_bytes = raw.into();
            header.seal_and_parse(64 << 20)
        };
        let stored = header(1).stored_bytes.get();
        assert_eq!(with_raw(stored - 1), Ok(()));
        assert!(with_raw(stored).is_err());
    }

    /// Creates the header for a compressed block expanding to `raw` bytes.
    fn compressed(raw: u64) -> BlockHeader {
        let mut header = header(0);
        (header.flags, header.chunks) = (FLAG_LZ4.into(), 0.into());
        (header.raw_bytes, header.stored_bytes) = (raw.into(), 4000.into());
        header.header_crc = header.checksum().into();
        header
    }

    #[test]
    fn a_header_is_refused_at_any_place_but_its_own() {
        let header = compressed(8 << 10);
        let parse = |generation, segment, at| BlockHeader::parse(header.as_bytes(), generation, segment, at, 64 << 20);
        assert!(parse(1, 2, 4096).is_ok());
        for (generation, segment, at) in [(3, 2, 4096), (1, 3, 4096), (1, 2, 8192)] {
            assert_eq!(parse(generation, segment, at).err(), Some("the block was written for another place"));
        }
    }

    #[test]
    fn a_compressed_block_larger_than_any_is_refused_before_memory_is_allocated() {
        let parse = |raw| BlockHeader::parse(compressed(raw).as_bytes(), 1, 2, 4096, 64 << 20).err();
        let most = BLOCK_BYTES_MAX as u64;
        assert_eq!(parse(most), None);
        for raw in [most + 1, 1 << 40, u64::MAX] {
            assert_eq!(parse(raw), Some("the lengths in the block's header are wrong"));
        }
    }
    /// Parses a header for 100 records of 32 bytes after `change`.
    fn parsed(room: u64, change: impl Fn(&mut BlockHeader)) -> Option<&'static str> {
        let mut header = header(0);
        (header.flags, header.raw_bytes, header.stored_bytes) = (0.into(), 3200.into(), 3200.into());
        change(&mut header);
        header.seal();
        BlockHeader::parse(header.as_bytes(), 1, 2, 4096, room).err()
    }

    #[test]
    fn lengths_that_contradict_each_other_or_the_segment_are_refused() {
        let raw = |bytes: u64| {
            move |header: &mut BlockHeader| (header.raw_bytes, header.stored_bytes) = (bytes.into(), bytes.into())
        };
        let wrong = Some("the lengths in the block's header are wrong");
        assert_eq!((parsed(4096, |_| ()), parsed(4095, |_| ()), parsed(3199, |_| ())), (None, wrong, wrong));
        assert_eq!((parsed(4096, raw(2400)), parsed(4096, raw(2399)), parsed(4096, raw(0))), (None, wrong, wrong));
        assert_eq!(parsed(4096, raw(u64::MAX - 50)), wrong, "no sum of lengths overflows");
        assert_eq!(parsed(4096, |header| header.stored_bytes = 3199.into()), wrong);
        assert_eq!(parsed(4096, |header| header.records = 0.into()), wrong);
        assert_eq!(parsed(4096, |header| header.records = 134.into()), wrong, "more than fit");
        assert_eq!(parsed(u64::MAX, |header| header.flags = (FLAG_LZ4 | FLAG_CHUNKS).into()), wrong);
    }

    #[test]
    fn a_header_of_another_version_or_with_an_unknown_flag_is_refused() {
        let other = Some("the block has another version");
        assert_eq!(parsed(4096, |header| header.version = 2.into()), other);
        assert_eq!(parsed(4096, |header| header.flags = 8.into()), other);
        assert_eq!(parsed(4096, |header| header.flags = FLAG_UNCHECKED.into()), None);
    }

    #[test]
    fn a_header_with_a_number_that_no_writer_writes_is_refused() {
        let wrong = Some("the block's header is wrong");
        let ssns = |first: u64, last: u64| {
            move |header: &mut BlockHeader| (header.first, header.last) = (first.into(), last.into())
        };
        assert_eq!(parsed(4096, ssns(1, Ssn::MAX.0 - 1)), None);
        for (first, last) in [(0, 100), (101, 100), (1, Ssn::MAX.0), (1, u64::MAX)] {
            assert_eq!(parsed(4096, ssns(first, last)), wrong, "{first} to {last}");
        }
        assert_eq!(parsed(4096, |header| header.zero = 1.into()), wrong);
        assert_eq!(parsed(4096, |header| header.chunks = 1.into()), wrong, "chunks in a block of copied records");
        let mut without_chunks = header(1);
        without_chunks.chunks = 0.into();
        assert!(without_chunks.seal_and_parse(64 << 20).is_err());
    }
}

//! The chunk table in a block of chunks.
//!
//! ```text
//! block header, 96 bytes | an entry for each chunk, 32 bytes | zeros up to 4,096 | first chunk | second chunk | ...
//! ```
//!
//! A chunk is written as in memory, in whole pages. Only the bytes marked as records by its entry are valid: the
//! chunk's header before them may have changed during the write, and the bytes after them are arbitrary. The block's
//! checksum covers the table and the records, and nothing else in the chunks. docs/book/src/reference/formats.md has
//! every byte.

use counterfoil_log_core::{ChunkImage, Record, Ssn, crc32c, crc32c_append, record_in_image};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::PAGE_BYTES;
use crate::format::block::BlockHeader;
use crate::format::{ENTRY_BYTES, HEADER_BYTES};

/// A chunk's entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ChunkEntry {
    /// The first and the last record in this block: other blocks have the chunk's others.
    first: U64,
    last: U64,
    /// Chunk size in bytes, whole pages.
    bytes: U32,
    /// Offset and length of its records, in bytes.
    records_at: U32,
    record_bytes: U32,
    /// Number of its records in this block.
    records: U32,
}

const _: () = assert!(size_of::<ChunkEntry>() == ENTRY_BYTES);

impl ChunkEntry {
    pub(crate) fn of(chunk: &ChunkImage) -> ChunkEntry {
        ChunkEntry {
            first: chunk.first().0.into(),
            last: chunk.last().0.into(),
            // An image has at most 16 MiB, and fewer records than bytes.
            bytes: (chunk.len() as u32).into(),
            records_at: (ChunkImage::RECORDS_AT as u32).into(),
            record_bytes: (chunk.records().len() as u32).into(),
            records: ((chunk.last().0 - chunk.first().0 + 1) as u32).into(),
        }
    }

    pub(crate) fn records(&self) -> u32 {
        self.records.get()
    }

    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes.get().into()
    }
}

/// Returns the checksum over a table and the records in its chunks.
pub(crate) fn checksum<'a>(table: &[u8], records: impl Iterator<Item = &'a [u8]>) -> u32 {
    records.fold(crc32c(table), crc32c_append)
}

/// A chunk of a block in memory.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Offset of its records in the block, and their length in bytes.
    at: usize,
    len: usize,
    first: Ssn,
    last: Ssn,
    records: u32,
}

/// The chunks of a block in memory, from its verified table.
#[derive(Debug, Default)]
pub(crate) struct Chunks(Vec<Chunk>);

/// A position between two records in a block.
///
/// The default is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordPlace {
    /// Index of the chunk; 0 in a block of copied records.
    chunk: usize,
    /// Offset in its records.
    pub(crate) at: usize,
}

impl RecordPlace {
    /// Creates a position in a block of copied records.
    pub(crate) fn at(at: usize) -> RecordPlace {
        RecordPlace { chunk: 0, at }
    }
}

impl Chunks {
    /// Reads the table of `block`, and verifies it and the chunks' records.
    ///
    /// `header` must have been parsed, from a block of chunks; the rest of the block is untrusted.
    pub(crate) fn verify(&mut self, header: &BlockHeader, block: &[u8]) -> Result<(), &'static str> {
        self.0.clear();
        let table_bytes = header.chunks.get() as usize * ENTRY_BYTES;
        let table = block.get(HEADER_BYTES..HEADER_BYTES + table_bytes).ok_or("the block ends in its table")?;
        let entries = <[ChunkEntry]>::ref_from_bytes(table).map_err(|_| "the block's table is cut short")?;
        let mut at = PAGE_BYTES;
        for entry in entries {
            let (bytes, from, len) = (entry.bytes.get(), entry.records_at.get(), entry.record_bytes.get());
            let fits = from.checked_add(len).is_some_and(|end| end <= bytes) && bytes.is_multiple_of(PAGE_BYTES as u32);
            let next = at + bytes as usize;
            if !fits || next > block.len() {
                return Err("a chunk in the block's table goes beyond the block's end");
            }
            let (first, last) = (Ssn(entry.first.get()), Ssn(entry.last.get()));
            self.0.push(Chunk { at: at + from as usize, len: len as usize, first, last, records: entry.records() });
            at = next;
        }
        let records = self.0.iter().map(|chunk| &block[chunk.at..][..chunk.len]);
        if !header.is_unchecked() && checksum(table, records) != header.stored_crc.get() {
            return Err("the block's checksum is wrong");
        }
        let sum = |of: fn(&Chunk) -> u64| self.0.iter().map(of).sum::<u64>();
        let is_whole = at as u64 == header.disk_bytes()
            && sum(|chunk| chunk.len as u64) == header.raw_bytes.get()
            && sum(|chunk| chunk.records.into()) == header.records.get().into()
            && self.0.first().is_some_and(|chunk| chunk.first.0 == header.first.get())
            && self.0.last().is_some_and(|chunk| chunk.last.0 == header.last.get())
            && self.0.windows(2).all(|pair| pair[0].last < pair[1].first);
        if !is_whole {
            return Err("the block's table isn't that of its header");
        }
        self.0.iter().try_for_each(|chunk| chunk.verify(&block[chunk.at..][..chunk.len]))
    }

    /// Returns the record at `place`, and the place after it.
    #[inline]
    pub(crate) fn record<'a>(&self, block: &'a [u8], mut place: RecordPlace) -> Option<(Record<'a>, RecordPlace)> {
        loop {
            let chunk = self.0.get(place.chunk)?;
            // `verify` has checked the bounds.
            let records = &block[chunk.at..][..chunk.len];
            match record_in_image(records, place.at) {
                Some((record, next)) => {
                    place.at = next;
                    if let Some(record) = record.filter(|record| (chunk.first..=chunk.last).contains(&record.ssn())) {
                        return Some((record, place));
                    }
                }
                None => place = RecordPlace { chunk: place.chunk + 1, at: 0 },
            }
        }
    }
}

impl Chunk {
    /// Verifies the records against the chunk's entry.
    fn verify(&self, records: &[u8]) -> Result<(), &'static str> {
        let (mut at, mut before, mut counted) = (0, None, 0_u32);
        let (mut first, mut last) = (None, None);
        while at < records.len() {
            let (record, next) = record_in_image(records, at).ok_or("a record of the block is damaged")?;
            at = next;
            let Some(ssn) = record.map(|record| record.ssn()) else { continue };
            if before >= Some(ssn) {
                return Err("the block's records aren't in order");
            }
            before = Some(ssn);
            if (self.first..=self.last).contains(&ssn) {
                counted += 1;
                first.get_or_insert(ssn);
                last = Some(ssn);
            }
        }
        if (first, last, counted) != (Some(self.first), Some(self.last), self.records) {
            return Err("the block's records aren't those of its table");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::{LaneWriter, Pool, PoolOptions, Rank};
    use proptest::prelude::*;

    use super::*;
    use crate::format::CHUNKS_MAX;
    use crate::format::block::{FLAG_CHUNKS, LOCAL};

    /// Builds a block with two chunks, some of whose records are in other blocks.
    fn block() -> (BlockHeader, Vec<u8>) {
        let options =
            PoolOptions { memory_bytes_max: 1 << 20, chunk_bytes: 8 << 10, prefault_bytes: 0, cursors_max: 1 };
        let mut lane = LaneWriter::new(Pool::volatile(options).expect("a pool"), Rank(1));
        for ssn in 0..200_usize {
            let mut claim = lane.claim(4, ssn % 300 + 60).expect("room");
            claim.body_mut().fill(ssn as u8);
            claim.commit();
        }
        let mut cursor = lane.cursor(Ssn(50)).expect("a cursor");
        let mut chunks = Vec::new();
        while chunks.len() < 2 {
            match cursor.read_chunk(Ssn(140), 1 << 20) {
                Some(chunk) => chunks.push(chunk),
                None => drop(cursor.read().expect("another record")),
            }
        }
        let table: Vec<ChunkEntry> = chunks.iter().map(ChunkEntry::of).collect();
        let mut header = BlockHeader::new(1, 2, Rank(1), 4096);
        header.flags = FLAG_CHUNKS.into();
        header.chunks = 2.into();
        header.records = table.iter().map(ChunkEntry::records).sum::<u32>().into();
        (header.first, header.last) = (chunks[0].first().0.into(), chunks[1].last().0.into());
        header.raw_bytes = table.iter().map(ChunkEntry::record_bytes).sum::<u64>().into();
        let mut bytes = vec![0; PAGE_BYTES];
        bytes[HEADER_BYTES..][..2 * ENTRY_BYTES].copy_from_slice(table.as_bytes());
        for chunk in &chunks {
            let at = bytes.len();
            bytes.resize(at + chunk.len(), 0);
            chunk.copy_to(0, &mut bytes[at..]);
        }
        header.stored_bytes = ((bytes.len() - HEADER_BYTES) as u64).into();
        (header, bytes)
    }

    /// Sets both checksums, as far as the table's ranges are inside the block.
    fn seal(header: &mut BlockHeader, bytes: &mut [u8]) {
        let table_bytes = (header.chunks.get() as usize).min(CHUNKS_MAX) * ENTRY_BYTES;
        let table = &bytes[HEADER_BYTES..][..table_bytes];
        let entries = <[ChunkEntry]>::ref_from_bytes(table).expect("whole entries");
        let mut at = PAGE_BYTES;
        let mut records = Vec::new();
        for entry in entries {
            let from = at.saturating_add(entry.records_at.get() as usize);
            let end = from.saturating_add(entry.record_bytes.get() as usize);
            records.push(bytes.get(from..end).unwrap_or_default());
            at = at.saturating_add(entry.bytes.get() as usize);
        }
        header.stored_crc = checksum(table, records.into_iter()).into();
        header.seal();
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    }

    /// Reads the block as a reader does.
    ///
    /// Returns the number of records, or `None` if the block is refused.
    fn read(bytes: &[u8]) -> Option<usize> {
        let header = BlockHeader::parse(bytes, 1, 2, 4096, bytes.len() as u64).ok()?;
        if !header.has_chunks() {
            return None;
        }
        let mut chunks = Chunks::default();
        chunks.verify(&header, bytes).ok()?;
        let (mut place, mut count, mut before) = (RecordPlace::default(), 0, 0);
        while let Some((record, next)) = chunks.record(bytes, place) {
            assert!(record.ssn().0 > before && (header.first.get()..=header.last.get()).contains(&record.ssn().0));
            (place, count, before) = (next, count + 1, record.ssn().0);
        }
        assert_eq!(count, header.records.get() as usize);
        Some(count)
    }

    #[test]
    fn a_block_of_chunks_has_the_records_of_its_entries_and_no_others() {
        let (mut header, mut bytes) = block();
        seal(&mut header, &mut bytes);
        let count = header.records.get() as usize;
        assert_eq!(read(&bytes), Some(count));
        assert_eq!(header.last.get() - header.first.get() + 1, count as u64);
        for lane in [LOCAL.0, 0] {
            header.lane = lane.into();
            seal(&mut header, &mut bytes);
            assert_eq!(read(&bytes).is_some(), lane != LOCAL.0, "no chunk is the local log's");
        }
    }

    /// Returns the reason for refusing the block after `change`, with valid checksums.
    fn refusal(change: impl Fn(&mut BlockHeader, &mut Vec<u8>)) -> Option<&'static str> {
        let (mut header, mut bytes) = block();
        change(&mut header, &mut bytes);
        seal(&mut header, &mut bytes);
        Chunks::default().verify(&header, &bytes).err()
    }

    #[test]
    fn a_table_with_other_sums_than_its_header_is_refused() {
        let other = Some("the block's table isn't that of its header");
        assert_eq!(refusal(|_, _| ()), None);
        assert_eq!(refusal(|header, _| header.raw_bytes = (header.raw_bytes.get() + 8).into()), other);
        assert_eq!(refusal(|header, _| header.records = (header.records.get() + 1).into()), other);
        assert_eq!(refusal(|header, _| header.first = (header.first.get() + 1).into()), other);
        assert_eq!(refusal(|header, _| header.last = (header.last.get() - 1).into()), other);
        let page_more = |header: &mut BlockHeader, bytes: &mut Vec<u8>| {
            header.stored_bytes = (header.stored_bytes.get() + PAGE_BYTES as u64).into();
            bytes.resize(bytes.len() + PAGE_BYTES, 0);
        };
        assert_eq!(refusal(page_more), other);
        // The second chunk begins with the record that the first one ends with.
        let overlap = |_: &mut BlockHeader, bytes: &mut Vec<u8>| {
            let last = bytes[HEADER_BYTES + 8..][..8].to_vec();
            bytes[HEADER_BYTES + ENTRY_BYTES..][..8].copy_from_slice(&last);
        };
        assert_eq!(refusal(overlap), other);
    }

    #[test]
    fn a_chunk_without_the_records_of_its_entry_is_refused() {
        let other = Some("the block's records aren't those of its table");
        // Entry and header agree on a record count not present in the chunk.
        let more = |header: &mut BlockHeader, bytes: &mut Vec<u8>| {
            header.records = (header.records.get() + 1).into();
            let count = &mut bytes[HEADER_BYTES + 28..][..4];
            let more = u32::from_le_bytes(count.try_into().expect("four bytes")) + 1;
            count.copy_from_slice(&more.to_le_bytes());
        };
        assert_eq!(refusal(more), other);
        // They agree on a last record not present in it.
        let last = |header: &mut BlockHeader, bytes: &mut Vec<u8>| {
            header.last = (header.last.get() + 1000).into();
            let last = header.last.get().to_le_bytes();
            bytes[HEADER_BYTES + ENTRY_BYTES + 8..][..8].copy_from_slice(&last);
        };
        assert_eq!(refusal(last), other);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// With any words in header and table, and valid checksums, a reader neither panics nor leaves the block.
        #[test]
        fn a_wrong_table_is_detected(
            changes in prop::collection::vec((0..3_usize, 0..4096_usize, any::<u32>(), 0..4_u8), 1..4)
        ) {
            let (mut header, mut bytes) = block();
            for (which, at, value, kind) in changes {
                let (from, len) = match which {
                    0 => (0, HEADER_BYTES),
                    1 => (HEADER_BYTES, 3 * ENTRY_BYTES),
                    _ => (PAGE_BYTES, 4096),
                };
                bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
                let word = &mut bytes[from + at % (len / 4) * 4..][..4];
                let old = u32::from_le_bytes(word.try_into().expect("four bytes"));
                let new = match kind {
                    0 => value,
                    1 => old.wrapping_add(value % 9).wrapping_sub(4),
                    2 => old ^ 1 << (value % 32),
                    _ => old.wrapping_add((value % 5) << 12),
                };
                word.copy_from_slice(&new.to_le_bytes());
                header = BlockHeader::read_from_prefix(&bytes).expect("a header's bytes").0;
            }
            seal(&mut header, &mut bytes);
            let _ = read(&bytes);
        }
    }
}

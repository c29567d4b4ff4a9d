//! The buffer for a block read and verified.

use std::io;

use counterfoil_log_core::{Record, crc32c};

use crate::format::HEADER_BYTES;
use crate::format::block::{BlockHeader, record_at};
use crate::format::chunk_table::Chunks;
use crate::format::lz4;
use crate::{Block, Buffer, PAGE_BYTES, ReadAt, RecordPlace, StoreError};

/// A block's records.
///
/// Reuses its memory for the next block: at most the largest block so far and, for compressed blocks, also the largest
/// uncompressed one.
#[derive(Debug)]
pub struct BlockBuffer {
    stored: Buffer,
    expanded: Vec<u8>,
    /// The block's chunks, if its header has the flag.
    chunks: Chunks,
    header: Option<BlockHeader>,
}

impl Default for BlockBuffer {
    fn default() -> BlockBuffer {
        BlockBuffer { stored: Buffer::new(0), expanded: Vec::new(), chunks: Chunks::default(), header: None }
    }
}

impl BlockBuffer {
    /// Returns the block's records, in SSN order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut place = RecordPlace::default();
        std::iter::from_fn(move || {
            let (record, next) = self.at(place)?;
            place = next;
            Some(record)
        })
    }

    /// Returns the record at `place`, and the place after it.
    ///
    /// `None` after the last record.
    #[inline]
    pub fn at(&self, place: RecordPlace) -> Option<(Record<'_>, RecordPlace)> {
        if self.header.is_some_and(|header| header.has_chunks()) {
            return self.chunks.record(self.stored.as_slice(), place);
        }
        let (record, next) = record_at(self.raw(), place.at)?;
        Some((record, RecordPlace::at(next)))
    }

    fn raw(&self) -> &[u8] {
        match &self.header {
            None => &[],
            Some(header) if header.is_lz4() => &self.expanded,
            // `verify` has checked the length against the bytes read.
            Some(header) => &self.stored.as_slice()[HEADER_BYTES..][..header.raw_bytes.get() as usize],
        }
    }

    /// Removes the block.
    pub(crate) fn clear(&mut self) {
        self.header = None;
    }

    /// Returns the header of the block, if there is one.
    pub(crate) fn header(&self) -> Option<BlockHeader> {
        self.header
    }

    /// Reads `len` bytes at offset `at`, and verifies the block in them.
    pub(crate) fn read(
        &mut self,
        file: &dyn ReadAt,
        name: &str,
        generation: u64,
        (segment, at, len): (u32, u64, u64),
    ) -> Result<(), StoreError> {
        self.header = None;
        // Checked before memory is allocated: a wrong length must not cost any.
        let end = file.len().map_err(StoreError::io("read the length of", name))?;
        let fits = at.checked_add(len).is_some_and(|block_end| block_end <= end);
        let len = usize::try_from(len).ok().filter(|_| fits);
        let len = len.ok_or_else(|| StoreError::damaged(name, at, "the block goes beyond the end of the file"))?;
        self.grow(len);
        let into = &mut self.stored.bytes_mut()[..len];
        file.read_at(at, into).map_err(StoreError::read(name, at))?;
        self.stored.set_len(len);
        self.verify(name, generation, segment, at)
    }

    /// Reads `block` by calling `read` on the buffer, and verifies it.
    pub(crate) fn fill(
        &mut self,
        name: &str,
        generation: u64,
        block: &Block,
        read: impl FnOnce(&mut Buffer) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        self.header = None;
        read(&mut self.stored).map_err(StoreError::read(name, block.at))?;
        self.verify(name, generation, block.segment, block.at)?;
        self.check_identity(block, name)
    }

    fn grow(&mut self, len: usize) {
        if self.stored.capacity() < len {
            self.stored = Buffer::new(len.next_multiple_of(16 * PAGE_BYTES));
        }
    }

    /// Verifies the header, the checksum, and their agreement with the records.
    fn verify(&mut self, name: &str, generation: u64, segment: u32, at: u64) -> Result<(), StoreError> {
        let damaged = |what| StoreError::damaged(name, at, what);
        let header = self.verify_stored(generation, segment, at).map_err(damaged)?;
        if header.is_lz4() && !lz4::IS_BUILT {
            return Err(StoreError::Compressed { file: name.to_owned(), offset: at });
        }
        self.header = Some(header);
        let verified = self.verify_records(&header).map_err(damaged);
        if verified.is_err() {
            self.header = None;
        }
        verified
    }

    /// Verifies the header, and the checksums of the stored bytes.
    fn verify_stored(&mut self, generation: u64, segment: u32, at: u64) -> Result<BlockHeader, &'static str> {
        let bytes = self.stored.as_slice();
        let header = BlockHeader::parse(bytes, generation, segment, at, bytes.len() as u64)?;
        if header.has_chunks() {
            self.chunks.verify(&header, bytes)?;
            return Ok(header);
        }
        let stored = stored_bytes(bytes, &header).ok_or("the block is longer than what was read")?;
        if !header.is_unchecked() && crc32c(stored) != header.stored_crc.get() {
            return Err("the block's checksum is wrong");
        }
        Ok(header)
    }

    /// Expands a compressed block, and verifies the records of one without chunks.
    fn verify_records(&mut self, header: &BlockHeader) -> Result<(), &'static str> {
        if header.has_chunks() {
            return Ok(());
        }
        if header.is_lz4() {
            // `BlockHeader::parse` has limited the length.
            self.expanded.resize(header.raw_bytes.get() as usize, 0);
            let stored = stored_bytes(self.stored.as_slice(), header).unwrap_or_default();
            if !lz4::decompress(stored, &mut self.expanded) {
                return Err("the block can't be decompressed");
            }
        }
        self.check_records(header)
    }

    fn check_records(&self, header: &BlockHeader) -> Result<(), &'static str> {
        let (mut at, mut count, mut last) = (0, 0, None);
        while let Some((record, next)) = record_at(self.raw(), at) {
            let ssn = record.ssn().0;
            if last.map_or(ssn != header.first.get(), |last| ssn <= last) {
                return Err("the block's records aren't in order");
            }
            (at, count, last) = (next, count + 1, Some(ssn));
        }
        if at != self.raw().len() || count != header.records.get() || last != Some(header.last.get()) {
            return Err("the block's records aren't those of its header");
        }
        Ok(())
    }

    /// Checks that the buffer holds `block`; removes other contents.
    pub(crate) fn check_identity(&mut self, block: &Block, name: &str) -> Result<(), StoreError> {
        if self.header.is_some_and(|header| header.block() == *block) {
            return Ok(());
        }
        self.header = None;
        Err(StoreError::damaged(name, block.at, "it isn't the block that the index refers to"))
    }
}

/// Returns the stored bytes of a block without chunks.
fn stored_bytes<'a>(block: &'a [u8], header: &BlockHeader) -> Option<&'a [u8]> {
    block.get(HEADER_BYTES..)?.get(..header.stored_bytes.get() as usize)
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::{Rank, Ssn};

    use super::*;
    use crate::backend::memory_file::MemoryFile;
    use crate::format::block::{FLAG_UNCHECKED, frame, framed};

    /// Offset of the block in its file.
    const AT: u64 = 4096;

    /// Builds a file with a block of records with these SSNs, after `change` to its header and records.
    fn file(ssns: &[u64], change: impl Fn(&mut BlockHeader, &mut Vec<u8>)) -> MemoryFile {
        let mut records = Vec::new();
        for &ssn in ssns {
            let body = vec![ssn as u8; ssn as usize % 20];
            let record = Record::new(Ssn(ssn), &body, 0).expect("a record");
            let at = records.len();
            records.extend(frame(&record));
            records.extend(&body);
            records.resize(at + framed(body.len()), 0);
        }
        let mut header = BlockHeader::new(1, 2, Rank(0), AT);
        header.records = (ssns.len() as u32).into();
        (header.first, header.last) = (ssns[0].into(), ssns[ssns.len() - 1].into());
        (header.raw_bytes, header.stored_bytes) = ((records.len() as u64).into(), (records.len() as u64).into());
        change(&mut header, &mut records);
        if header.stored_crc.get() == 0 {
            header.stored_crc = crc32c(&records).into();
        }
        header.seal();
        let mut bytes = vec![0; AT as usize];
        bytes.extend(zerocopy::IntoBytes::as_bytes(&header));
        bytes.extend(records);
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        MemoryFile(bytes)
    }

    /// Reads the block.
    ///
    /// Returns its SSNs, or the reason for refusal.
    fn read(file: &MemoryFile) -> Result<Vec<u64>, &'static str> {
        let mut buffer = BlockBuffer::default();
        let len = file.0.len() as u64 - AT;
        match buffer.read(file, "segment-00000002", 1, (2, AT, len)) {
            Ok(()) => Ok(buffer.records().map(|record| record.ssn().0).collect()),
            Err(StoreError::Damaged { file, offset: AT, what }) if file == "segment-00000002" => {
                assert_eq!(buffer.records().count(), 0, "a refused block has no records");
                Err(what)
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn records_that_are_not_those_of_the_header_are_refused() {
        let ssns = [3, 4, 9, 40];
        assert_eq!(read(&file(&ssns, |_, _| ())), Ok(ssns.to_vec()));
        let other = Err("the block's records aren't those of its header");
        assert_eq!(read(&file(&ssns, |header, _| header.records = 3.into())), other);
        assert_eq!(read(&file(&ssns, |header, _| header.records = 5.into())), other);
        assert_eq!(read(&file(&ssns, |header, _| header.last = 41.into())), other);
        // Zeros after the last record aren't a record.
        let longer = |header: &mut BlockHeader, records: &mut Vec<u8>| {
            records.resize(records.len() + 8, 0);
            (header.raw_bytes, header.stored_bytes) = ((records.len() as u64).into(), (records.len() as u64).into());
        };
        assert_eq!(read(&file(&ssns, longer)), other);
        let unordered = Err("the block's records aren't in order");
        assert_eq!(read(&file(&ssns, |header, _| header.first = 2.into())), unordered);
        assert_eq!(read(&file(&[3, 3], |_, _| ())), unordered);
        assert_eq!(read(&file(&[3, 5, 4, 9], |_, _| ())), unordered);
    }

    #[test]
    fn the_checksum_counts_unless_the_block_has_none() {
        let wrong = |header: &mut BlockHeader, _: &mut Vec<u8>| header.stored_crc = 99.into();
        assert_eq!(read(&file(&[1, 2], wrong)), Err("the block's checksum is wrong"));
        let unchecked = |header: &mut BlockHeader, records: &mut Vec<u8>| {
            wrong(header, records);
            header.flags = FLAG_UNCHECKED.into();
        };
        assert_eq!(read(&file(&[1, 2], unchecked)), Ok(vec![1, 2]));
    }

    #[test]
    fn a_block_is_read_only_within_its_file_and_as_what_it_is() {
        let whole = file(&[1, 2], |_, _| ());
        let mut buffer = BlockBuffer::default();
        let mut read =
            |len| buffer.read(&whole, "segment-00000002", 1, (2, AT, len)).err().map(|error| error.to_string());
        assert_eq!(read(4096), None);
        for len in [4097, 8192, u64::MAX - 4096, u64::MAX] {
            assert!(read(len).is_some_and(|error| error.contains("goes beyond the end of the file")), "{len}");
        }
        assert_eq!(read(4096), None);
        let block = buffer.header().expect("a block").block();
        assert!(buffer.check_identity(&block, "segment-00000002").is_ok());
        let other = Block { records: 1, ..block };
        assert!(buffer.check_identity(&other, "segment-00000002").is_err());
        assert!(buffer.header().is_none() && buffer.records().next().is_none());
    }

    #[test]
    fn a_cleared_buffer_has_no_records() {
        let whole = file(&[1, 2], |_, _| ());
        let mut buffer = BlockBuffer::default();
        buffer.read(&whole, "segment-00000002", 1, (2, AT, 4096)).expect("a block");
        assert_eq!(buffer.records().count(), 2);
        buffer.clear();
        assert_eq!(buffer.records().count(), 0);
    }
}

//! The buffer of a block that was read and verified.

use std::io;

use counterfoil_log_core::{Record, crc32c};

use crate::block::{BlockHeader, HEADER_BYTES, record_at};
use crate::chunk_table::Chunks;
use crate::{Block, Buffer, PAGE_BYTES, ReadAt, RecordPlace, StoreError};

/// The records of a block. It reuses its memory for the next block: at most the largest block so far and, for compressed
/// blocks, also the largest uncompressed one.
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

    /// Returns the record at `place`, and the place after it. `None` after the last record.
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
            // `verify` has checked the length against the bytes that were read.
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
        self.reserve(len);
        let into = &mut self.stored.bytes_mut()[..len];
        file.read_at(at, into).map_err(StoreError::read(name, at))?;
        self.stored.set_len(len);
        self.verify(generation, segment, at).map_err(|what| StoreError::damaged(name, at, what))
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
        let verified = self.verify(generation, block.segment, block.at);
        verified.map_err(|what| StoreError::damaged(name, block.at, what))?;
        self.check_identity(block, name)
    }

    fn reserve(&mut self, len: usize) {
        if self.stored.capacity() < len {
            self.stored = Buffer::new(len.next_multiple_of(16 * PAGE_BYTES));
        }
    }

    /// Verifies the header, the checksum, and that the records match the header.
    fn verify(&mut self, generation: u64, segment: u32, at: u64) -> Result<(), &'static str> {
        let bytes = self.stored.as_slice();
        let header = BlockHeader::parse(bytes, generation, segment, at, bytes.len() as u64)?;
        if header.has_chunks() {
            self.chunks.verify(&header, bytes)?;
            self.header = Some(header);
            return Ok(());
        }
        let stored = bytes.get(HEADER_BYTES..).and_then(|bytes| bytes.get(..header.stored_bytes.get() as usize));
        let stored = stored.ok_or("the block is longer than what was read")?;
        if !header.is_unchecked() && crc32c(stored) != header.stored_crc.get() {
            return Err("the block's checksum is wrong");
        }
        if header.is_lz4() {
            // `BlockHeader::parse` has limited the length.
            self.expanded.resize(header.raw_bytes.get() as usize, 0);
            let len = lz4_flex::block::decompress_into(stored, &mut self.expanded);
            if len.ok() != Some(self.expanded.len()) {
                return Err("the block can't be decompressed");
            }
        }
        self.header = Some(header);
        let checked = self.check_records(&header);
        if checked.is_err() {
            self.header = None;
        }
        checked
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

    /// Checks that the buffer holds `block`; removes it if not.
    pub(crate) fn check_identity(&mut self, block: &Block, name: &str) -> Result<(), StoreError> {
        if self.header.is_some_and(|header| header.block() == *block) {
            return Ok(());
        }
        self.header = None;
        Err(StoreError::damaged(name, block.at, "it isn't the block that the index refers to"))
    }
}

//! Appending records as blocks.

use counterfoil_log_core::{Rank, Record, Ssn, crc32c, crc32c_append};
use zerocopy::IntoBytes;

use super::Store;
use super::append_chunks::ChunkBlock;
use crate::format::block::{BlockHeader, FLAG_LZ4, FLAG_UNCHECKED, FRAME_BYTES, LOCAL, RecordSource, frame, framed};
use crate::format::lz4;
use crate::format::names::segment_name;
use crate::format::{FIRST_BLOCK, HEADER_BYTES};
use crate::store::prefetch;
use crate::{Block, Buffer, LocalImage, PAGE_BYTES, StoreError};

const PAGE: u64 = PAGE_BYTES as u64;

/// The block under construction, if any.
#[derive(Default)]
pub(super) enum OpenBlock {
    #[default]
    None,
    Records(RecordBlock),
    Chunks(ChunkBlock),
}

/// A block of copied records.
pub(super) struct RecordBlock {
    buffer: Buffer,
    segment: u32,
    /// Limit for the buffered bytes, and their number.
    capacity: usize,
    filled: usize,
    records: u32,
    first: Ssn,
    last: Ssn,
}

impl RecordBlock {
    fn put(&mut self, record: &Record<'_>) {
        let wire = record.wire();
        let into = &mut self.buffer.bytes_mut()[self.filled..][..framed(wire.len())];
        prefetch::following(wire);
        into[..FRAME_BYTES].copy_from_slice(&frame(record));
        into[FRAME_BYTES..][..wire.len()].copy_from_slice(wire);
        into[FRAME_BYTES + wire.len()..].fill(0);
        self.filled += into.len();
        self.last = record.ssn();
        self.records += 1;
    }
}

impl Store {
    /// Appends a lane's records as blocks, and adds the blocks to `into`.
    ///
    /// They can be read after [`flush`](Self::flush), and are durable after [`sync`](Self::sync). The live index refers
    /// to them until they are [freed](Self::free). Chunks are written in place, except in compressed stores; their
    /// memory stays pinned until they are written.
    ///
    /// The lane [`LOCAL`](crate::LOCAL) is for local log entries ([`LocalImage::source`]); the store itself frees its
    /// blocks when the next checkpoint is durable.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Budget`], [`StoreError::TooManyFiles`], [`StoreError::Io`]: no segment
    /// could be created; the blocks in `into` are whole, and records not in them can be appended again.
    /// [`StoreError::Record`] if SSNs don't rise. [`StoreError::Failed`].
    pub fn append(
        &mut self,
        lane: Rank,
        records: &mut dyn RecordSource,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        self.check_writable()?;
        let mut open = OpenBlock::None;
        let mut last = Ssn::ZERO;
        let chunk_bytes_max = self.chunk_bytes_max(lane);
        let appended = loop {
            if let Some(chunk) = chunk_bytes_max.and_then(|most| records.next_chunk(most)) {
                let ssn = chunk.last();
                match self.append_chunk(lane, chunk, last, &mut open, into) {
                    Ok(()) => last = ssn,
                    Err(error) => break Err(error),
                }
                continue;
            }
            let Some(record) = records.next() else { break Ok(()) };
            match self.append_record(lane, &record, last, &mut open, into) {
                Ok(()) => last = record.ssn(),
                Err(error) => break Err(error),
            }
        };
        let finished = self.finish_open_block(lane, &mut open, into);
        let done = appended.and(finished);
        if done.is_err() {
            // The caller may not flush after an error, so the chunks of earlier writes are released here. The next call
            // reports a failure of this flush.
            let _ = self.flush();
        }
        done
    }

    /// Completes the block under construction and starts to write it.
    pub(super) fn finish_open_block(
        &mut self,
        lane: Rank,
        open: &mut OpenBlock,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        match std::mem::take(open) {
            OpenBlock::None => Ok(()),
            OpenBlock::Records(block) => self.finish(lane, block, into),
            OpenBlock::Chunks(block) => self.finish_chunks(lane, block, into),
        }
    }

    fn append_record(
        &mut self,
        lane: Rank,
        record: &Record<'_>,
        last: Ssn,
        open: &mut OpenBlock,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        let refuse = |what| Err(StoreError::Record { lane, ssn: record.ssn(), what });
        if record.ssn() <= last {
            return refuse("SSNs must rise, from 1 on");
        }
        if lane == LOCAL && record.ssn() <= self.local_last {
            return refuse("an entry with this SSN was appended since the newest checkpoint");
        }
        if lane == LOCAL && LocalImage::from_record(record).is_none() {
            return refuse("it isn't an entry of the local log");
        }
        let need = framed(record.wire().len());
        if let OpenBlock::Records(block) = open
            && block.filled + need <= block.capacity
        {
            block.put(record);
            return Ok(());
        }
        self.finish_open_block(lane, open, into)?;
        if HEADER_BYTES + need > self.block_bytes() {
            return self.append_large(lane, record, into);
        }
        let mut block = self.begin(record.ssn(), HEADER_BYTES + need)?;
        block.put(record);
        *open = OpenBlock::Records(block);
        Ok(())
    }

    fn block_bytes(&self) -> usize {
        self.options.block_bytes.min(self.backend.buffer_bytes())
    }

    /// Starts a block; its first record needs `need` bytes.
    fn begin(&mut self, first: Ssn, need: usize) -> Result<RecordBlock, StoreError> {
        let block = self.block_bytes();
        // The end of a segment is used for a smaller block, at least a quarter.
        let least = (need.next_multiple_of(PAGE_BYTES)).max(block / 4) as u64;
        let segment = self.segment_with(least)?;
        let capacity = self.segments[&segment].room().min(block as u64) as usize;
        let buffer = self.buffer()?;
        Ok(RecordBlock { buffer, segment, capacity, filled: HEADER_BYTES, records: 0, first, last: first })
    }

    /// Returns the active segment, or a new one if fewer than `room` bytes are left in it.
    pub(super) fn segment_with(&mut self, room: u64) -> Result<u32, StoreError> {
        if let Some(active) = self.active.filter(|active| self.segments[active].room() >= room) {
            return Ok(active);
        }
        let segment = self.create_segment(self.options.segment_bytes)?;
        if let Some(full) = self.active.replace(segment) {
            self.seal(full);
        }
        Ok(segment)
    }

    fn finish(&mut self, lane: Rank, mut block: RecordBlock, into: &mut Vec<Block>) -> Result<(), StoreError> {
        let raw = block.filled - HEADER_BYTES;
        let mut header = self.header(lane, block.segment);
        let mut stored = raw;
        if self.options.compress {
            let records = &mut block.buffer.bytes_mut()[HEADER_BYTES..][..raw];
            if let Some(len) = lz4::compress(records, &mut self.compressed).filter(|len| len + raw / 8 <= raw) {
                records[..len].copy_from_slice(&self.compressed[..len]);
                header.flags = FLAG_LZ4.into();
                stored = len;
            }
        }
        header.records = block.records.into();
        header.first = block.first.0.into();
        header.last = block.last.0.into();
        header.raw_bytes = (raw as u64).into();
        header.stored_bytes = (stored as u64).into();
        let bytes = block.buffer.bytes_mut();
        if self.options.checksums {
            header.stored_crc = crc32c(&bytes[HEADER_BYTES..][..stored]).into();
        } else {
            header.flags = (header.flags.get() | FLAG_UNCHECKED).into();
        }
        self.seal_header(&mut header)?;
        let bytes = block.buffer.bytes_mut();
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        block.buffer.set_len(HEADER_BYTES + stored);
        let file = self.register_block(&header);
        self.begin_write(file, &segment_name(block.segment), header.at.get(), block.buffer)?;
        into.push(header.block());
        Ok(())
    }

    /// Appends a record larger than a buffer or a segment.
    ///
    /// Computes its checksum before it is copied.
    fn append_large(&mut self, lane: Rank, record: &Record<'_>, into: &mut Vec<Block>) -> Result<(), StoreError> {
        let wire = record.wire();
        let raw = framed(wire.len());
        let disk = ((HEADER_BYTES + raw) as u64).next_multiple_of(PAGE);
        let segment = if disk > self.options.segment_bytes - FIRST_BLOCK {
            self.create_segment(FIRST_BLOCK + disk)?
        } else {
            self.segment_with(disk)?
        };
        let frame = frame(record);
        let padding = &[0; 8][..raw - FRAME_BYTES - wire.len()];
        let mut header = self.header(lane, segment);
        header.records = 1.into();
        header.first = record.ssn().0.into();
        header.last = record.ssn().0.into();
        header.raw_bytes = (raw as u64).into();
        header.stored_bytes = (raw as u64).into();
        if self.options.checksums {
            let crc = crc32c_append(crc32c(&frame), wire);
            header.stored_crc = crc32c_append(crc, padding).into();
        } else {
            header.flags = FLAG_UNCHECKED.into();
        }
        self.seal_header(&mut header)?;
        let file = self.register_block(&header);
        let pieces = [header.as_bytes(), &frame, wire, padding];
        self.write_pieces(file, &segment_name(segment), header.at.get(), &pieces)?;
        into.push(header.block());
        Ok(())
    }

    /// Creates the header of the next block of a segment.
    pub(super) fn header(&self, lane: Rank, segment: u32) -> BlockHeader {
        let of = &self.segments[&segment];
        let mut header = BlockHeader::new(of.generation, segment, lane, of.end);
        header.index = of.written.into();
        header.after = if lane == LOCAL { self.local_last.0.into() } else { 0.into() };
        header
    }

    /// Seals the header of a block to be written at its segment's end.
    ///
    /// Refuses one that readers would refuse, before any byte of the block is written.
    pub(super) fn seal_header(&self, header: &mut BlockHeader) -> Result<(), StoreError> {
        let room = self.segments[&header.segment.get()].room();
        let (lane, first) = (Rank(header.lane.get()), Ssn(header.first.get()));
        header.seal_and_parse(room).map_err(|what| StoreError::Unreadable { lane, first, what })
    }

    /// Registers a block in its segment.
    ///
    /// Returns the segment's file.
    pub(super) fn register_block(&mut self, header: &BlockHeader) -> crate::FileId {
        let block = header.block();
        if block.lane == LOCAL {
            self.local.push((block.segment, block.at));
            self.local_last = block.last;
        }
        let segment = self.segments.get_mut(&block.segment).expect("a block's header is made from its segment");
        segment.add(&block);
        segment.change(block.at, |stored| stored.is_live = true);
        segment.written += 1;
        segment.is_dirty = true;
        segment.file.expect("the segment that is being written is open")
    }
}

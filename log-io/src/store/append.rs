//! Writing records as blocks.

use counterfoil_log_core::{Rank, Record, Ssn};
use zerocopy::IntoBytes;

use super::Store;
use super::append_chunks::Gathering;
use crate::block::{
    BlockHeader, FLAG_LZ4, FLAG_UNCHECKED, FRAME_BYTES, HEADER_BYTES, LOCAL, RecordSource, frame, framed,
};
use crate::segment::{FIRST_BLOCK, segment_name};
use crate::{Block, Buffer, LocalImage, PAGE_BYTES, StoreError, prefetch};

const PAGE: u64 = PAGE_BYTES as u64;

/// The block that is being put together, if there is one.
#[derive(Default)]
pub(super) enum Begun {
    #[default]
    Nothing,
    Records(Filling),
    Chunks(Gathering),
}

/// A block whose records are copied.
pub(super) struct Filling {
    buffer: Buffer,
    segment: u32,
    /// Bytes of the buffer that may be filled, and that are.
    capacity: usize,
    filled: usize,
    records: u32,
    first: Ssn,
    last: Ssn,
}

impl Filling {
    fn put(&mut self, record: &Record<'_>) {
        let wire = record.wire();
        let into = &mut self.buffer.bytes_mut()[self.filled..][..framed(wire.len())];
        prefetch::behind(wire);
        into[..FRAME_BYTES].copy_from_slice(&frame(record));
        into[FRAME_BYTES..][..wire.len()].copy_from_slice(wire);
        into[FRAME_BYTES + wire.len()..].fill(0);
        self.filled += into.len();
        self.last = record.ssn();
        self.records += 1;
    }
}

impl Store {
    /// Writes records of a lane as blocks, and adds these to `into`. They can be read after [`flush`](Self::flush), and
    /// survive after [`sync`](Self::sync). The live index refers to them until it [frees](Self::free) them. Chunks that
    /// `records` has are written from where they lie, except for compressed stores; their memory is kept until they are written.
    ///
    /// The lane [`LOCAL`](crate::LOCAL) is for entries of the local log ([`LocalImage::source`]); the store itself frees its
    /// blocks when the next checkpoint is durable.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Budget`]: the blocks that were added to `into` are whole, and the records
    /// that are in none of them can be appended again. [`StoreError::Record`] where SSNs don't rise.
    /// [`StoreError::Failed`].
    pub fn append(
        &mut self,
        lane: Rank,
        records: &mut dyn RecordSource,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        self.check_writable()?;
        let mut begun = Begun::Nothing;
        let mut last = Ssn::ZERO;
        let chunk_bytes_max = self.chunk_bytes_max(lane);
        let appended = loop {
            if let Some(chunk) = chunk_bytes_max.and_then(|most| records.next_chunk(most)) {
                let ssn = chunk.last();
                match self.append_chunk(lane, chunk, last, &mut begun, into) {
                    Ok(()) => last = ssn,
                    Err(error) => break Err(error),
                }
                continue;
            }
            let Some(record) = records.next() else { break Ok(()) };
            match self.append_one(lane, &record, last, &mut begun, into) {
                Ok(()) => last = record.ssn(),
                Err(error) => break Err(error),
            }
        };
        let finished = self.finish_begun(lane, &mut begun, into);
        let done = appended.and(finished);
        if done.is_err() {
            // Nobody may wait for what went before: its chunks are to be given back. The next call says what fails now.
            let _ = self.flush();
        }
        done
    }

    /// Finishes the block that is being put together.
    pub(super) fn finish_begun(
        &mut self,
        lane: Rank,
        begun: &mut Begun,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        match std::mem::take(begun) {
            Begun::Nothing => Ok(()),
            Begun::Records(filling) => self.finish(lane, filling, into),
            Begun::Chunks(gathering) => self.finish_chunks(lane, gathering, into),
        }
    }

    fn append_one(
        &mut self,
        lane: Rank,
        record: &Record<'_>,
        last: Ssn,
        begun: &mut Begun,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        let refuse = |what| Err(StoreError::Record { lane, ssn: record.ssn(), what });
        if record.ssn() <= last {
            return refuse("SSNs rise, and begin with 1");
        }
        if lane == LOCAL && record.ssn() <= self.local_last {
            return refuse("an entry with this SSN was appended since the newest checkpoint");
        }
        if lane == LOCAL && LocalImage::from_record(record).is_none() {
            return refuse("it isn't an entry of the local log");
        }
        let need = framed(record.wire().len());
        if let Begun::Records(filling) = begun
            && filling.filled + need <= filling.capacity
        {
            filling.put(record);
            return Ok(());
        }
        self.finish_begun(lane, begun, into)?;
        if HEADER_BYTES + need > self.block_bytes() {
            return self.append_large(lane, record, into);
        }
        let mut filling = self.begin(record.ssn(), HEADER_BYTES + need)?;
        filling.put(record);
        *begun = Begun::Records(filling);
        Ok(())
    }

    fn block_bytes(&self) -> usize {
        self.options.block_bytes.min(self.backend.buffer_bytes())
    }

    /// Finds a place for a block whose first record needs `need` bytes.
    fn begin(&mut self, first: Ssn, need: usize) -> Result<Filling, StoreError> {
        let block = self.block_bytes();
        // The end of a segment is used for a smaller block where that is no less than a quarter.
        let least = (need.next_multiple_of(PAGE_BYTES)).max(block / 4) as u64;
        let segment = self.segment_with(least)?;
        let capacity = self.segments[&segment].room().min(block as u64) as usize;
        let buffer = self.buffer()?;
        Ok(Filling { buffer, segment, capacity, filled: HEADER_BYTES, records: 0, first, last: first })
    }

    /// The segment that is being written, or a new one where it hasn't this much room.
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

    fn finish(&mut self, lane: Rank, mut filling: Filling, into: &mut Vec<Block>) -> Result<(), StoreError> {
        let raw = filling.filled - HEADER_BYTES;
        let mut header = self.header(lane, filling.segment);
        let mut stored = raw;
        if self.options.compress {
            let most = lz4_flex::block::get_maximum_output_size(raw);
            self.compressed.resize(most.max(self.compressed.len()), 0);
            let records = &mut filling.buffer.bytes_mut()[HEADER_BYTES..][..raw];
            let len = lz4_flex::block::compress_into(records, &mut self.compressed);
            if let Some(len) = len.ok().filter(|len| len + raw / 8 <= raw) {
                records[..len].copy_from_slice(&self.compressed[..len]);
                header.flags = FLAG_LZ4.into();
                stored = len;
            }
        }
        header.records = filling.records.into();
        header.first = filling.first.0.into();
        header.last = filling.last.0.into();
        header.raw_bytes = (raw as u64).into();
        header.stored_bytes = (stored as u64).into();
        let bytes = filling.buffer.bytes_mut();
        if self.options.checksums {
            header.stored_crc = crc32c::crc32c(&bytes[HEADER_BYTES..][..stored]).into();
        } else {
            header.flags = (header.flags.get() | FLAG_UNCHECKED).into();
        }
        header.seal();
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        filling.buffer.set_len(HEADER_BYTES + stored);
        let file = self.note_block(&header);
        self.begin_write(file, &segment_name(filling.segment), header.at.get(), filling.buffer)?;
        into.push(header.block());
        Ok(())
    }

    /// A record that fits in no buffer, or in no segment: its checksum is made before it is copied.
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
            let crc = crc32c::crc32c_append(crc32c::crc32c(&frame), wire);
            header.stored_crc = crc32c::crc32c_append(crc, padding).into();
        } else {
            header.flags = FLAG_UNCHECKED.into();
        }
        header.seal();
        let file = self.note_block(&header);
        let pieces = [header.as_bytes(), &frame, wire, padding];
        self.write_pieces(file, &segment_name(segment), header.at.get(), &pieces)?;
        into.push(header.block());
        Ok(())
    }

    /// The header of the block that comes next in a segment.
    pub(super) fn header(&self, lane: Rank, segment: u32) -> BlockHeader {
        let of = &self.segments[&segment];
        let mut header = BlockHeader::new(of.generation, segment, lane, of.end);
        header.index = of.written.into();
        header.after = if lane == LOCAL { self.local_last.0.into() } else { 0.into() };
        header
    }

    /// Takes a block into the account; returns the file that it goes to.
    pub(super) fn note_block(&mut self, header: &BlockHeader) -> crate::FileId {
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

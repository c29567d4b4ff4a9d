//! Writing chunks from where they lie in memory.

use counterfoil_log_core::{ChunkImage, Rank, Ssn};
use zerocopy::IntoBytes;

use super::Store;
use super::append::Begun;
use crate::block::{FLAG_CHUNKS, FLAG_UNCHECKED, HEADER_BYTES, LOCAL};
use crate::chunk_table::{CHUNKS_MAX, ChunkEntry, checksum};
use crate::options::BLOCK_BYTES_MAX;
use crate::segment::{FIRST_BLOCK, segment_name};
use crate::{Block, PAGE_BYTES, StoreError};

/// A block of chunks that is being put together: none of their bytes has been touched yet.
pub(super) struct Gathering {
    segment: u32,
    /// Bytes of chunks that there may be, and that are.
    capacity: usize,
    bytes: usize,
    chunks: Vec<ChunkImage>,
}

impl Store {
    /// The most bytes of a chunk of this lane that may be written from where it lies; `None` for none at all.
    pub(super) fn chunk_bytes_max(&self, lane: Rank) -> Option<usize> {
        let segment = self.options.segment_bytes - FIRST_BLOCK - PAGE_BYTES as u64;
        (lane != LOCAL && !self.options.compress).then(|| segment.min(BLOCK_BYTES_MAX as u64) as usize)
    }

    pub(super) fn append_chunk(
        &mut self,
        lane: Rank,
        chunk: ChunkImage,
        last: Ssn,
        begun: &mut Begun,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        if chunk.first() <= last {
            return Err(StoreError::Record { lane, ssn: chunk.first(), what: "SSNs rise, and begin with 1" });
        }
        if let Begun::Chunks(gathering) = begun
            && gathering.bytes + chunk.len() <= gathering.capacity
            && gathering.chunks.len() < CHUNKS_MAX
        {
            gathering.bytes += chunk.len();
            gathering.chunks.push(chunk);
            return Ok(());
        }
        self.finish_begun(lane, begun, into)?;
        // The end of a segment is used for a smaller block where that is no less than a quarter, as with records.
        let block = self.options.block_bytes;
        let least = chunk.len().max(block / 4) + PAGE_BYTES;
        let segment = self.segment_with(least as u64)?;
        let room = self.segments[&segment].room() as usize - PAGE_BYTES;
        // A chunk that is larger than a block has one of its own. Chunks that nearly fit are written together: otherwise a
        // block of those that a few large records don't fill would be a good deal smaller than a block.
        let capacity = room.min((block + block / 8).max(chunk.len()));
        *begun = Begun::Chunks(Gathering { segment, capacity, bytes: chunk.len(), chunks: vec![chunk] });
        Ok(())
    }

    /// Makes the table, and begins to write it with its chunks.
    pub(super) fn finish_chunks(
        &mut self,
        lane: Rank,
        Gathering { segment, bytes, chunks, .. }: Gathering,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else { return Ok(()) };
        let table: Vec<ChunkEntry> = chunks.iter().map(ChunkEntry::of).collect();
        let mut header = self.header(lane, segment);
        header.flags = FLAG_CHUNKS.into();
        header.chunks = (table.len() as u32).into();
        header.records = table.iter().map(ChunkEntry::records).sum::<u32>().into();
        (header.first, header.last) = (first.first().0.into(), last.last().0.into());
        header.raw_bytes = table.iter().map(ChunkEntry::record_bytes).sum::<u64>().into();
        header.stored_bytes = ((PAGE_BYTES - HEADER_BYTES + bytes) as u64).into();
        if self.options.checksums {
            header.stored_crc = checksum(table.as_bytes(), chunks.iter().map(ChunkImage::records)).into();
        } else {
            header.flags = (FLAG_CHUNKS | FLAG_UNCHECKED).into();
        }
        header.seal();
        let head = self.backend.head().map_err(StoreError::io("write", "files"));
        let mut head = head.map_err(|error| self.fail(error))?;
        let table = table.as_bytes();
        head.bytes_mut()[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        head.bytes_mut()[HEADER_BYTES..][..table.len()].copy_from_slice(table);
        head.set_len(HEADER_BYTES + table.len());
        let file = self.note_block(&header);
        let name = segment_name(segment);
        let begun = self.backend.write_chunks(file, header.at.get(), head, chunks);
        begun.map_err(StoreError::io("write", &name)).map_err(|error| self.fail(error))?;
        into.push(header.block());
        Ok(())
    }
}

//! Appending chunks in place, without a copy.

use counterfoil_log_core::{ChunkImage, Rank, Ssn};
use zerocopy::IntoBytes;

use super::Store;
use super::append::OpenBlock;
use crate::format::block::{FLAG_CHUNKS, FLAG_UNCHECKED, LOCAL};
use crate::format::chunk_table::{ChunkEntry, checksum};
use crate::format::names::segment_name;
use crate::format::{BLOCK_BYTES_MAX, CHUNKS_MAX, FIRST_BLOCK, HEADER_BYTES};
use crate::{Block, PAGE_BYTES, StoreError};

/// A block of chunks under construction.
///
/// The chunks' bytes have not been read yet.
pub(super) struct ChunkBlock {
    segment: u32,
    /// Limit for the chunks' bytes, and their number.
    capacity: usize,
    bytes: usize,
    chunks: Vec<ChunkImage>,
}

impl Store {
    /// Returns the size limit for in-place chunks from this lane; `None` if none are written in place.
    pub(super) fn chunk_bytes_max(&self, lane: Rank) -> Option<usize> {
        let segment = self.options.segment_bytes - FIRST_BLOCK - PAGE_BYTES as u64;
        (lane != LOCAL && !self.options.compress).then(|| segment.min(BLOCK_BYTES_MAX as u64) as usize)
    }

    pub(super) fn append_chunk(
        &mut self,
        lane: Rank,
        chunk: ChunkImage,
        last: Ssn,
        open: &mut OpenBlock,
        into: &mut Vec<Block>,
    ) -> Result<(), StoreError> {
        if chunk.first() <= last {
            return Err(StoreError::Record { lane, ssn: chunk.first(), what: "SSNs must rise, from 1 on" });
        }
        if let OpenBlock::Chunks(block) = open
            && block.bytes + chunk.len() <= block.capacity
            && block.chunks.len() < CHUNKS_MAX
        {
            block.bytes += chunk.len();
            block.chunks.push(chunk);
            return Ok(());
        }
        self.finish_open_block(lane, open, into)?;
        // The end of a segment is used for a smaller block, at least a quarter, as for records.
        let block = self.options.block_bytes;
        let least = chunk.len().max(block / 4) + PAGE_BYTES;
        let segment = self.segment_with(least as u64)?;
        let room = self.segments[&segment].room() as usize - PAGE_BYTES;
        // A chunk larger than a block gets its own block. A block may be an eighth larger: otherwise blocks of chunks
        // only partly filled by large records would be much smaller than `block_bytes`. No block has more chunk bytes
        // than readers accept; nor does a chunk (`chunk_bytes_max`).
        let capacity = room.min((block + block / 8).min(BLOCK_BYTES_MAX).max(chunk.len()));
        *open = OpenBlock::Chunks(ChunkBlock { segment, capacity, bytes: chunk.len(), chunks: vec![chunk] });
        Ok(())
    }

    /// Creates the table, and starts to write it with its chunks.
    pub(super) fn finish_chunks(
        &mut self,
        lane: Rank,
        ChunkBlock { segment, bytes, chunks, .. }: ChunkBlock,
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
        self.seal_header(&mut header)?;
        let head = self.backend.header_buffer().map_err(StoreError::io("write", "files"));
        let mut head = head.map_err(|error| self.fail(error))?;
        let table = table.as_bytes();
        head.bytes_mut()[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        head.bytes_mut()[HEADER_BYTES..][..table.len()].copy_from_slice(table);
        head.set_len(HEADER_BYTES + table.len());
        let file = self.register_block(&header);
        let name = segment_name(segment);
        let begun = self.backend.write_chunks(file, header.at.get(), head, chunks);
        begun.map_err(StoreError::io("write", &name)).map_err(|error| self.fail(error))?;
        into.push(header.block());
        Ok(())
    }
}

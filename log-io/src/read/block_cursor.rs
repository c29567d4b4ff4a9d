//! Reading a block list in order.

use std::io;

use crate::format::names::segment_name;
use crate::read::read_ahead::{Extent, ReadAhead, ReadAheadOptions};
use crate::{Block, BlockBuffer, StoreError, StoreReader};

/// Minimum bytes for read-ahead: below, setting up a ring or starting threads takes longer than reading.
const AHEAD_BYTES_MIN: u64 = 1 << 20;
/// Largest read for several blocks, in bytes.
///
/// A larger block is read alone, and never copied.
const READ_BYTES: usize = 256 << 10;
/// Bytes in flight over all reads.
///
/// At least two reads are in flight.
const IN_FLIGHT_BYTES: usize = 4 << 20;
/// Reads in flight, at most.
const IN_FLIGHT_MAX: usize = 8;

/// Reads a block list in order; a long list with [read-ahead](ReadAhead).
#[derive(Debug)]
pub struct BlockCursor {
    reader: StoreReader,
    blocks: Vec<Block>,
    next: usize,
    ahead: Option<Ahead>,
}

/// Read-ahead, with the generation of each block's segment when the cursor was created.
#[derive(Debug)]
struct Ahead {
    reads: ReadAhead,
    generations: Vec<u64>,
}

impl BlockCursor {
    /// Creates a cursor over `blocks`.
    pub fn new(reader: StoreReader, blocks: Vec<Block>) -> BlockCursor {
        let bytes: u64 = blocks.iter().map(|block| block.disk_bytes).sum();
        let ahead = if bytes >= AHEAD_BYTES_MIN && blocks.len() > 1 { Ahead::new(&reader, &blocks) } else { None };
        BlockCursor { reader, blocks, next: 0, ahead }
    }

    /// Reads and verifies the next block.
    ///
    /// Returns `false` at the end.
    ///
    /// # Errors
    /// As [`StoreReader::read`]; the next call continues after the block.
    pub fn next(&mut self, into: &mut BlockBuffer) -> Result<bool, StoreError> {
        let Some(block) = self.blocks.get(self.next) else { return Ok(false) };
        let index = self.next;
        self.next += 1;
        if let Some(Ahead { reads, generations }) = &mut self.ahead {
            let mut was_read = false;
            let taken = into.fill(&segment_name(block.segment), generations[index], block, |buffer| {
                let ended = || Err(io::Error::other("there are fewer reads than blocks"));
                let read = reads.next_into(buffer).map_or_else(ended, |(_, read)| read);
                was_read = read.is_ok();
                read
            });
            if was_read {
                return taken.map(|()| true);
            }
        }
        // One of several blocks read together failed: reading each alone shows which, and why.
        self.reader.read(block, into)?;
        Ok(true)
    }
}

impl Ahead {
    /// Starts read-ahead.
    ///
    /// `None` if a block is beyond its segment's end, or there is neither a ring nor a thread: then blocks are read one
    /// by one.
    fn new(reader: &StoreReader, blocks: &[Block]) -> Option<Ahead> {
        let mut extents = Vec::with_capacity(blocks.len());
        let mut generations = Vec::with_capacity(blocks.len());
        for block in blocks {
            let open = reader.segment(block.segment).ok()?;
            // Checked before memory is allocated.
            let end = block.at.checked_add(block.disk_bytes)?;
            if end > open.file.len().ok()? {
                return None;
            }
            extents.push(Extent { file: open.file, at: block.at, len: usize::try_from(block.disk_bytes).ok()? });
            generations.push(open.generation);
        }
        let largest = extents.iter().map(|extent| extent.len).max().unwrap_or(0).max(READ_BYTES);
        let options =
            ReadAheadOptions { in_flight: (IN_FLIGHT_BYTES / largest).clamp(2, IN_FLIGHT_MAX), read_bytes: READ_BYTES };
        let reads = ReadAhead::new(extents, options).ok()?;
        Some(Ahead { reads, generations })
    }
}

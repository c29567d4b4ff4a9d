//! The division of extents into reads.

use std::ops::Range;
use std::sync::Arc;

use super::Extent;
use crate::{Buffer, PAGE_BYTES, ReadAt};

/// Bytes of the buffers that are allocated in advance, at most.
const BUFFERS_BYTES_MAX: usize = 8 << 20;

/// The requested extents, and the reads that cover them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) extents: Vec<Extent>,
    /// Ranges of `extents`, one for each read: adjacent extents of one file. No range is empty.
    pub(super) reads: Vec<Range<usize>>,
}

impl Plan {
    /// Joins adjacent extents as far as they fit into `read_bytes`.
    pub(super) fn new(extents: Vec<Extent>, read_bytes: usize) -> Plan {
        let reads = join_neighbours(&extents, read_bytes);
        Plan { extents, reads }
    }

    /// Returns the file, the offset and the length of a read.
    pub(super) fn read(&self, number: usize) -> Option<(&Arc<dyn ReadAt>, u64, usize)> {
        let extents = self.extents.get(self.reads.get(number)?.clone())?;
        extents.first().map(|front| (&front.file, front.at, span(extents)))
    }

    /// Allocates `count` adjacent buffers for the longest read; or empty ones, if these would exceed 8 MiB and most reads may be
    /// shorter.
    pub(super) fn buffers(&self, count: usize) -> Vec<Buffer> {
        let longest = self.reads.iter().map(|read| span(&self.extents[read.clone()])).max().unwrap_or(0);
        match longest.saturating_mul(count) {
            ..=BUFFERS_BYTES_MAX => Buffer::several(count, longest),
            _ => (0..count).map(|_| Buffer::new(0)).collect(),
        }
    }
}

/// Returns the bytes from the start of the first extent to the end of the last.
fn span(extents: &[Extent]) -> usize {
    let (Some(front), Some(back)) = (extents.first(), extents.last()) else { return 0 };
    (back.at - front.at) as usize + back.len
}

fn join_neighbours(extents: &[Extent], read_bytes: usize) -> Vec<Range<usize>> {
    let mut reads: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (index, extent) in extents.iter().enumerate() {
        let joins = index > 0 && {
            let before = &extents[index - 1];
            Arc::ptr_eq(&before.file, &extent.file)
                && before.at.checked_add(before.len as u64) == Some(extent.at)
                && extent.len <= read_bytes.saturating_sub(bytes)
                && before.len.is_multiple_of(PAGE_BYTES)
        };
        match reads.last_mut() {
            Some(read) if joins => {
                read.end = index + 1;
                bytes += extent.len;
            }
            _ => {
                reads.push(index..index + 1);
                bytes = extent.len;
            }
        }
    }
    reads
}

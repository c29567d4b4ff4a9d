//! Which extents are read together.

use std::ops::Range;
use std::sync::Arc;

use super::Extent;
use crate::{Buffer, PAGE_BYTES, ReadAt};

/// Bytes of the buffers that are allocated before it is known how many of them are needed.
const BUFFERS_BYTES_MAX: usize = 8 << 20;

/// The extents that are asked for, and the reads that get them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) extents: Vec<Extent>,
    /// Extents that are read together: neighbours in one file. None of them is empty.
    pub(super) reads: Vec<Range<usize>>,
}

impl Plan {
    /// Neighbours are read together as far as they fit into `read_bytes`.
    pub(super) fn new(extents: Vec<Extent>, read_bytes: usize) -> Plan {
        let reads = join_neighbours(&extents, read_bytes);
        Plan { extents, reads }
    }

    /// What a read reads: the file, the place and the length.
    pub(super) fn read(&self, number: usize) -> Option<(&Arc<dyn ReadAt>, u64, usize)> {
        let extents = self.extents.get(self.reads.get(number)?.clone())?;
        extents.first().map(|front| (&front.file, front.at, span(extents)))
    }

    /// As many buffers, each for the longest read, side by side; unless that is much for reads of which most may be shorter:
    /// then they are as small as can be.
    pub(super) fn buffers(&self, count: usize) -> Vec<Buffer> {
        let longest = self.reads.iter().map(|read| span(&self.extents[read.clone()])).max().unwrap_or(0);
        match longest.saturating_mul(count) {
            ..=BUFFERS_BYTES_MAX => Buffer::several(count, longest),
            _ => (0..count).map(|_| Buffer::new(0)).collect(),
        }
    }
}

/// Bytes from the first of these neighbours to the end of the last.
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

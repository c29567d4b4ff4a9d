//! Dividing extents into reads.

use std::ops::Range;
use std::sync::Arc;

use super::Extent;
use crate::{Buffer, PAGE_BYTES, ReadAt};

/// Maximum bytes of buffers allocated in advance.
const BUFFERS_BYTES_MAX: usize = 8 << 20;

/// The requested extents, and the reads covering them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) extents: Vec<Extent>,
    /// Ranges in `extents`, one for each read: adjacent extents in one file.
    ///
    /// No range is empty.
    pub(super) reads: Vec<Range<usize>>,
}

impl Plan {
    /// Joins adjacent extents as far as they fit into `read_bytes`.
    pub(super) fn new(extents: Vec<Extent>, read_bytes: usize) -> Plan {
        let reads = join_neighbours(&extents, read_bytes);
        Plan { extents, reads }
    }

    /// Returns the file, offset and length of a read.
    pub(super) fn read(&self, number: usize) -> Option<(&Arc<dyn ReadAt>, u64, usize)> {
        let extents = self.extents.get(self.reads.get(number)?.clone())?;
        extents.first().map(|front| (&front.file, front.at, span(extents)))
    }

    /// Allocates `count` adjacent buffers for the longest read; or empty ones, if these would exceed 8 MiB and most
    /// reads may be shorter.
    pub(super) fn buffers(&self, count: usize) -> Vec<Buffer> {
        let longest = self.reads.iter().map(|read| span(&self.extents[read.clone()])).max().unwrap_or(0);
        match longest.saturating_mul(count) {
            ..=BUFFERS_BYTES_MAX => Buffer::several(count, longest),
            _ => (0..count).map(|_| Buffer::new(0)).collect(),
        }
    }
}

/// Returns the number of bytes from the start of the first extent to the end of the last.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory_file::MemoryFile;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn adjacent_extents_of_a_file_are_read_together_as_far_as_they_fit() {
        let files: [Arc<dyn ReadAt>; 2] = [(); 2].map(|()| Arc::new(MemoryFile(Vec::new())) as Arc<dyn ReadAt>);
        let extent = |file: usize, page: u64, len: u64| Extent {
            file: Arc::clone(&files[file]),
            at: page * PAGE,
            len: len as usize,
        };
        let extents = vec![
            extent(0, 1, PAGE),
            extent(0, 2, 2 * PAGE),
            // More than four pages together.
            extent(0, 4, 2 * PAGE),
            extent(0, 6, 2 * PAGE),
            // A gap, another file, a page before, and a length within a page.
            extent(0, 9, PAGE),
            extent(1, 10, PAGE),
            extent(1, 9, PAGE),
            extent(1, 10, 100),
            extent(1, 11, PAGE),
            // Longer than a read: alone.
            extent(1, 12, 6 * PAGE),
            extent(1, 18, PAGE),
        ];
        let plan = Plan::new(extents, 4 * PAGE_BYTES);
        assert_eq!(plan.reads, [0..2, 2..4, 4..5, 5..6, 6..8, 8..9, 9..10, 10..11]);
        let places: Vec<(u64, usize)> = (0..plan.reads.len())
            .map(|number| plan.read(number).map(|(_, at, len)| (at / PAGE, len)).unwrap())
            .collect();
        let page = PAGE_BYTES;
        let expected = [
            (1, 3 * page),
            (4, 4 * page),
            (9, page),
            (10, page),
            (9, page + 100),
            (11, page),
            (12, 6 * page),
            (18, page),
        ];
        assert_eq!(places, expected);
        assert!(plan.read(8).is_none());
        // Buffers for the longest read, unless they are more than 8 MiB.
        assert_eq!(plan.buffers(3).iter().map(Buffer::capacity).collect::<Vec<_>>(), [6 * page; 3]);
        let most = BUFFERS_BYTES_MAX / (6 * page);
        assert_eq!(plan.buffers(most)[0].capacity(), 6 * page);
        assert_eq!(plan.buffers(most + 1).iter().map(Buffer::capacity).sum::<usize>(), 0);
    }

    #[test]
    fn as_many_extents_are_read_together_as_fit() {
        let file: Arc<dyn ReadAt> = Arc::new(MemoryFile(Vec::new()));
        let extent = |page| Extent { file: Arc::clone(&file), at: page * PAGE, len: PAGE_BYTES };
        let plan = Plan::new((0..7).map(extent).collect(), 4 * PAGE_BYTES);
        assert_eq!(plan.reads, [0..4, 4..7]);
    }
}

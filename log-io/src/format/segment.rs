//! Segments: preallocated files with blocks.
//!
//! ```text
//! header, 4,096 bytes | block | block | ... | zeros
//! ```

use counterfoil_log_core::{Rank, crc32c};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::block::BlockHeader;
use crate::format::names::segment_name;
use crate::format::{FIRST_BLOCK, FORMAT_VERSION, HEADER_BYTES, SESSIONS_MAX};
use crate::{Block, BlockBuffer, FileId, PAGE_BYTES, ReadAt, StoreError};

const MAGIC: u64 = u64::from_le_bytes(*b"CFsegmnt");
/// Bytes read at a time in search of blocks.
const WINDOW_BYTES: usize = 256 << 10;

/// The header of a segment, followed by zeros up to the first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SegmentHeader {
    pub(crate) magic: U64,
    pub(crate) version: U32,
    pub(crate) segment: U32,
    pub(crate) store: U64,
    pub(crate) session: U64,
    pub(crate) generation: U64,
    pub(crate) bytes: U64,
    pub(crate) rank: U32,
    pub(crate) ranks: U32,
    pub(crate) zero: U32,
    pub(crate) header_crc: U32,
}

pub(crate) const SEGMENT_HEADER_BYTES: usize = size_of::<SegmentHeader>();
const _: () = assert!(SEGMENT_HEADER_BYTES == 64);

impl SegmentHeader {
    pub(crate) fn new(
        segment: u32,
        store: u64,
        session: u64,
        generation: u64,
        bytes: u64,
        of: (Rank, u32),
    ) -> SegmentHeader {
        let mut header = SegmentHeader {
            magic: MAGIC.into(),
            version: FORMAT_VERSION.into(),
            segment: segment.into(),
            store: store.into(),
            session: session.into(),
            generation: generation.into(),
            bytes: bytes.into(),
            rank: of.0.0.into(),
            ranks: of.1.into(),
            zero: U32::ZERO,
            header_crc: U32::ZERO,
        };
        header.header_crc = header.checksum().into();
        header
    }

    fn checksum(&self) -> u32 {
        crc32c(&self.as_bytes()[..SEGMENT_HEADER_BYTES - 4])
    }

    /// Reads and verifies the header of the segment with this number.
    ///
    /// A file ending within the header is damaged.
    pub(crate) fn read(file: &dyn ReadAt, segment: u32) -> Result<SegmentHeader, StoreError> {
        let name = segment_name(segment);
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        file.read_at(0, &mut bytes).map_err(StoreError::read(&name, 0))?;
        let header = SegmentHeader::read_from_bytes(&bytes).map_err(|_| StoreError::damaged(&name, 0, "too short"))?;
        if header.magic.get() != MAGIC || header.header_crc.get() != header.checksum() {
            return Err(StoreError::damaged(&name, 0, "the segment's header is wrong"));
        }
        if header.version.get() != FORMAT_VERSION {
            return Err(StoreError::Version { file: name, found: header.version.get() });
        }
        if header.session.get() > SESSIONS_MAX {
            return Err(StoreError::damaged(&name, 24, "the segment's header is wrong"));
        }
        if header.segment.get() != segment {
            return Err(StoreError::damaged(&name, 12, "the segment was written under another number"));
        }
        Ok(header)
    }
}

/// A segment in an open store.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) generation: u64,
    pub(crate) session: u64,
    /// File length in bytes.
    pub(crate) bytes: u64,
    /// Offset of the next block.
    pub(crate) end: u64,
    /// Its known blocks, by offset.
    pub(crate) blocks: Vec<Stored>,
    /// The open file, while the segment is written.
    pub(crate) file: Option<FileId>,
    /// The file was written since the last sync.
    pub(crate) is_dirty: bool,
    /// Number of blocks written.
    pub(crate) written: u32,
    /// Bytes in live blocks: referenced by the live index or a checkpoint.
    pub(crate) live_bytes: u64,
    /// Bytes in punched blocks.
    pub(crate) punched_bytes: u64,
}

/// A block and the references to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The live index refers to it.
    pub(crate) is_live: bool,
    /// Number of kept checkpoints referring to it.
    pub(crate) checkpoints: u16,
    pub(crate) is_punched: bool,
}

impl Stored {
    pub(crate) fn new(block: &Block) -> Stored {
        Stored { at: block.at, bytes: block.disk_bytes, is_live: false, checkpoints: 0, is_punched: false }
    }

    pub(crate) fn is_dead(&self) -> bool {
        !self.is_live && self.checkpoints == 0
    }
}

impl Segment {
    pub(crate) fn new(generation: u64, session: u64, bytes: u64, end: u64) -> Segment {
        Segment {
            generation,
            session,
            bytes,
            end,
            blocks: Vec::new(),
            file: None,
            is_dirty: false,
            written: 0,
            live_bytes: 0,
            punched_bytes: 0,
        }
    }

    pub(crate) fn room(&self) -> u64 {
        self.bytes - self.end
    }

    /// Adds a block found or written, without references, unless it is known.
    pub(crate) fn add(&mut self, block: &Block) {
        if let Err(index) = self.blocks.binary_search_by_key(&block.at, |stored| stored.at) {
            self.blocks.insert(index, Stored::new(block));
        }
        self.end = self.end.max(block.at + block.disk_bytes);
    }

    /// Adds each gap between the known blocks as a dead block.
    pub(crate) fn add_gaps(&mut self) {
        let mut at = FIRST_BLOCK;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for &stored in &self.blocks {
            if stored.at > at {
                blocks.push(Stored { at, bytes: stored.at - at, is_live: false, checkpoints: 0, is_punched: false });
            }
            at = stored.at + stored.bytes;
            blocks.push(stored);
        }
        self.blocks = blocks;
    }

    /// Changes the references to the block at `at`.
    ///
    /// Returns `false` if there is none.
    pub(crate) fn change(&mut self, at: u64, change: impl FnOnce(&mut Stored)) -> bool {
        let Ok(index) = self.blocks.binary_search_by_key(&at, |stored| stored.at) else { return false };
        let stored = &mut self.blocks[index];
        let was_dead = stored.is_dead();
        change(stored);
        match (was_dead, stored.is_dead()) {
            (true, false) => self.live_bytes += stored.bytes,
            (false, true) => self.live_bytes -= stored.bytes,
            _ => {}
        }
        true
    }

    /// Returns `true` if the block at `at` is live.
    pub(crate) fn has(&self, at: u64) -> bool {
        let index = self.blocks.binary_search_by_key(&at, |stored| stored.at);
        index.is_ok_and(|index| !self.blocks[index].is_dead())
    }
}

/// A block or other bytes at a page in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A block with a valid header.
    Block(BlockHeader),
    /// Neither zeros nor a valid header.
    Unknown { at: u64, what: &'static str },
}

/// A search for blocks, from an offset in a segment to its end.
///
/// Skips zeros, which were never written or were punched, and the bytes inside a block.
pub(crate) struct SegmentWalk<'a> {
    file: &'a dyn ReadAt,
    name: String,
    header: SegmentHeader,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> SegmentWalk<'a> {
    pub(crate) fn new(file: &'a dyn ReadAt, header: SegmentHeader, from: u64) -> Result<SegmentWalk<'a>, StoreError> {
        let name = segment_name(header.segment.get());
        let end = file.len().map_err(StoreError::io("read the length of", &name))?;
        Ok(SegmentWalk { file, name, header, at: from.max(FIRST_BLOCK), end, window: Vec::new(), window_at: 0 })
    }

    /// Limits the search to `[from, to)`.
    pub(crate) fn limit_to(&mut self, from: u64, to: u64) {
        self.at = from.max(FIRST_BLOCK);
        self.end = self.end.min(to);
    }

    /// Returns the next nonzero page.
    ///
    /// The search continues after a block, or with the next page after other bytes.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, StoreError> {
        while self.at < self.end {
            let at = self.at;
            let (generation, segment) = (self.header.generation.get(), self.header.segment.get());
            let room = self.end - at;
            let page = self.page()?;
            if page.iter().all(|&byte| byte == 0) {
                self.at += PAGE_BYTES as u64;
                continue;
            }
            return Ok(Some(match BlockHeader::parse(page, generation, segment, at, room) {
                Ok(header) => {
                    self.at += header.disk_bytes();
                    Found::Block(header)
                }
                Err(what) => {
                    self.at += PAGE_BYTES as u64;
                    Found::Unknown { at, what }
                }
            }));
        }
        Ok(None)
    }

    /// Returns the page at the current offset, or the part present in the file.
    fn page(&mut self) -> Result<&[u8], StoreError> {
        let len = (self.end - self.at).min(PAGE_BYTES as u64);
        let inside = self.at >= self.window_at && self.at + len <= self.window_at + self.window.len() as u64;
        if !inside {
            let window = (self.end - self.at).min(WINDOW_BYTES as u64) as usize;
            self.window.resize(window, 0);
            self.window_at = self.at;
            self.file.read_at(self.at, &mut self.window).map_err(StoreError::read(&self.name, self.at))?;
        }
        let start = (self.at - self.window_at) as usize;
        Ok(&self.window[start..start + len as usize])
    }

    /// Reads and verifies a found block.
    pub(crate) fn read(&self, header: &BlockHeader, into: &mut BlockBuffer) -> Result<(), StoreError> {
        let place = (self.header.segment.get(), header.at.get(), header.disk_bytes());
        into.read(self.file, &self.name, self.header.generation.get(), place)
    }
}

const _: () = assert!(HEADER_BYTES < PAGE_BYTES && SEGMENT_HEADER_BYTES < PAGE_BYTES);

#[cfg(test)]
mod tests {
    use counterfoil_log_core::Ssn;

    use super::*;
    use crate::backend::memory_file::MemoryFile;

    const PAGE: u64 = PAGE_BYTES as u64;

    fn header() -> SegmentHeader {
        SegmentHeader::new(5, 11, 3, 13, 16 * PAGE, (Rank(1), 3))
    }

    /// Returns a file with this header, checksummed, and `pages` zero pages.
    fn file(mut header: SegmentHeader, pages: usize) -> MemoryFile {
        header.header_crc = header.checksum().into();
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize((1 + pages) * PAGE_BYTES, 0);
        MemoryFile(bytes)
    }

    fn block_header(at: u64, stored: u64) -> BlockHeader {
        let mut header = BlockHeader::new(13, 5, Rank(2), at);
        (header.records, header.first, header.last) = (1.into(), 7.into(), 7.into());
        (header.raw_bytes, header.stored_bytes) = (stored.into(), stored.into());
        header.seal();
        header
    }

    #[test]
    fn a_header_is_read_as_it_was_made_and_refused_with_any_other_number() {
        assert_eq!(SegmentHeader::read(&file(header(), 1), 5).expect("a header"), header());
        let refused = |change: fn(&mut SegmentHeader)| {
            let mut changed = header();
            change(&mut changed);
            match SegmentHeader::read(&file(changed, 1), 5) {
                Err(StoreError::Damaged { file, offset, what }) => {
                    assert_eq!(file, "segment-00000005");
                    (offset, what)
                }
                other => panic!("{other:?}"),
            }
        };
        let wrong = "the segment's header is wrong";
        assert_eq!(refused(|header| header.magic = 1.into()), (0, wrong));
        assert_eq!(refused(|header| header.session = (SESSIONS_MAX + 1).into()), (24, wrong));
        assert_eq!(refused(|header| header.segment = 6.into()), (12, "the segment was written under another number"));
        let most = SegmentHeader { session: SESSIONS_MAX.into(), ..header() };
        assert!(SegmentHeader::read(&file(most, 1), 5).is_ok());
        let newer = SegmentHeader { version: 2.into(), ..header() };
        assert!(matches!(SegmentHeader::read(&file(newer, 1), 5), Err(StoreError::Version { found: 2, .. })));
        for at in 0..SEGMENT_HEADER_BYTES {
            let mut file = file(header(), 1);
            file.0[at] ^= 1;
            let read = SegmentHeader::read(&file, 5);
            assert!(matches!(read, Err(StoreError::Damaged { offset: 0, what, .. }) if what == wrong), "byte {at}");
        }
        let short = MemoryFile(file(header(), 0).0[..SEGMENT_HEADER_BYTES - 1].to_vec());
        assert!(matches!(SegmentHeader::read(&short, 5), Err(StoreError::Damaged { .. })));
    }

    fn block(at: u64, disk_bytes: u64) -> Block {
        let (first, last) = (Ssn(1), Ssn(1));
        Block { lane: Rank(2), first, last, records: 1, segment: 5, at, disk_bytes, raw_bytes: 24 }
    }

    #[test]
    fn a_segment_counts_the_bytes_of_the_blocks_to_which_something_refers() {
        let mut segment = Segment::new(13, 3, 16 * PAGE, FIRST_BLOCK);
        for (at, pages) in [(6, 1), (2, 2), (2, 2), (8, 1), (9, 3)] {
            segment.add(&block(at * PAGE, pages * PAGE));
        }
        let places =
            |segment: &Segment| segment.blocks.iter().map(|of| (of.at / PAGE, of.bytes / PAGE)).collect::<Vec<_>>();
        assert_eq!(
            (places(&segment), segment.end, segment.room()),
            (vec![(2, 2), (6, 1), (8, 1), (9, 3)], 12 * PAGE, 4 * PAGE)
        );
        let live = |segment: &mut Segment, page: u64, is_live| segment.change(page * PAGE, |of| of.is_live = is_live);
        assert!(!live(&mut segment, 3, true) && !segment.has(2 * PAGE) && segment.live_bytes == 0);
        assert!(live(&mut segment, 2, true) && live(&mut segment, 2, true) && live(&mut segment, 9, true));
        assert_eq!((segment.live_bytes, segment.has(2 * PAGE), segment.has(6 * PAGE)), (5 * PAGE, true, false));
        // Two references: the index, and a checkpoint.
        segment.change(9 * PAGE, |of| of.checkpoints += 1);
        live(&mut segment, 9, false);
        assert_eq!((segment.live_bytes, segment.has(9 * PAGE)), (5 * PAGE, true));
        segment.change(9 * PAGE, |of| of.checkpoints -= 1);
        assert_eq!((segment.live_bytes, segment.has(9 * PAGE)), (2 * PAGE, false));
        segment.add_gaps();
        assert_eq!(places(&segment), [(1, 1), (2, 2), (4, 2), (6, 1), (7, 1), (8, 1), (9, 3)]);
        assert!(segment.blocks.iter().all(|of| of.is_dead() == (of.at != 2 * PAGE) && !of.is_punched));
        assert_eq!(segment.end, 12 * PAGE);
    }

    /// Walks over a file.
    ///
    /// Returns the page of each finding, and its pages for a block.
    fn walked(file: &MemoryFile, from: u64, limit: Option<(u64, u64)>) -> Vec<(u64, Option<u64>)> {
        let mut walk = SegmentWalk::new(file, header(), from).expect("a length");
        limit.into_iter().for_each(|(from, to)| walk.limit_to(from, to));
        let mut found = Vec::new();
        while let Some(next) = walk.next().expect("bytes") {
            found.push(match next {
                Found::Block(block) => (block.at.get() / PAGE, Some(block.disk_bytes() / PAGE)),
                Found::Unknown { at, .. } => (at / PAGE, None),
            });
        }
        found
    }

    #[test]
    fn a_walk_finds_blocks_and_other_bytes_and_skips_zeros() {
        // More pages than the walk's window.
        let mut file = file(header(), 200);
        let mut put = |page: usize, bytes: &[u8]| file.0[page * PAGE_BYTES..][..bytes.len()].copy_from_slice(bytes);
        for (page, stored) in [(3, 100), (4, 2 * PAGE), (63, 3 * PAGE), (130, 80 * PAGE)] {
            put(page, block_header(page as u64 * PAGE, stored).as_bytes());
        }
        // Bytes inside a block aren't looked at; a header from another place isn't a block.
        put(5, &[1]);
        put(20, &[0, 0, 7]);
        put(21, block_header(3 * PAGE, 100).as_bytes());
        put(129, &[9; PAGE_BYTES]);
        let all = [(3, Some(1)), (4, Some(3)), (20, None), (21, None), (63, Some(4)), (129, None)];
        // The last block is longer than the file.
        assert_eq!(walked(&file, 0, None), [&all[..], &[(130, None)]].concat());
        file.0.resize(file.0.len() + 11 * PAGE_BYTES, 0);
        let last = (130, Some(81));
        assert_eq!(walked(&file, 0, None), [&all[..], &[last]].concat());
        assert_eq!(walked(&file, 4 * PAGE, None), [&all[1..], &[last]].concat());
        assert_eq!(walked(&file, 7 * PAGE, Some((20 * PAGE, 64 * PAGE))), [(20, None), (21, None), (63, None)]);
        assert_eq!(walked(&file, 0, Some((0, 5 * PAGE))), [(3, Some(1)), (4, None)]);
        // The file ends within a page.
        let end = file.0.len();
        file.0[end - PAGE_BYTES - 100] = 1;
        file.0.truncate(end - PAGE_BYTES + 100);
        assert_eq!(walked(&file, 131 * PAGE, Some((209 * PAGE, u64::MAX))), [(210, None)]);
        file.0.push(5);
        assert_eq!(walked(&file, 0, Some((211 * PAGE, u64::MAX))), [(211, None)]);
    }
}

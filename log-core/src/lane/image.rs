//! Chunks as they lie in memory: what can be written from there, without a copy, and read back.

use crate::chunk::{
    BlockRef, CHUNK_HEADER, ChunkHeader, LAST_AT, NEXT_AT, OPEN, PAD_BYTES_AT, RECORD_BYTES_AT, sealed_last,
};
use crate::geometry::BLOCK_BYTES_MIN;
use crate::lane::cursor::{Cursor, Record};
use crate::lane::pin::Pin;
use crate::nouns::Ssn;
use crate::pool::Pool;
use crate::record::{RECORD_ALIGN, RECORD_HEADER, Word, footprint};
use crate::sync::{Arc, Ordering};

/// A sealed chunk of a lane: whole pages of the pool's memory, which isn't reused while there is an image of it.
///
/// In front of its records is a header of which words may change at any time, and behind them is what an earlier use of the
/// memory left. Only the [records](Self::records) stay as they are.
#[derive(Debug)]
pub struct ChunkImage {
    pool: Arc<Pool>,
    /// Held to be given up.
    _pin: Arc<Pin>,
    at: usize,
    bytes: usize,
    record_bytes: usize,
    first: Ssn,
    last: Ssn,
}

impl ChunkImage {
    /// Offset of the first record in an image, in bytes.
    pub const RECORDS_AT: usize = CHUNK_HEADER;

    /// The first record that was asked for. Those before it in the chunk weren't.
    pub fn first(&self) -> Ssn {
        self.first
    }

    /// The last record that was asked for. From the first to this one none is missing.
    pub fn last(&self) -> Ssn {
        self.last
    }

    /// Bytes of the image, whole pages of 4,096: those that the header and the records take.
    #[expect(clippy::len_without_is_empty, reason = "an image is never empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The chunk's records and pads, to be read with [`record_in_image`]: also those that weren't asked for.
    pub fn records(&self) -> &[u8] {
        // SAFETY: `read_chunk` saw that the chunk was sealed and that so many bytes from its header on lie inside it. In a
        // sealed chunk records and pads are not written before it is reused or opened again (`LaneWriter::truncate`), which
        // both wait until nobody has a pin at or below its first SSN; the image has one.
        unsafe { self.pool.arena.bytes(self.at + CHUNK_HEADER, self.record_bytes) }
    }

    /// Where the image begins: [`len`](Self::len) bytes from here on may be read, by the kernel too, as long as the image is
    /// there. The first [`RECORDS_AT`](Self::RECORDS_AT) of them may be written meanwhile.
    pub fn address(&self) -> *const u8 {
        self.pool.arena.address(self.at)
    }

    /// Copies what is at `offset`, a multiple of eight, of the image.
    ///
    /// # Panics
    /// Where that goes beyond its end.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.is_multiple_of(8) && offset + into.len() <= self.bytes, "an image's own bytes");
        let header = CHUNK_HEADER.saturating_sub(offset).min(into.len());
        let (words, rest) = into.split_at_mut(header);
        for (word, at) in words.chunks_mut(8).zip((self.at + offset..).step_by(8)) {
            let value = self.pool.arena.word(at).load(Ordering::Relaxed).to_le_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
        // SAFETY: behind the header of a sealed chunk, inside of its block: not written, as for `records`.
        rest.copy_from_slice(unsafe { self.pool.arena.bytes(self.at + offset + header, rest.len()) });
    }
}

impl Cursor {
    /// The chunk that begins at the cursor, as it lies in memory, up to `upto`; its records are passed. `None`, and nothing
    /// is passed, where the cursor isn't at the beginning of a chunk, where the chunk is still written, may have gaps
    /// between its SSNs or would take more than `bytes_max` bytes (at most 16 MiB), and where it isn't worth it: where the
    /// records that are asked for take less than half of the image and a page for what has to be said about it, a record
    /// being counted with the mean length in the chunk.
    ///
    /// The image keeps the memory of this chunk and of all that come after it from being reused, as a cursor at its place does:
    /// this one, which counts as open until the last of its images is dropped.
    pub fn read_chunk(&mut self, upto: Ssn, bytes_max: usize) -> Option<ChunkImage> {
        // What is on disk is little-endian.
        if cfg!(target_endian = "big") || self.block.is_none() || !self.goes_to_beginning() {
            return None;
        }
        let (at, arena) = (self.block.at(), &self.pool.arena);
        // Acquire: a sealed chunk has its link and its lengths.
        let sealed = arena.word(at + LAST_AT).load(Ordering::Acquire);
        let header = ChunkHeader::read(arena, self.block).filter(|header| sealed != OPEN && !header.sparse)?;
        let length = |of| usize::try_from(arena.word(at + of).load(Ordering::Relaxed)).ok();
        let (record_bytes, pad_bytes) = (length(RECORD_BYTES_AT)?, length(PAD_BYTES_AT)?);
        let (first, last) = (self.position.max(header.first), sealed_last(sealed).min(upto));
        // Neither is wrong in a chunk of this process, or of one whose file was taken over.
        let room = self.pool.block_bytes(self.block) - CHUNK_HEADER - RECORD_ALIGN;
        if first > last || record_bytes > room || pad_bytes >= record_bytes {
            return None;
        }
        let bytes = (CHUNK_HEADER + record_bytes).next_multiple_of(BLOCK_BYTES_MIN);
        let mean = (record_bytes - pad_bytes) as u64 / (sealed_last(sealed).0 - header.first.0 + 1);
        let asked_for = mean * (last.0 - first.0 + 1);
        if bytes > bytes_max || 2 * asked_for < (bytes + BLOCK_BYTES_MIN) as u64 {
            return None;
        }
        let image =
            ChunkImage { pool: self.pool.clone(), _pin: self.pin.clone(), at, bytes, record_bytes, first, last };
        debug_assert!(image.is_whole(header.first, sealed_last(sealed)), "a sealed chunk isn't what its header says");
        (self.position, self.found) = (last.next(), 0);
        if last == sealed_last(sealed) {
            self.at = at + CHUNK_HEADER + record_bytes;
        }
        Some(image)
    }

    /// Whether the cursor is at the beginning of a chunk. At the end of one it goes on to the next.
    fn goes_to_beginning(&mut self) -> bool {
        while self.at != self.block.at() + CHUNK_HEADER {
            // Acquire: pairs with the release of the end word, which shows the link.
            match Word::parse(self.arena().word(self.at).load(Ordering::Acquire)) {
                Word::Pad { body } => self.at += footprint(body),
                Word::End => {
                    let next = BlockRef(self.arena().word(self.block.at() + NEXT_AT).load(Ordering::Acquire));
                    self.enter(next);
                    self.pin();
                }
                _ => return false,
            }
        }
        true
    }
}

impl ChunkImage {
    /// Whether its records are those from `first` to `last`.
    fn is_whole(&self, first: Ssn, last: Ssn) -> bool {
        let (mut at, mut next) = (0, first);
        while at < self.record_bytes {
            let Some((record, behind)) = record_in_image(self.records(), at) else { return false };
            if let Some(record) = record {
                if record.ssn() != next {
                    return false;
                }
                next = next.next();
            }
            at = behind;
        }
        at == self.record_bytes && next == last.next()
    }
}

/// What begins at `at` of the records of an image that was read back: a record, or `None` for what is to be passed, and where
/// the next one begins. `None` where neither is there as a whole; nothing else is trusted than that the bytes are there.
#[inline]
pub fn record_in_image(records: &[u8], at: usize) -> Option<(Option<Record<'_>>, usize)> {
    let (header, rest) = records.get(at..)?.split_first_chunk::<RECORD_HEADER>()?;
    let word = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| header[from + i]));
    let (record, body) = match Word::parse(word(0)) {
        Word::Record { body, prefix } => (Some(Record::new(Ssn(word(8)), rest.get(..body)?, prefix)?), body),
        Word::Pad { body } => (None, body),
        Word::Empty | Word::End | Word::Damaged => return None,
    };
    let behind = at + footprint(body);
    (behind <= records.len()).then_some((record, behind))
}

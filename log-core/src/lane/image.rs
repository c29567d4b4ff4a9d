//! Images of sealed chunks: a chunk's own memory, written to disk without a copy and read back.

use crate::chunk::{CHUNK_HEADER, ChunkHeader, LAST_AT, OPEN, PAD_BYTES_AT, RECORD_BYTES_AT, sealed_last};
use crate::lane::cursor::{Cursor, Record};
use crate::lane::pin::Pin;
use crate::nouns::Ssn;
use crate::options::BLOCK_BYTES_MIN;
use crate::pool::Pool;
#[cfg(all(counterfoil_loom, not(counterfoil_shuttle)))]
use crate::record::SSN_AT;
use crate::record::{RECORD_ALIGN, RECORD_HEADER, Word, footprint};
use crate::sync::{Arc, Ordering};

/// A sealed chunk in place: whole pages of pool memory, not reused while there is an image.
///
/// Header words before its records may change at any time. The records, the end word after them, and the bytes left
/// over from an earlier use up to the end of the last page don't change.
#[derive(Debug)]
pub struct ChunkImage {
    pool: Arc<Pool>,
    /// Held only to be dropped with the image.
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

    /// Returns the first requested SSN.
    ///
    /// The chunk may have records before it.
    pub fn first(&self) -> Ssn {
        self.first
    }

    /// Returns the last requested SSN.
    ///
    /// No SSN is missing from the first to this one.
    pub fn last(&self) -> Ssn {
        self.last
    }

    /// Returns the image's length in bytes: whole pages (4,096 bytes) of header and records.
    #[expect(clippy::len_without_is_empty, reason = "an image is never empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }
}

#[cfg(not(counterfoil_loom))]
impl ChunkImage {
    /// Returns the bytes of all the chunk's records and pads, to be parsed with [`record_in_image`].
    pub fn records(&self) -> &[u8] {
        // SAFETY: `read_chunk` saw the chunk sealed, with so many bytes from its header on inside it. Nothing after a
        // sealed chunk's header, the end word included, is written before the chunk is reused or opened again
        // (`LaneWriter::truncate`); both wait until no pin is at or below its first SSN, and the image holds one.
        unsafe { self.pool.arena.bytes(self.at + CHUNK_HEADER, self.record_bytes) }
    }

    /// Returns the address of the image.
    ///
    /// [`len`](Self::len) bytes from there may be read, by the kernel too, while the image exists. The writer may write
    /// the first [`RECORDS_AT`](Self::RECORDS_AT) of them meanwhile.
    pub fn address(&self) -> *const u8 {
        self.pool.arena.address(self.at)
    }

    /// Copies the image's bytes from `offset` on, a multiple of eight.
    ///
    /// # Panics
    /// If `into` is longer than the rest of the image.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.is_multiple_of(8) && offset + into.len() <= self.bytes, "the range lies inside the image");
        let header = CHUNK_HEADER.saturating_sub(offset).min(into.len());
        let (words, rest) = into.split_at_mut(header);
        for (word, at) in words.chunks_mut(8).zip((self.at + offset..).step_by(8)) {
            let value = self.pool.arena.word(at).load(Ordering::Relaxed).to_le_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
        // SAFETY: after a sealed chunk's header, inside its block: not written, as for `records`.
        rest.copy_from_slice(unsafe { self.pool.arena.bytes(self.at + offset + header, rest.len()) });
    }

    /// Returns `true` if its records are exactly `first` to `last`.
    fn is_whole(&self, first: Ssn, last: Ssn) -> bool {
        let (mut at, mut next) = (0, first);
        while at < self.record_bytes {
            let Some((record, after)) = record_in_image(self.records(), at) else { return false };
            if let Some(record) = record {
                if record.ssn() != next {
                    return false;
                }
                next = next.next();
            }
            at = after;
        }
        at == self.record_bytes && next == last.next()
    }
}

#[cfg(all(counterfoil_loom, not(counterfoil_shuttle)))]
impl ChunkImage {
    /// Reads every byte of the image like `copy_to`; returns each record's SSN and body.
    pub(crate) fn read(&self) -> Vec<(Ssn, Vec<u64>)> {
        let arena = &self.pool.arena;
        for at in (self.at..self.at + CHUNK_HEADER).step_by(8) {
            arena.word(at).load(Ordering::Relaxed);
        }
        let words = arena.read_unsync(self.at + CHUNK_HEADER, self.bytes - CHUNK_HEADER);
        let (mut records, mut at) = (Vec::new(), 0);
        while at < self.record_bytes {
            let body = match Word::parse(words[at / 8].0) {
                Word::Record { body, .. } => {
                    let pairs = &words[(at + RECORD_HEADER) / 8..][..body.div_ceil(8)];
                    records.push((Ssn(words[(at + SSN_AT) / 8].0), pairs.iter().map(|pair| pair.1).collect()));
                    body
                }
                Word::Pad { body } => body,
                other => panic!("{other:?} at {at} of an image's records"),
            };
            at += footprint(body);
        }
        assert_eq!((at, Word::parse(words[at / 8].0)), (self.record_bytes, Word::End));
        records
    }
}

#[cfg(all(counterfoil_loom, not(counterfoil_shuttle)))]
impl Cursor {
    /// Returns `true` if the cursor is at the beginning of a chunk and sees it sealed.
    ///
    /// The load orders nothing.
    pub(crate) fn sees_sealed_chunk(&self) -> bool {
        let is_at_start = !self.block.is_none() && self.at == self.block.at() + CHUNK_HEADER;
        is_at_start && self.pool.arena.word(self.block.at() + LAST_AT).load(Ordering::Relaxed) != OPEN
    }
}

impl Cursor {
    /// Returns an image of the chunk beginning at the cursor, for its records up to `upto`, and passes them.
    ///
    /// Returns `None`, and passes nothing, if the cursor is not at the beginning of a chunk; if the chunk is not
    /// sealed, may have gaps between its SSNs, or takes more than `bytes_max` bytes (at most 16 MiB); and if the
    /// requested records take less than half of the image plus a page for its description, each counted with the
    /// chunk's mean record length.
    ///
    /// The image pins this chunk and all later ones, also evicted ones, and keeps this cursor's slot among the lane's
    /// `cursors_max` until it is dropped.
    pub fn read_chunk(&mut self, upto: Ssn, bytes_max: usize) -> Option<ChunkImage> {
        // Records on disk are little-endian.
        if cfg!(target_endian = "big") || self.block.is_none() || !self.move_to_chunk_start() {
            return None;
        }
        let (at, arena) = (self.block.at(), &self.pool.arena);
        // Acquire: a sealed chunk has its link, its end word and its lengths.
        let sealed = arena.word(at + LAST_AT).load(Ordering::Acquire);
        let header = ChunkHeader::read(arena, self.block).filter(|header| sealed != OPEN && !header.sparse)?;
        let length = |of| usize::try_from(arena.word(at + of).load(Ordering::Relaxed)).ok();
        let (record_bytes, pad_bytes) = (length(RECORD_BYTES_AT)?, length(PAD_BYTES_AT)?);
        let (first, last) = (self.position.max(header.first), sealed_last(sealed).min(upto));
        // The lengths are correct in this process's chunks, and in those of a file taken over: checked all the same.
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
        // The pin stays here while the cursor goes on: it keeps the chunks the cursor comes to, even if evicted.
        if let Some(pin) = Arc::get_mut(&mut self.pin) {
            pin.keep_evicted(header.first.0);
        }
        let image =
            ChunkImage { pool: self.pool.clone(), _pin: self.pin.clone(), at, bytes, record_bytes, first, last };
        #[cfg(not(counterfoil_loom))]
        debug_assert!(
            image.is_whole(header.first, sealed_last(sealed)),
            "a sealed chunk's records differ from its header"
        );
        (self.position, self.found) = (last.next(), 0);
        if last == sealed_last(sealed) {
            self.at = at + CHUNK_HEADER + record_bytes;
        }
        Some(image)
    }

    /// Moves from a chunk's end to the beginning of the next; returns `true` if the cursor is at the beginning of one.
    fn move_to_chunk_start(&mut self) -> bool {
        while self.at != self.block.at() + CHUNK_HEADER {
            // Acquire: pairs with the end word's release, and shows the link.
            match Word::parse(self.arena().word(self.at).load(Ordering::Acquire)) {
                Word::Pad { body } => self.at += footprint(body),
                Word::End if self.go_on() => {}
                _ => return false,
            }
        }
        true
    }
}

/// Parses the record at `at` in an image's records: returns it, or `None` in its place for a pad, and the next one's
/// offset.
///
/// Returns `None` if neither lies there as a whole. The bytes may come from a disk: nothing in them is trusted.
#[inline]
pub fn record_in_image(records: &[u8], at: usize) -> Option<(Option<Record<'_>>, usize)> {
    let (header, rest) = records.get(at..)?.split_first_chunk::<RECORD_HEADER>()?;
    let word = |from: usize| u64::from_le_bytes(std::array::from_fn(|i| header[from + i]));
    let (record, body) = match Word::parse(word(0)) {
        Word::Record { body, prefix } => (Some(Record::new(Ssn(word(8)), rest.get(..body)?, prefix)?), body),
        Word::Pad { body } => (None, body),
        Word::Empty | Word::End | Word::Damaged => return None,
    };
    let after = at + footprint(body);
    (after <= records.len()).then_some((record, after))
}

#[cfg(not(counterfoil_loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::LaneWriter;
    use crate::nouns::Rank;
    use crate::options::PoolOptions;
    use crate::pool::Pool;

    /// A chunk taken over from a damaged file may have impossible lengths.
    #[test]
    fn a_chunk_with_impossible_lengths_has_no_image() {
        const BYTES: usize = 16 << 10;
        let options = PoolOptions { memory_bytes_max: 64 << 10, chunk_bytes: BYTES, prefault_bytes: 0, cursors_max: 1 };
        let mut lane = LaneWriter::new(Pool::volatile(options).unwrap(), Rank(1));
        for _ in 0..2 {
            lane.claim(0, 10_000).unwrap().commit();
        }
        let mut cursor = lane.reader().open(Ssn(1)).unwrap();
        assert!(cursor.peek().is_some());
        let (pool, at) = (cursor.pool.clone(), cursor.block.at());
        let room = BYTES - CHUNK_HEADER - RECORD_ALIGN;
        let record_bytes = pool.arena.word(at + RECORD_BYTES_AT).load(Ordering::Relaxed);
        for (of, value) in [
            (RECORD_BYTES_AT, room as u64 + 1),
            (RECORD_BYTES_AT, u64::MAX),
            (PAD_BYTES_AT, record_bytes),
            (PAD_BYTES_AT, record_bytes + 1),
        ] {
            let word = pool.arena.word(at + of);
            let before = word.swap(value, Ordering::Relaxed);
            assert!(cursor.read_chunk(Ssn::MAX, 1 << 20).is_none(), "{value} at {of}");
            word.store(before, Ordering::Relaxed);
        }
        assert!(cursor.read_chunk(Ssn(1), (12 << 10) - 1).is_none(), "the image takes more");
    }
}

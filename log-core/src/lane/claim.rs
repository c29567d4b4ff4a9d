//! A reserved record.

use crate::arena::ArenaPtr;
use crate::lane::writer::LaneWriter;
use crate::nouns::Ssn;
#[cfg(not(counterfoil_loom))]
use crate::prefetch::prefetch;
#[cfg(not(counterfoil_loom))]
use crate::record::RECORD_ALIGN;
use crate::record::{RECORD_HEADER, SSN_AT, footprint, pad_word, record_word};
use crate::sync::Ordering;

/// Most bytes prefetched by [`Claim::commit_and_prefetch`]: for longer records, processors do so by themselves.
#[cfg(not(counterfoil_loom))]
const PREFETCH_BYTES_MAX: usize = 4096;

/// A reserved, uncommitted record.
///
/// Its bytes are left over from an earlier use of the chunk: write all of them. [`commit`](Claim::commit) publishes the
/// record. Dropping the claim publishes a pad in its place, so that an abandoned claim (an error, a panic) never stops
/// a reader. A leaked claim leaves no trace.
#[derive(Debug)]
#[must_use = "a claim that is dropped leaves a pad and sends nothing"]
pub struct Claim<'a> {
    lane: &'a mut LaneWriter,
    // Copies of the lane's fields, kept in registers by the compiler during the payload copy; more fields would not fit
    // the registers.
    record: ArenaPtr,
    ssn: Ssn,
    prefix: usize,
    body: usize,
}

impl<'a> Claim<'a> {
    /// Reserves `body` bytes in the current chunk, beginning with `prefix` bytes of prefix.
    ///
    /// # Safety
    /// `prefix` is at most `body`, and [`LaneWriter::has_room`] is true for the two parts: the record's footprint fits
    /// between `lane.at` and `lane.limit`.
    #[inline]
    pub(crate) unsafe fn new(lane: &'a mut LaneWriter, prefix: usize, body: usize) -> Claim<'a> {
        debug_assert!(prefix <= body && lane.has_room(prefix, body - prefix));
        let (record, ssn) = (lane.at, lane.next);
        // SAFETY: the record lies before `limit`, as the caller promises, and the chunk has room for another commit
        // word and SSN from `limit` on. `at` and a footprint are multiples of `RECORD_ALIGN`.
        let (after, own_ssn) = unsafe { (record.word(footprint(body)), record.word(SSN_AT)) };
        // The zero stopping readers after this record must be stored before the record is published. Relaxed: the
        // commit word's release publishes it, and until then no reader passes the zero already in the record's place.
        after.store(0, Ordering::Relaxed);
        own_ssn.store(ssn.0, Ordering::Relaxed);
        Claim { lane, record, ssn, prefix, body }
    }

    /// Returns the record's future SSN.
    #[inline]
    pub fn ssn(&self) -> Ssn {
        self.ssn
    }

    /// Returns the body length, prefix and payload.
    #[inline]
    pub fn len(&self) -> usize {
        self.body
    }

    /// Returns `true` if the body is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.body == 0
    }

    /// Publishes the record and returns its SSN.
    #[inline]
    pub fn commit(self) -> Ssn {
        let mut claim = std::mem::ManuallyDrop::new(self);
        let ssn = claim.ssn;
        let word = record_word(claim.prefix, claim.body);
        claim.publish(word);
        claim.lane.next = ssn.next();
        ssn
    }

    #[inline]
    fn publish(&mut self, word: u64) {
        // SAFETY: the record lies in the current chunk and ends at `limit` at the latest, as `new` demands: nothing has
        // moved the lane since, because the claim borrows it.
        let commit_word = unsafe { self.record.word(0) };
        // Release: a reader of the word sees the SSN, the body, and the zero after the record.
        commit_word.store(word, Ordering::Release);
        self.lane.at = self.record;
        // SAFETY: as above.
        unsafe { self.lane.at.advance(footprint(self.body)) };
    }
}

#[cfg(not(counterfoil_loom))]
impl Claim<'_> {
    /// Publishes the record like [`commit`](Self::commit), and prefetches the next one's place, assuming the same
    /// length.
    ///
    /// For a thread about to wait: where records are kept, each goes to uncached memory, and the next record's stores
    /// would hold up whatever follows. Costs an instruction for each cache line.
    #[inline]
    pub fn commit_and_prefetch(mut self) -> Ssn {
        let bytes = footprint(self.body);
        let next = self.body_mut().as_ptr().wrapping_sub(RECORD_HEADER).wrapping_add(bytes);
        let ssn = self.commit();
        // The zero after a record, too.
        prefetch(next, bytes.min(PREFETCH_BYTES_MAX) + RECORD_ALIGN);
        ssn
    }

    /// Returns prefix and payload for writing.
    #[inline]
    pub fn body_mut(&mut self) -> &mut [u8] {
        // SAFETY: the chunk has room for the record, as `new` demands. Cursors read a body only after its commit word,
        // zero until `publish`, and `&mut self` keeps this the only slice.
        unsafe { self.record.bytes_mut(RECORD_HEADER, self.body) }
    }

    /// Returns the prefix for writing.
    #[inline]
    pub fn prefix_mut(&mut self) -> &mut [u8] {
        let prefix = self.prefix;
        &mut self.body_mut()[..prefix]
    }

    /// Returns the payload for writing.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let prefix = self.prefix;
        &mut self.body_mut()[prefix..]
    }

    /// Returns prefix and payload, apart, for writing.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        let prefix = self.prefix;
        // SAFETY: the prefix is part of the body, as `new` demands. (A panicking check would keep the claim in memory,
        // because the panic would drop it.)
        unsafe { self.body_mut().split_at_mut_unchecked(prefix) }
    }
}

#[cfg(counterfoil_loom)]
impl Claim<'_> {
    /// Writes the eight body bytes at `index * 8`.
    pub(crate) fn write_word(&mut self, index: usize, value: u64) {
        self.record.write_body(RECORD_HEADER + index * 8, value);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.publish(pad_word(self.body));
        self.lane.count_pad(footprint(self.body));
    }
}

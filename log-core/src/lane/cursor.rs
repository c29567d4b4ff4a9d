//! Cursors, which read a lane on any thread while its writer goes on.

use crate::arena::Arena;
use crate::chunk::{BlockRef, CHUNK_HEADER, FIRST_AT, LAST_AT, NEXT_AT, OPEN, SEQUENCE_AT, sealed_last};
use crate::lane::pin::Pin;
use crate::lane::{LaneShared, UNPINNED};
use crate::nouns::{Rank, Ssn};
use crate::pool::Pool;
#[cfg(not(counterfoil_loom))]
use crate::record::RECORD_HEADER;
use crate::record::{SSN_AT, Word, footprint, record_lengths};
use crate::sync::{Arc, CountedArc, Ordering, fence};

/// Error of opening a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CursorError {
    /// The first records that were asked for are no longer kept.
    #[error(
        "the lane to {peer} keeps nothing below {kept_from}, but {asked} was asked for: it was released or collected"
    )]
    Gone {
        /// The destination.
        peer: Rank,
        /// First SSN asked for.
        asked: Ssn,
        /// The lowest SSN that may still be there.
        kept_from: Ssn,
    },
    /// The lane has `cursors_max` open cursors.
    #[error("all {max} cursors of the lane to {peer} are in use: close one, or raise cursors_max")]
    TooMany {
        /// The destination.
        peer: Rank,
        /// The limit.
        max: usize,
    },
}

/// A handle that opens cursors on a lane; can be cloned and sent to other threads.
#[derive(Clone, Debug)]
pub struct LaneReader {
    pool: Arc<Pool>,
    shared: CountedArc<LaneShared>,
}

impl LaneReader {
    pub(super) fn new(pool: Arc<Pool>, shared: CountedArc<LaneShared>) -> LaneReader {
        LaneReader { pool, shared }
    }

    /// Returns the destination.
    pub fn peer(&self) -> Rank {
        self.shared.peer()
    }

    /// Opens a cursor on the first record with SSN `from` or above.
    ///
    /// # Errors
    /// [`CursorError::Gone`] if records from `from` on were released or collected; [`CursorError::TooMany`].
    pub fn open(&self, from: Ssn) -> Result<Cursor, CursorError> {
        // SAFETY: no chunk is given.
        unsafe { self.open_from_chunk(from, None) }
    }

    /// Opens a cursor as [`open`](Self::open) does, searching from `chunk` on instead of from the oldest.
    ///
    /// # Safety
    /// A given chunk is in the lane's chain, begins at or below `from`, and is not freed before this returns.
    pub(super) unsafe fn open_from_chunk(&self, from: Ssn, chunk: Option<BlockRef>) -> Result<Cursor, CursorError> {
        let peer = self.peer();
        let free = |pin: &&crate::sync::AtomicU64| {
            // Pin everything during the search: the chunks on the way must not be reused either. Relaxed: the fence below
            // makes it an acquire of the last cursor's release, whose reads this pin covers from now on.
            pin.compare_exchange(UNPINNED, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let pins = &self.shared.pins;
        let slot = pins.iter().position(|pin| free(&pin)).ok_or(CursorError::TooMany { peer, max: pins.len() })?;
        // Pairs with the fence in `LaneShared::lowest_pin`. If the writer loaded the pins first and missed this one, then the
        // head and floor that it published before are seen below, and lead to no chunk that it frees.
        fence(Ordering::SeqCst);
        let mut cursor = Cursor {
            pool: self.pool.clone(),
            pin: Arc::new(Pin { shared: self.shared.clone(), slot }),
            block: BlockRef::NONE,
            at: 0,
            position: from.max(Ssn::FIRST),
            found: 0,
        };
        // The head first: its acquire shows the floor that was published with it, or a later one. In the other order the chain
        // could begin above the floor that was loaded.
        let head = BlockRef(self.shared.head.load(Ordering::Acquire));
        let kept_from = Ssn(self.shared.floor.load(Ordering::Relaxed));
        if cursor.position < kept_from {
            return Err(CursorError::Gone { peer, asked: from, kept_from });
        }
        // SAFETY: the head was loaded with acquire, and `chunk` is in the chain, as the caller promises. The pin keeps both.
        unsafe { cursor.enter(chunk.unwrap_or(head)) };
        cursor.skip_sealed();
        cursor.pin();
        Ok(cursor)
    }
}

/// A position in a lane: reads committed records in SSN order, and keeps the memory of unread ones from being reused.
///
/// At the end of the lane [`peek`](Cursor::peek) returns `None`, and the cursor goes on when more is committed.
#[derive(Debug)]
pub struct Cursor {
    pub(super) pool: Arc<Pool>,
    /// Shared with the images of chunks that were read: the pin doesn't move while there is one.
    pub(super) pin: Arc<Pin>,
    /// The chunk that contains `at`; none before the lane's first chunk.
    pub(super) block: BlockRef,
    /// Offset of a commit word in the chunk, where a record or pad begins or the records end: a multiple of sixteen, with the sixteen
    /// bytes of commit word and SSN inside the arena, because every chunk has so many after its last record.
    pub(super) at: usize,
    /// The lowest SSN that was not passed.
    pub(super) position: Ssn,
    /// The commit word of the record at `at` after it was found; else 0.
    pub(super) found: u64,
}

impl Cursor {
    /// Returns the destination of the lane.
    pub fn peer(&self) -> Rank {
        self.pin.shared.peer()
    }

    /// Returns the lowest SSN that the cursor has not passed.
    pub fn position(&self) -> Ssn {
        self.position
    }

    /// Passes the record that [`peek`](Cursor::peek) returns, if any.
    #[inline]
    pub fn advance(&mut self) {
        if let Some((ssn, body, _)) = self.next_record() {
            self.position = ssn.next();
            self.at += footprint(body);
            self.found = 0;
        }
    }

    /// Returns SSN, body and prefix length of the next record at or above the position, which is located only once.
    #[inline]
    fn next_record(&mut self) -> Option<(Ssn, usize, usize)> {
        if self.found == 0 && !self.locate() {
            return None;
        }
        let (body, prefix) = record_lengths(self.found);
        Some((self.ssn(), body, prefix))
    }

    /// Attaches a cursor that was opened on a lane without chunks to the first chunk; returns `false` if there is none yet.
    ///
    /// # Errors
    /// [`CursorError::Gone`] if records at or above its position were in memory meanwhile and have left it: released, collected
    /// or evicted.
    pub fn attach(&mut self) -> Result<bool, CursorError> {
        if !self.block.is_none() {
            return Ok(true);
        }
        // The head first, as in `LaneReader::open`.
        let head = BlockRef(self.pin.shared.head.load(Ordering::Acquire));
        let kept_from = Ssn(self.pin.shared.floor.load(Ordering::Relaxed));
        if head.is_none() {
            return Ok(false);
        }
        // No record was ever before a lane's first chunk.
        let is_first = self.arena().word(head.at() + SEQUENCE_AT).load(Ordering::Relaxed) == 1;
        if self.position < kept_from && !is_first {
            return Err(CursorError::Gone { peer: self.peer(), asked: self.position, kept_from });
        }
        // SAFETY: the head was loaded with acquire, and a cursor without a chunk pins all.
        unsafe { self.enter(head) };
        self.pin();
        Ok(true)
    }

    /// Returns `true` if the cursor is in a chunk.
    #[inline]
    pub fn is_attached(&self) -> bool {
        !self.block.is_none()
    }

    #[inline]
    fn locate(&mut self) -> bool {
        // The fast path: a record follows in the same chunk.
        if !self.block.is_none() {
            // SAFETY: `at` is the offset of a commit word, as the field says.
            let word = unsafe { self.arena().word_unchecked(self.at) }.load(Ordering::Acquire);
            if matches!(Word::parse(word), Word::Record { .. }) && self.ssn() >= self.position {
                self.found = word;
                return true;
            }
        }
        self.locate_slow()
    }

    /// Returns the SSN of the record at `at`.
    #[inline]
    fn ssn(&self) -> Ssn {
        // SAFETY: the SSN follows the commit word at `at` and is inside the arena, as the field says.
        Ssn(unsafe { self.arena().word_unchecked(self.at + SSN_AT) }.load(Ordering::Relaxed))
    }

    /// Skips pads, records below the position and ends of chunks; returns `false` if no record follows.
    #[cold]
    fn locate_slow(&mut self) -> bool {
        loop {
            if self.block.is_none() {
                let shared = &self.pin.shared;
                let head = BlockRef(shared.head.load(Ordering::Acquire));
                // The head's acquire shows whether records were evicted before it became the head.
                if head.is_none() || (shared.spilled.load(Ordering::Relaxed) != 0 && self.attach().is_err()) {
                    return false;
                }
                // Records that were freed before the cursor read them, because no recovery can need them, are skipped.
                if self.block.is_none() {
                    // SAFETY: as in `attach`.
                    unsafe { self.enter(head) };
                    self.pin();
                }
            }
            let arena = self.arena();
            // Acquire: pairs with the release of the commit.
            let word = arena.word(self.at).load(Ordering::Acquire);
            match Word::parse(word) {
                Word::Record { .. } if self.ssn() >= self.position => {
                    self.found = word;
                    return true;
                }
                Word::Record { body, .. } | Word::Pad { body } => self.at += footprint(body),
                Word::End => {
                    let next = BlockRef(arena.word(self.block.at() + NEXT_AT).load(Ordering::Acquire));
                    // SAFETY: the link of the cursor's chunk, loaded with acquire. The pin keeps all chunks after it.
                    unsafe { self.enter(next) };
                    // The old chunk may be freed now. All reads in it happen before the pin moves.
                    self.pin();
                }
                Word::Empty => return false,
                Word::Damaged => {
                    debug_assert!(false, "a live lane has a damaged commit word");
                    return false;
                }
            }
        }
    }

    /// Skips chunks that end below the position.
    fn skip_sealed(&mut self) {
        while !self.block.is_none() {
            let arena = self.arena();
            // Acquire: a sealed chunk has its link.
            let sealed = arena.word(self.block.at() + LAST_AT).load(Ordering::Acquire);
            if sealed == OPEN || sealed_last(sealed) >= self.position {
                return;
            }
            let next = BlockRef(arena.word(self.block.at() + NEXT_AT).load(Ordering::Acquire));
            // SAFETY: the link of a chunk of this lane, loaded with acquire. While a cursor is opened its pin keeps all.
            unsafe { self.enter(next) };
        }
    }

    /// Moves to the first commit word of a chunk, without a check that there is one; or to no chunk.
    ///
    /// # Safety
    /// `block` is none, or a chunk of this lane: its beginning happened before this call, and the cursor's pin keeps it from being
    /// reused.
    pub(super) unsafe fn enter(&mut self, block: BlockRef) {
        self.block = block;
        self.at = block.at() + CHUNK_HEADER;
    }

    /// Pins the chunk that the cursor is in, and all that come after it.
    ///
    /// Pins the chunk's first SSN instead of the position. The position can be above every record that the chunk will ever
    /// have; and if the records before the chunk are gone, it can be below the chunk, and would pin chunks that the cursor no
    /// longer reaches. In a lane without chunks everything is pinned until the cursor has entered the first.
    pub(super) fn pin(&mut self) {
        let first = match self.block {
            BlockRef::NONE => 0,
            block => self.arena().word(block.at() + FIRST_AT).load(Ordering::Relaxed),
        };
        // An image that shares the pin needs it where it is. An image that was dropped was read before the pin moves.
        if let Some(pin) = Arc::get_mut(&mut self.pin) {
            pin.set(first);
        }
    }

    #[inline]
    pub(super) fn arena(&self) -> &Arena {
        &self.pool.arena
    }
}

#[cfg(not(counterfoil_loom))]
impl Cursor {
    /// Returns the record at the cursor, or `None` if no more is committed yet.
    #[inline]
    pub fn peek(&mut self) -> Option<Record<'_>> {
        let (ssn, body, prefix) = self.next_record()?;
        // SAFETY: a committed record lies inside its chunk, its writer is done with it (the commit word was read with
        // acquire), and its chunk is not reused while this cursor's pin is at or below the chunk's first SSN. The pin moves
        // only in `&mut self` methods, when the cursor goes on to another chunk, and the record borrows the cursor.
        let bytes = unsafe { self.arena().bytes(self.at + RECORD_HEADER, body) };
        Some(Record { ssn, bytes, prefix })
    }

    /// Returns the record at the cursor and passes it: [`peek`](Cursor::peek) and [`advance`](Cursor::advance) in one.
    #[inline]
    pub fn read(&mut self) -> Option<Record<'_>> {
        let (ssn, body, prefix) = self.next_record()?;
        let at = self.at + RECORD_HEADER;
        self.position = ssn.next();
        self.at += footprint(body);
        self.found = 0;
        // SAFETY: as in `peek`; passing a record doesn't move the pin.
        let bytes = unsafe { self.arena().bytes(at, body) };
        Some(Record { ssn, bytes, prefix })
    }
}

#[cfg(counterfoil_loom)]
impl Cursor {
    /// Returns SSN and body of the record at the cursor.
    pub(crate) fn peek_words(&mut self) -> Option<(Ssn, Vec<u64>)> {
        let (ssn, body, _) = self.next_record()?;
        Some((ssn, self.arena().body(self.at + crate::record::RECORD_HEADER, body)))
    }
}

/// A committed record, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    ssn: Ssn,
    bytes: &'a [u8],
    prefix: usize,
}

impl<'a> Record<'a> {
    /// Makes a record of bytes that are not in a lane: `wire` is its prefix of `prefix` bytes, and its payload.
    ///
    /// Returns `None` if the prefix is longer than `wire`.
    #[inline]
    pub fn new(ssn: Ssn, wire: &'a [u8], prefix: usize) -> Option<Record<'a>> {
        (prefix <= wire.len()).then_some(Record { ssn, bytes: wire, prefix })
    }

    /// Returns the sequence number.
    #[inline]
    pub fn ssn(&self) -> Ssn {
        self.ssn
    }

    /// Returns the prefix, which the layer above put before the payload.
    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        &self.bytes[..self.prefix]
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.prefix..]
    }

    /// Returns prefix and payload, contiguous: the message as it is transmitted.
    #[inline]
    pub fn wire(&self) -> &'a [u8] {
        self.bytes
    }
}

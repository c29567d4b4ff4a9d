//! Cursors, reading a lane on any thread while its writer goes on.

use crate::arena::Arena;
use crate::chunk::{BlockRef, CHUNK_HEADER, FIRST_AT, LAST_AT, NEXT_AT, OPEN, SEQUENCE_AT, sealed_last};
use crate::lane::pin::Pin;
use crate::lane::{LaneShared, UNPINNED};
use crate::nouns::{Rank, Ssn};
use crate::pool::Pool;
#[cfg(not(counterfoil_loom))]
use crate::record::RECORD_HEADER;
use crate::record::{SSN_AT, Word, footprint, record_lengths};
use crate::sync::{Arc, CountedArc, Ordering};

/// Error when opening a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CursorError {
    /// The first records asked for are no longer kept.
    #[error(
        "the lane to {peer} keeps nothing below {kept_from}, but {asked} was asked for: it was released or collected"
    )]
    Gone {
        /// The destination.
        peer: Rank,
        /// First SSN asked for.
        asked: Ssn,
        /// Lowest SSN possibly still there.
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

/// Handle for opening cursors on a lane; can be cloned and sent to other threads.
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

    /// Opens a cursor like [`open`](Self::open), searching from `chunk` on instead of from the oldest.
    ///
    /// # Safety
    /// A given chunk is in the lane's chain, begins at or below `from`, and is not freed before this returns.
    pub(super) unsafe fn open_from_chunk(&self, from: Ssn, chunk: Option<BlockRef>) -> Result<Cursor, CursorError> {
        let peer = self.peer();
        let free = |pin: &&crate::sync::AtomicU64| {
            // Pin everything during the search: the chunks on the way must not be reused either. Relaxed: the fence
            // below makes it an acquire of the last cursor's release; this pin covers that cursor's reads from now on.
            pin.compare_exchange(UNPINNED, Pin::EVERYTHING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let pins = &self.shared.pins;
        let slot = pins.iter().position(|pin| free(&pin)).ok_or(CursorError::TooMany { peer, max: pins.len() })?;
        let pin = Pin { shared: self.shared.clone(), slot };
        pin.publish();
        let mut cursor = Cursor {
            pool: self.pool.clone(),
            pin: Arc::new(pin),
            block: BlockRef::NONE,
            at: 0,
            position: from.max(Ssn::FIRST),
            found: 0,
            awaits_first_chunk: false,
        };
        // The head first: its acquire shows the floor published with it, or a later one. In the other order the chain
        // could begin above the loaded floor.
        let head = BlockRef(self.shared.head.load(Ordering::Acquire));
        let kept_from = Ssn(self.shared.floor.load(Ordering::Relaxed));
        if cursor.position < kept_from {
            return Err(CursorError::Gone { peer, asked: from, kept_from });
        }
        cursor.awaits_first_chunk = head.is_none();
        // SAFETY: the head was loaded with acquire, and `chunk` is in the chain, as the caller promises. The pin keeps
        // everything.
        unsafe { cursor.enter_chain(chunk.unwrap_or(head)) };
        Ok(cursor)
    }
}

/// A lane position: reads committed records in SSN order, and keeps unread ones from being released.
///
/// At the end of the lane [`peek`](Cursor::peek) returns `None`, and the cursor goes on when more is committed.
///
/// Records on disk may be [evicted](crate::LaneWriter::evict) before it: it keeps the memory of its current chunk, and
/// is *overtaken* at the chunk's end. It then isn't [attached](Self::is_attached), and [`attach`](Self::attach) reports
/// its next records gone from memory. A cursor beyond the lane's end isn't attached either, and keeps no memory.
#[derive(Debug)]
pub struct Cursor {
    pub(super) pool: Arc<Pool>,
    /// Shared with images of read chunks: the pin doesn't move while there is one.
    pub(super) pin: Arc<Pin>,
    /// Chunk containing `at`.
    ///
    /// None before the lane's first chunk, while the position is beyond the lane's end, and after the cursor was
    /// overtaken.
    pub(super) block: BlockRef,
    /// Offset of a commit word in the chunk, where a record or pad begins or the records end: a multiple of sixteen.
    /// The sixteen bytes of commit word and SSN are inside the arena, because every chunk has as many after its last
    /// record.
    pub(super) at: usize,
    /// Lowest SSN not yet passed.
    pub(super) position: Ssn,
    /// Commit word of the record at `at` once found; else 0.
    pub(super) found: u64,
    /// Set if opened on a lane without chunks, until the cursor enters one.
    pub(super) awaits_first_chunk: bool,
}

impl Cursor {
    /// Returns the lane's destination.
    pub fn peer(&self) -> Rank {
        self.pin.shared.peer()
    }

    /// Returns the lowest SSN not yet passed.
    pub fn position(&self) -> Ssn {
        self.position
    }

    /// Passes the record returned by [`peek`](Cursor::peek), if any.
    #[inline]
    pub fn advance(&mut self) {
        if let Some((ssn, body, _)) = self.next_record() {
            self.position = ssn.next();
            self.at += footprint(body);
            self.found = 0;
        }
    }

    /// Returns SSN, body and prefix length of the next record at or above the position, located only once.
    #[inline]
    fn next_record(&mut self) -> Option<(Ssn, usize, usize)> {
        if self.found == 0 && !self.locate() {
            return None;
        }
        let (body, prefix) = record_lengths(self.found);
        Some((self.ssn(), body, prefix))
    }

    /// Attaches the cursor to its position's chunk; returns `false` if the lane hasn't come so far yet, or if an image
    /// of a passed chunk still exists.
    ///
    /// Records freed meanwhile, not needed by any recovery, are skipped, unless the cursor was opened on a lane without
    /// chunks.
    ///
    /// # Errors
    /// [`CursorError::Gone`] if records at or above its position were evicted meanwhile, or, for a cursor opened on a
    /// lane without chunks, freed.
    pub fn attach(&mut self) -> Result<bool, CursorError> {
        if !self.block.is_none() {
            return Ok(true);
        }
        // A look at a lane without chunks needs no fence.
        let shared = &self.pin.shared;
        let is_empty = shared.head.load(Ordering::Acquire) == 0;
        if is_empty && self.position.0 >= shared.floor.load(Ordering::Relaxed) {
            return Ok(false);
        }
        // An image's pin keeps no chunk before its own.
        let Some(pin) = Arc::get_mut(&mut self.pin) else { return Ok(false) };
        pin.keep_everything();
        // The head first, as in `LaneReader::open`. Its acquire shows evictions before it became the head.
        let shared = &self.pin.shared;
        let head = BlockRef(shared.head.load(Ordering::Acquire));
        let kept_from = Ssn(shared.floor.load(Ordering::Relaxed));
        let passes_none = self.awaits_first_chunk || shared.evicted.load(Ordering::Relaxed) != 0;
        if self.position < kept_from && passes_none && !self.is_first_chunk(head) {
            self.detach();
            return Err(CursorError::Gone { peer: self.peer(), asked: self.position, kept_from });
        }
        // SAFETY: the head was loaded with acquire, and the pin keeps everything.
        unsafe { self.enter_chain(head) };
        Ok(!self.block.is_none())
    }

    /// Returns `true` if this is the lane's first chunk ever: no record was before it.
    fn is_first_chunk(&self, chunk: BlockRef) -> bool {
        !chunk.is_none() && self.sequence(chunk) == 1
    }

    fn sequence(&self, chunk: BlockRef) -> u64 {
        self.arena().word(chunk.at() + SEQUENCE_AT).load(Ordering::Relaxed)
    }

    /// Returns `true` if the cursor is in a chunk.
    #[inline]
    pub fn is_attached(&self) -> bool {
        !self.block.is_none()
    }

    /// Returns `true` if the cursor was opened on a lane without chunks, and has been in none since: it passes over no
    /// missing record.
    pub fn awaits_first_chunk(&self) -> bool {
        self.awaits_first_chunk
    }

    /// Returns `true` if a record is at the cursor, for [`peek`](Cursor::peek) to return.
    #[inline]
    pub fn has_record(&mut self) -> bool {
        self.found != 0 || self.locate()
    }

    #[inline]
    fn locate(&mut self) -> bool {
        // The fast path: a record follows in the same chunk.
        if !self.block.is_none() {
            // SAFETY: `at` is a commit word's offset, as documented at the field.
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

    /// Skips pads, records below the position and chunk ends; returns `false` if no record follows.
    #[cold]
    fn locate_slow(&mut self) -> bool {
        loop {
            if !matches!(self.attach(), Ok(true)) {
                return false;
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
                    if !self.go_on() {
                        return false;
                    }
                }
                Word::Empty => return false,
                Word::Damaged => {
                    debug_assert!(false, "a live lane has a damaged commit word");
                    return false;
                }
            }
        }
    }

    /// Moves from a chunk's end to the next one.
    ///
    /// Returns `false` if later chunks were evicted: the cursor was overtaken, and is in no chunk.
    pub(super) fn go_on(&mut self) -> bool {
        // While an image has the pin, it is at or below this chunk, and keeps evicted chunks.
        if let Some(pin) = Arc::get_mut(&mut self.pin) {
            pin.keep_everything();
        } else {
            self.pin.publish();
        }
        // Relaxed: either the writer sees the pin and keeps the next chunk, or its fence before this one shows the
        // eviction. Among freed chunks the pin kept all after this one.
        if self.pin.shared.evicted.load(Ordering::Relaxed) > self.sequence(self.block) {
            self.detach();
            return false;
        }
        let next = BlockRef(self.arena().word(self.block.at() + NEXT_AT).load(Ordering::Acquire));
        // SAFETY: the link in the cursor's chunk, loaded with acquire. The pin keeps the next chunk, as said above.
        unsafe { self.enter(next) };
        // The old chunk may be freed now. All reads in it happen before the pin moves.
        self.pin();
        true
    }

    /// Leaves the chain: nothing is kept below the position.
    ///
    /// All reads happen before the pin moves.
    fn detach(&mut self) {
        (self.block, self.found) = (BlockRef::NONE, 0);
        self.pin();
    }

    /// Moves to the position's chunk, from `chunk` on; or to none if it is beyond the lane's end.
    ///
    /// # Safety
    /// As for [`enter`](Self::enter); and the pin keeps everything.
    unsafe fn enter_chain(&mut self, chunk: BlockRef) {
        // SAFETY: as the caller promises.
        unsafe { self.enter(chunk) };
        self.skip_sealed();
        if self.is_ahead() {
            self.detach();
        } else {
            self.awaits_first_chunk &= self.block.is_none();
            self.pin();
        }
    }

    /// Returns `true` if the lane ends before the position: the cursor is at the beginning of the chunk being written,
    /// and the next record will be below the position, too.
    fn is_ahead(&self) -> bool {
        let (arena, block) = (self.arena(), self.block);
        // Relaxed: a chunk sealed meanwhile ends with an end word.
        if block.is_none() || arena.word(block.at() + LAST_AT).load(Ordering::Relaxed) != OPEN {
            return false;
        }
        let mut at = self.at;
        let mut next = Ssn(arena.word(block.at() + FIRST_AT).load(Ordering::Relaxed));
        loop {
            // Acquire: pairs with the release of the commit.
            match Word::parse(arena.word(at).load(Ordering::Acquire)) {
                Word::Record { body, .. } if next < self.position => {
                    next = Ssn(arena.word(at + SSN_AT).load(Ordering::Relaxed)).next();
                    at += footprint(body);
                }
                Word::Pad { body } => at += footprint(body),
                Word::Empty => return next < self.position,
                _ => return false,
            }
        }
    }

    /// Skips chunks ending below the position.
    fn skip_sealed(&mut self) {
        while !self.block.is_none() {
            let arena = self.arena();
            // Acquire: a sealed chunk has its link.
            let sealed = arena.word(self.block.at() + LAST_AT).load(Ordering::Acquire);
            if sealed == OPEN || sealed_last(sealed) >= self.position {
                return;
            }
            let next = BlockRef(arena.word(self.block.at() + NEXT_AT).load(Ordering::Acquire));
            // SAFETY: the link in one of this lane's chunks, loaded with acquire. While a cursor is opened its pin
            // keeps all.
            unsafe { self.enter(next) };
        }
    }

    /// Moves to a chunk's first commit word, without a check for one; or to no chunk.
    ///
    /// # Safety
    /// `block` is none, or a chunk in this lane: its beginning happened before this call, and the cursor's pin keeps it
    /// from being reused.
    pub(super) unsafe fn enter(&mut self, block: BlockRef) {
        self.block = block;
        self.at = block.at() + CHUNK_HEADER;
    }

    /// Pins the cursor's chunk, and all later ones not evicted.
    ///
    /// Pins the chunk's first SSN instead of the position. The position can be above every record the chunk will ever
    /// have; and if the records before the chunk are gone, it can be below the chunk, and would pin chunks the cursor
    /// no longer reaches. A cursor in no chunk reads none: it pins its position, so that the records from there on
    /// aren't released, and looks for its place anew.
    pub(super) fn pin(&mut self) {
        let first = match self.block {
            BlockRef::NONE => self.position.0,
            block => self.arena().word(block.at() + FIRST_AT).load(Ordering::Relaxed),
        };
        // An image sharing the pin needs it where it is. A dropped image was read before the pin moves.
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
    /// Returns the record at the cursor, or `None` if no more is committed yet or if [`attach`](Self::attach) fails.
    #[inline]
    pub fn peek(&mut self) -> Option<Record<'_>> {
        let (ssn, body, prefix) = self.next_record()?;
        // SAFETY: a committed record lies inside its chunk, its writer is done with it (the commit word was read with
        // acquire), and its chunk is not reused while this cursor's pin is at or below the chunk's first SSN. The pin
        // moves only in `&mut self` methods, when the cursor goes on to another chunk, and the record borrows the
        // cursor.
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
    /// Makes a record from bytes outside a lane: `wire` is its prefix of `prefix` bytes, and its payload.
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

    /// Returns the prefix, put before the payload by the layer above.
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

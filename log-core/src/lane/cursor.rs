//! Reading a lane, on any thread, beside its writer.

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

/// Why a cursor can't be opened.
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
        /// The lowest that may still be there.
        kept_from: Ssn,
    },
    /// As many cursors as `cursors_max` are open.
    #[error("all {max} cursors of the lane to {peer} are in use: close one, or raise cursors_max")]
    TooMany {
        /// The destination.
        peer: Rank,
        /// The limit.
        max: usize,
    },
}

/// Opens cursors on a lane; can be sent to and cloned for other threads.
#[derive(Clone, Debug)]
pub struct LaneReader {
    pool: Arc<Pool>,
    shared: CountedArc<LaneShared>,
}

impl LaneReader {
    pub(super) fn new(pool: Arc<Pool>, shared: CountedArc<LaneShared>) -> LaneReader {
        LaneReader { pool, shared }
    }

    /// The destination.
    pub fn peer(&self) -> Rank {
        self.shared.peer()
    }

    /// A cursor on the first record with SSN `from` or above.
    ///
    /// # Errors
    /// [`CursorError::Gone`] where records from `from` on were released or collected; [`CursorError::TooMany`].
    pub fn open(&self, from: Ssn) -> Result<Cursor, CursorError> {
        self.open_in(from, None)
    }

    /// As [`open`](Self::open), looking for the place from this chunk on instead of from the oldest. It is in the chain,
    /// begins at or below `from`, and isn't freed before this returns.
    pub(super) fn open_in(&self, from: Ssn, chunk: Option<BlockRef>) -> Result<Cursor, CursorError> {
        let peer = self.peer();
        let free = |pin: &&crate::sync::AtomicU64| {
            // Pin everything while looking for the place: the chunks on the way there must not be reused either.
            // Relaxed: the fence below makes it an acquire of the last cursor's release, whose reads this pin now covers.
            pin.compare_exchange(UNPINNED, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let pins = &self.shared.pins;
        let slot = pins.iter().position(|pin| free(&pin)).ok_or(CursorError::TooMany { peer, max: pins.len() })?;
        // Pairs with the fence in `LaneShared::lowest_pin`. If the writer's look at the pins came first and missed this
        // one, then the head and floor that it published before are seen below, and nothing it frees is reached from them.
        fence(Ordering::SeqCst);
        let mut cursor = Cursor {
            pool: self.pool.clone(),
            pin: Arc::new(Pin { shared: self.shared.clone(), slot }),
            block: BlockRef::NONE,
            at: 0,
            position: from.max(Ssn::FIRST),
            found: 0,
        };
        // The head first: its acquire shows the floor that was published with it, or a later one. The other way round, the
        // chain could begin above the floor that was looked at.
        let head = BlockRef(self.shared.head.load(Ordering::Acquire));
        let kept_from = Ssn(self.shared.floor.load(Ordering::Relaxed));
        if cursor.position < kept_from {
            return Err(CursorError::Gone { peer, asked: from, kept_from });
        }
        cursor.enter(chunk.unwrap_or(head));
        cursor.skip_sealed();
        cursor.pin();
        Ok(cursor)
    }
}

/// A place in a lane: reads committed records in SSN order, and keeps what it has not read from being reused.
///
/// It ends where the writer is: [`peek`](Cursor::peek) says `None` there and goes on when more is committed.
#[derive(Debug)]
pub struct Cursor {
    pub(super) pool: Arc<Pool>,
    /// Images of chunks that were read have it, too: as long as there is one the pin stays where it is.
    pub(super) pin: Arc<Pin>,
    /// The chunk that `at` is in; none before the lane's first chunk.
    pub(super) block: BlockRef,
    pub(super) at: usize,
    /// The lowest SSN that was not passed yet.
    pub(super) position: Ssn,
    /// The commit word of the record at `at`, once it was found; else 0.
    pub(super) found: u64,
}

impl Cursor {
    /// The destination of the lane.
    pub fn peer(&self) -> Rank {
        self.pin.shared.peer()
    }

    /// The lowest SSN that the cursor has not passed.
    pub fn position(&self) -> Ssn {
        self.position
    }

    /// Passes the record that [`peek`](Cursor::peek) shows; nothing where it shows none.
    #[inline]
    pub fn advance(&mut self) {
        if let Some((ssn, body, _)) = self.find() {
            self.position = ssn.next();
            self.at += footprint(body);
            self.found = 0;
        }
    }

    /// The next record at or above the position, looked for once: its SSN, body and prefix.
    #[inline]
    fn find(&mut self) -> Option<(Ssn, usize, usize)> {
        if self.found == 0 && !self.look() {
            return None;
        }
        let (body, prefix) = record_lengths(self.found);
        Some((self.ssn(), body, prefix))
    }

    /// Whether the cursor is in a chunk. One that was opened on a lane without chunks looks for its place now.
    ///
    /// # Errors
    /// [`CursorError::Gone`] where records at or above its position were there meanwhile, and are not any more: released or
    /// collected, or kept elsewhere.
    pub fn place(&mut self) -> Result<bool, CursorError> {
        if !self.block.is_none() {
            return Ok(true);
        }
        // In this order as in `LaneReader::open`.
        let head = BlockRef(self.pin.shared.head.load(Ordering::Acquire));
        let kept_from = Ssn(self.pin.shared.floor.load(Ordering::Relaxed));
        if head.is_none() {
            return Ok(false);
        }
        // A lane's first chunk begins behind what was never there.
        let is_first = self.arena().word(head.at() + SEQUENCE_AT).load(Ordering::Relaxed) == 1;
        if self.position < kept_from && !is_first {
            return Err(CursorError::Gone { peer: self.peer(), asked: self.position, kept_from });
        }
        self.enter(head);
        self.pin();
        Ok(true)
    }

    /// Whether the cursor has found its place.
    #[inline]
    pub fn is_placed(&self) -> bool {
        !self.block.is_none()
    }

    #[inline]
    fn look(&mut self) -> bool {
        // Almost always the next record is the next thing in the chunk.
        if !self.block.is_none() {
            let word = self.arena().word(self.at).load(Ordering::Acquire);
            if matches!(Word::parse(word), Word::Record { .. }) && self.ssn() >= self.position {
                self.found = word;
                return true;
            }
        }
        self.look_further()
    }

    /// The SSN of the record at `at`.
    #[inline]
    fn ssn(&self) -> Ssn {
        Ssn(self.arena().word(self.at + SSN_AT).load(Ordering::Relaxed))
    }

    /// Goes past pads, records below the position and the ends of chunks.
    #[cold]
    fn look_further(&mut self) -> bool {
        loop {
            if self.block.is_none() {
                let shared = &self.pin.shared;
                let head = BlockRef(shared.head.load(Ordering::Acquire));
                // The head's acquire shows whether anything went elsewhere before it became the head.
                if head.is_none() || (shared.elsewhere.load(Ordering::Relaxed) != 0 && self.place().is_err()) {
                    return false;
                }
                // What was freed before it was read, because nobody can need it, is passed.
                if self.block.is_none() {
                    self.enter(head);
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
                    self.enter(next);
                    // The old chunk may go now. Everything that was read in it happens before the pin moves.
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
            self.enter(next);
        }
    }

    pub(super) fn enter(&mut self, block: BlockRef) {
        self.block = block;
        self.at = block.at() + CHUNK_HEADER;
    }

    /// Tells the writer what is still needed: the chunk that the cursor is in, and all that come after it.
    ///
    /// The position would not do. It can be beyond everything that the chunk will ever hold; and where records in front of
    /// the chunk are gone it is below the chunk, and would hold back for as long as the cursor is there what it no longer
    /// reaches. In a lane without chunks everything is pinned, until the cursor has entered the first.
    pub(super) fn pin(&mut self) {
        let first = match self.block {
            BlockRef::NONE => 0,
            block => self.arena().word(block.at() + FIRST_AT).load(Ordering::Relaxed),
        };
        // Who else has the pin needs what is behind it now. Its being given up happens before the pin moves.
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
    /// The record at the cursor, or `None` where nothing more is committed yet.
    #[inline]
    pub fn peek(&mut self) -> Option<Record<'_>> {
        let (ssn, body, prefix) = self.find()?;
        // SAFETY: a committed record lies inside its chunk, its writer is done with it (the commit word was read with
        // acquire), and its chunk is not reused while this cursor's pin is at or below the chunk's first SSN. The pin moves
        // only in `&mut self` methods, when the cursor goes on to another chunk, and the record borrows the cursor.
        let bytes = unsafe { self.arena().bytes(self.at + RECORD_HEADER, body) };
        Some(Record { ssn, bytes, prefix })
    }

    /// The record at the cursor, which is passed: [`peek`](Cursor::peek) and [`advance`](Cursor::advance) in one.
    #[inline]
    pub fn read(&mut self) -> Option<Record<'_>> {
        let (ssn, body, prefix) = self.find()?;
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
    /// The record's SSN, and its body.
    pub(crate) fn peek_words(&mut self) -> Option<(Ssn, Vec<u64>)> {
        let (ssn, body, _) = self.find()?;
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
    /// A record that was read from elsewhere: `wire` is its prefix of `prefix` bytes, and its payload.
    ///
    /// `None` where the prefix is longer than all of it.
    #[inline]
    pub fn new(ssn: Ssn, wire: &'a [u8], prefix: usize) -> Option<Record<'a>> {
        (prefix <= wire.len()).then_some(Record { ssn, bytes: wire, prefix })
    }

    /// Its sequence number.
    #[inline]
    pub fn ssn(&self) -> Ssn {
        self.ssn
    }

    /// What the layer above put in front of the payload.
    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        &self.bytes[..self.prefix]
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.prefix..]
    }

    /// Prefix and payload, contiguous: what goes over the wire.
    #[inline]
    pub fn wire(&self) -> &'a [u8] {
        self.bytes
    }
}

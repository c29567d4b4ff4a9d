//! A log's memory, addressed by offset.
//!
//! Shared words are accessed through [`Arena::word`], and on hot paths without its check. Loom and shuttle cannot see
//! atomics inside mapped bytes: in their models the same offsets refer to their own atomics, and the rest of the crate
//! is unchanged.

use std::fmt;
#[cfg(not(counterfoil_loom))]
use std::ptr::NonNull;

#[cfg(counterfoil_loom)]
use crate::options::HEADER_BYTES;
#[cfg(counterfoil_loom)]
use crate::record::RECORD_HEADER;
use crate::sync::{AtomicU64, Ordering};

/// Mapped memory for one tier.
#[cfg(not(counterfoil_loom))]
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
    tier: Box<dyn crate::tier::Tier>,
}

// SAFETY: `base` points into the memory of `tier`; by the contract of `Tier` any thread may use it while `tier` lives,
// and `tier` is Send and Sync itself. Lanes and cursors decide which thread may access which bytes when.
#[cfg(not(counterfoil_loom))]
unsafe impl Send for Arena {}
// SAFETY: as above.
#[cfg(not(counterfoil_loom))]
unsafe impl Sync for Arena {}

#[cfg(not(counterfoil_loom))]
impl Arena {
    pub(crate) fn new(tier: Box<dyn crate::tier::Tier>) -> Arena {
        Arena { base: tier.base(), len: tier.len(), tier }
    }

    /// Returns the arena's length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn commit(&self, at: usize, len: usize) -> std::io::Result<()> {
        self.tier.commit(at, len)
    }

    pub(crate) fn discard(&self, at: usize, len: usize) -> std::io::Result<()> {
        self.tier.discard(at, len)
    }

    pub(crate) fn survives_process(&self) -> bool {
        self.tier.survives_process()
    }

    /// Returns the word at `at`.
    ///
    /// # Panics
    /// If `at` is not a multiple of eight inside the arena.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(self.has_word(at), "a word outside the arena");
        // SAFETY: checked above.
        unsafe { self.word_unchecked(at) }
    }

    /// Returns the word at `at`, without a check in release builds.
    ///
    /// # Safety
    /// `at` is a multiple of eight, and the eight bytes from there lie inside the arena.
    #[inline]
    pub(crate) unsafe fn word_unchecked(&self, at: usize) -> &AtomicU64 {
        debug_assert!(self.has_word(at));
        // SAFETY: the offset is inside the memory and aligned, as the caller promises: the memory begins at a page. It
        // is initialised and lives as long as `self`, and AtomicU64 has the layout of u64. Every access to bytes
        // forming a shared word at that moment goes through this function or through `ArenaPtr::word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    #[inline]
    fn has_word(&self, at: usize) -> bool {
        at.is_multiple_of(8) && self.len.checked_sub(at).is_some_and(|left| left >= 8)
    }

    /// Copies a record of `len` bytes, a multiple of eight, into a chunk not yet in a lane.
    pub(crate) fn copy(&self, from: usize, to: usize, len: usize) {
        for offset in (0..len).step_by(size_of::<u64>()) {
            let value = self.word(from + offset).load(Ordering::Relaxed);
            self.word(to + offset).store(value, Ordering::Relaxed);
        }
    }

    /// Returns the place at `at`.
    ///
    /// # Safety
    /// `at` is inside the arena or its end, and the place must not be used after the arena is dropped.
    #[inline]
    pub(crate) unsafe fn place(&self, at: usize) -> ArenaPtr {
        debug_assert!(at <= self.len);
        // SAFETY: inside the memory or at its end, as the caller promises.
        ArenaPtr { address: unsafe { self.base.add(at) } }
    }

    /// Returns a place's offset in this arena.
    pub(crate) fn offset_of(&self, place: ArenaPtr) -> usize {
        place.address.addr().get() - self.base.addr().get()
    }

    /// Returns the byte address at `at`.
    pub(crate) fn address(&self, at: usize) -> *const u8 {
        debug_assert!(at <= self.len);
        self.base.as_ptr().wrapping_add(at)
    }

    /// Returns the bytes `[at, at + len)`.
    ///
    /// # Safety
    /// They lie inside the arena, and no thread writes them while the slice lives.
    #[inline]
    pub(crate) unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        debug_assert!(at + len <= self.len);
        // SAFETY: inside the memory, initialised, and not written, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }
}

/// A place in an arena as a plain address, for the append path, where following two pointers or adding an offset is too
/// slow.
#[cfg(not(counterfoil_loom))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaPtr {
    address: NonNull<u8>,
}

// SAFETY: as for `Arena`; a place is only an address.
#[cfg(not(counterfoil_loom))]
unsafe impl Send for ArenaPtr {}
// SAFETY: as above.
#[cfg(not(counterfoil_loom))]
unsafe impl Sync for ArenaPtr {}

#[cfg(not(counterfoil_loom))]
impl ArenaPtr {
    /// Returns the bytes from here to `end`, a place not before this one.
    #[inline]
    pub(crate) fn bytes_until(self, end: ArenaPtr) -> usize {
        end.address.addr().get() - self.address.addr().get()
    }

    /// Moves the place `bytes` further on.
    ///
    /// # Safety
    /// The new place is inside the arena too, or at its end.
    #[inline]
    pub(crate) unsafe fn advance(&mut self, bytes: usize) {
        // SAFETY: inside the memory, or at its end, as the caller promises.
        self.address = unsafe { self.address.add(bytes) };
    }

    /// Returns the word `offset` bytes from here.
    ///
    /// # Safety
    /// The word is at a multiple of eight, and its eight bytes lie inside the arena.
    #[inline]
    pub(crate) unsafe fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!((self.address.addr().get() + offset).is_multiple_of(8));
        // SAFETY: as in `Arena::word_unchecked`; the arena is alive, as `Arena::place` demands.
        unsafe { AtomicU64::from_ptr(self.address.as_ptr().add(offset).cast()) }
    }

    /// Returns the `len` bytes from `offset` on for writing.
    ///
    /// # Safety
    /// They lie inside the arena, and no other reference reads or writes them while the slice lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the caller owns the range, not the arena")]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: inside the memory, initialised, and the caller's alone, as it promises; the arena is alive, as
        // `Arena::place` demands.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr().add(offset), len) }
    }
}

/// Eight bytes of a model's memory: an atomic while they are a shared word, a cell while they are part of a body.
#[cfg(counterfoil_loom)]
struct ModelWord {
    word: AtomicU64,
    body: BodyCell,
}

/// Eight body bytes, with every race visible to loom.
#[cfg(all(counterfoil_loom, not(counterfoil_shuttle)))]
struct BodyCell(loom::cell::UnsafeCell<u64>);

// SAFETY: loom sees every access to the cell, and fails the model if two of them race.
#[cfg(all(counterfoil_loom, not(counterfoil_shuttle)))]
unsafe impl Sync for BodyCell {}

#[cfg(all(counterfoil_loom, not(counterfoil_shuttle)))]
impl BodyCell {
    fn new(value: u64) -> BodyCell {
        BodyCell(loom::cell::UnsafeCell::new(value))
    }

    fn read(&self) -> u64 {
        // SAFETY: loom checked that no thread writes the cell meanwhile.
        self.0.with(|word| unsafe { *word })
    }

    fn write(&self, value: u64) {
        // SAFETY: loom checked that no other thread reads or writes the cell meanwhile.
        self.0.with_mut(|word| unsafe { *word = value });
    }
}

/// Eight body bytes.
///
/// Shuttle sees no races, but may switch threads at each access: a body read too early, or during the write, has words
/// from two records.
#[cfg(counterfoil_shuttle)]
struct BodyCell(AtomicU64);

#[cfg(counterfoil_shuttle)]
impl BodyCell {
    fn new(value: u64) -> BodyCell {
        BodyCell(AtomicU64::new(value))
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn write(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// A model's memory, without the file header.
#[cfg(counterfoil_loom)]
pub(crate) struct Arena {
    words: Vec<ModelWord>,
}

#[cfg(counterfoil_loom)]
impl Arena {
    /// Makes an arena of `len` bytes holding `left(offset)`, as if left by an earlier use.
    pub(crate) fn modelled(len: usize, left: impl Fn(usize) -> u64) -> Arena {
        let word = |at| ModelWord { word: AtomicU64::new(left(at)), body: BodyCell::new(left(at)) };
        Arena { words: (HEADER_BYTES..len).step_by(8).map(word).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        HEADER_BYTES + self.words.len() * 8
    }

    pub(crate) fn commit(&self, _at: usize, _len: usize) -> std::io::Result<()> {
        Ok(())
    }

    pub(crate) fn discard(&self, _at: usize, _len: usize) -> std::io::Result<()> {
        Ok(())
    }

    pub(crate) fn survives_process(&self) -> bool {
        false
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        &self.word_at(at).word
    }

    /// Returns the word at `at`; a model checks it, too.
    ///
    /// # Safety
    /// See the mapped variant.
    pub(crate) unsafe fn word_unchecked(&self, at: usize) -> &AtomicU64 {
        self.word(at)
    }

    /// Reads the body bytes `[at, at + len)`.
    pub(crate) fn body(&self, at: usize, len: usize) -> Vec<u64> {
        (at..at + len).step_by(8).map(|at| self.word_at(at).body.read()).collect()
    }

    /// Reads `[at, at + len)` without atomic accesses, shared words as well as bodies: (word, body) for each eight
    /// bytes.
    #[cfg(not(counterfoil_shuttle))]
    pub(crate) fn read_unsync(&self, at: usize, len: usize) -> Vec<(u64, u64)> {
        // SAFETY: loom fails the model if another thread's store is not ordered with the load.
        let read = |pair: &ModelWord| (unsafe { pair.word.unsync_load() }, pair.body.read());
        (at..at + len).step_by(8).map(|at| read(self.word_at(at))).collect()
    }

    /// Writes eight body bytes.
    pub(crate) fn write_body(&self, at: usize, value: u64) {
        self.word_at(at).body.write(value);
    }

    /// Copies a record; its two words are not part of its body.
    pub(crate) fn copy(&self, from: usize, to: usize, len: usize) {
        for offset in (0..RECORD_HEADER).step_by(8) {
            let value = self.word(from + offset).load(Ordering::Relaxed);
            self.word(to + offset).store(value, Ordering::Relaxed);
        }
        for (index, value) in self.body(from + RECORD_HEADER, len - RECORD_HEADER).into_iter().enumerate() {
            self.write_body(to + RECORD_HEADER + index * 8, value);
        }
    }

    /// Returns the place at `at`.
    ///
    /// # Safety
    /// The place must not be used after the arena is dropped.
    pub(crate) unsafe fn place(&self, at: usize) -> ArenaPtr {
        ArenaPtr { arena: self, at }
    }

    pub(crate) fn offset_of(&self, place: ArenaPtr) -> usize {
        place.at
    }

    fn word_at(&self, at: usize) -> &ModelWord {
        &self.words[(at - HEADER_BYTES) / 8]
    }
}

/// A place in a model's memory.
#[cfg(counterfoil_loom)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaPtr {
    arena: *const Arena,
    at: usize,
}

// SAFETY: a shared reference to an `Arena` in all but lifetime, and `Arena` is Sync.
#[cfg(counterfoil_loom)]
unsafe impl Send for ArenaPtr {}
// SAFETY: as above.
#[cfg(counterfoil_loom)]
unsafe impl Sync for ArenaPtr {}

#[cfg(counterfoil_loom)]
impl ArenaPtr {
    pub(crate) fn bytes_until(self, end: ArenaPtr) -> usize {
        end.at - self.at
    }

    /// Moves the place `bytes` further on.
    ///
    /// # Safety
    /// See the mapped variant.
    pub(crate) unsafe fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Returns the word `offset` bytes from here.
    ///
    /// # Safety
    /// See the mapped variant.
    pub(crate) unsafe fn word(&self, offset: usize) -> &AtomicU64 {
        self.arena().word(self.at + offset)
    }

    pub(crate) fn write_body(&self, offset: usize, value: u64) {
        self.arena().write_body(self.at + offset, value);
    }

    fn arena(&self) -> &Arena {
        // SAFETY: the arena is alive, as `Arena::place` demands, and doesn't move: it is in the pool's Arc.
        unsafe { &*self.arena }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("survives_process", &self.survives_process()).finish_non_exhaustive()
    }
}

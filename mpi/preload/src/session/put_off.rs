//! A receive that has returned and is put off: what there is to be done about it is done when the session is entered next.
//!
//! A rank that has received often answers at once, and whoever waits for the answer waits for all that stands between the two. So a
//! blocking receive only leaves here what it took; [`enter`](super::enter) sees to it before anything else. There is at most one: the
//! next receive enters before it waits. Only where threads don't call at once.
//!
//! What was just stored is loaded again with the same width, here and wherever a message passes: a load that is wider than the stores
//! before it waits until these are in the cache, behind those that MPI has made to memory that the other rank is looking at. That
//! costs as much as half a message.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use mpi_sys as ffi;

/// A message that a receive took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutOff {
    pub(crate) comm: ffi::MPI_Comm,
    /// Whether the program left open whom it receives from, or which tag.
    pub(crate) is_open: bool,
    /// The sender's rank in the communicator.
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    pub(crate) bytes: usize,
}

/// [`PutOff`] in words that are stored and loaded one by one.
struct Shelf {
    is_full: AtomicBool,
    comm: UnsafeCell<Option<ffi::MPI_Comm>>,
    is_open: AtomicBool,
    source: AtomicI32,
    tag: AtomicI32,
    bytes: AtomicUsize,
}

// SAFETY: the cell is reached only in calls of MPI, by this module's functions, which are called only where MPI was told that no two
// threads are in such calls at once (see `slot`).
unsafe impl Sync for Shelf {}

static SHELF: Shelf = Shelf {
    is_full: AtomicBool::new(false),
    comm: UnsafeCell::new(None),
    is_open: AtomicBool::new(false),
    source: AtomicI32::new(0),
    tag: AtomicI32::new(0),
    bytes: AtomicUsize::new(0),
};

/// Whether a receive is put off.
#[inline]
pub(super) fn is_there() -> bool {
    SHELF.is_full.load(Ordering::Relaxed)
}

/// Puts a receive off. To be called only where the session is alone and not entered, and none is there.
#[inline]
pub(super) fn put(taken: PutOff) {
    // SAFETY: see `Shelf`; nobody has a reference.
    unsafe { *SHELF.comm.get() = Some(taken.comm) };
    SHELF.is_open.store(taken.is_open, Ordering::Relaxed);
    SHELF.source.store(taken.source, Ordering::Relaxed);
    SHELF.tag.store(taken.tag, Ordering::Relaxed);
    SHELF.bytes.store(taken.bytes, Ordering::Relaxed);
    SHELF.is_full.store(true, Ordering::Relaxed);
}

/// The receive that is put off, which is so no longer. To be called only by who is in the session alone.
#[inline]
pub(crate) fn take() -> Option<PutOff> {
    if !is_there() {
        return None;
    }
    SHELF.is_full.store(false, Ordering::Relaxed);
    // SAFETY: see `Shelf`; nobody has a reference.
    let comm = unsafe { *SHELF.comm.get() }?;
    Some(PutOff {
        comm,
        is_open: SHELF.is_open.load(Ordering::Relaxed),
        source: SHELF.source.load(Ordering::Relaxed),
        tag: SHELF.tag.load(Ordering::Relaxed),
        bytes: SHELF.bytes.load(Ordering::Relaxed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_off_is_taken_once_and_as_it_was() {
        // SAFETY: a constant of the shim.
        let comm = unsafe { ffi::RSMPI_COMM_WORLD };
        assert!(!is_there() && take().is_none());
        put(PutOff { comm, is_open: true, source: 3, tag: -7, bytes: 1 << 40 });
        assert!(is_there());
        let taken = take().unwrap();
        assert!(taken.comm == comm && taken.is_open);
        assert_eq!((taken.source, taken.tag, taken.bytes), (3, -7, 1 << 40));
        assert!(!is_there() && take().is_none());
    }
}

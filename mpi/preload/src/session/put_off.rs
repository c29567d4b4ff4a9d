//! What calls have done, and what there is still to be done about it when the session is entered next.
//!
//! A rank that has received often answers at once, and whoever waits for the answer waits for all that stands between the two. So a
//! blocking receive only leaves here what it took, one that was begun whom it may take a message from, and a wait which requests have
//! ended; [`enter`](super::enter) sees to it in this order, before anything else. A send and a wait do so only if that is [due](is_due): a
//! receive whose beginning and end are both here costs next to nothing. Only where threads don't call at once.
//!
//! What was just stored is loaded again with the same width, here and wherever a message passes: a load that is wider than the stores
//! before it waits until these are in the cache, behind those that MPI has made to memory that the other rank is looking at. That
//! costs as much as half a message.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};

use counterfoil_mpi::matching::Taken;
use mpi_sys as ffi;

/// So many are put off at most.
const MAX: usize = 32;
/// With so many, and with so many bytes in one of them, it is time to see to them.
const DUE: usize = MAX / 2;
const DUE_BYTES: usize = 32 << 10;

/// What a call has done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PutOff {
    /// It took a message that was sent to the communicator. `is_open`: the program left open whom it receives from, or which tag.
    Received { comm: ffi::MPI_Comm, is_open: bool, taken: Taken },
    /// It posted a receive.
    Posted { comm: ffi::MPI_Comm, source: c_int, tag: c_int, request: ffi::MPI_Request },
    /// It found that a request has ended; if that is a receive, it took this.
    Ended { request: ffi::MPI_Request, taken: Taken },
}

const RECEIVED: u8 = 0;
const RECEIVED_OPEN: u8 = 1;
const POSTED: u8 = 2;
const ENDED: u8 = 3;
/// It is seen to.
const DONE: u8 = 4;

/// [`PutOff`] in words that are stored and loaded one by one.
struct Place {
    kind: AtomicU8,
    comm: UnsafeCell<MaybeUninit<ffi::MPI_Comm>>,
    request: UnsafeCell<MaybeUninit<ffi::MPI_Request>>,
    source: AtomicI32,
    tag: AtomicI32,
    bytes: AtomicUsize,
}

/// What is put off, first come first.
struct Shelf {
    /// How many of the places are seen to.
    begin: AtomicUsize,
    /// How many of the places are used.
    end: AtomicUsize,
    /// In how many of them a receive was posted.
    posted: AtomicUsize,
    is_due: AtomicBool,
    places: [Place; MAX],
}

// SAFETY: the cells are reached only in calls of MPI, by this module's functions, which are called only where MPI was told that no two
// threads are in such calls at once (see `slot`).
unsafe impl Sync for Shelf {}

static SHELF: Shelf = Shelf {
    begin: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
    posted: AtomicUsize::new(0),
    is_due: AtomicBool::new(false),
    places: [const {
        Place {
            kind: AtomicU8::new(0),
            comm: UnsafeCell::new(MaybeUninit::uninit()),
            request: UnsafeCell::new(MaybeUninit::uninit()),
            source: AtomicI32::new(0),
            tag: AtomicI32::new(0),
            bytes: AtomicUsize::new(0),
        }
    }; MAX],
};

/// Whether something is put off.
#[inline]
pub(super) fn is_there() -> bool {
    SHELF.end.load(Ordering::Relaxed) != 0
}

/// Whether there is no room for more.
#[inline]
pub(super) fn is_full() -> bool {
    SHELF.end.load(Ordering::Relaxed) == MAX
}

/// Whether it is time to see to it.
#[inline]
pub(super) fn is_due() -> bool {
    SHELF.is_due.load(Ordering::Relaxed)
}

/// It is time for the next call that asks after requests to enter the session, also where nothing is put off.
pub(super) fn be_due() {
    SHELF.is_due.store(true, Ordering::Relaxed);
}

/// It was entered.
pub(super) fn be_no_longer_due() {
    SHELF.is_due.store(false, Ordering::Relaxed);
}

/// Whether the beginning of a receive is put off.
#[inline]
pub(crate) fn has_posted() -> bool {
    SHELF.posted.load(Ordering::Relaxed) > 0
}

/// Puts something off. To be called only where the session is alone and not entered, and there is room.
#[inline]
pub(super) fn put(put_off: PutOff) {
    let at = SHELF.end.load(Ordering::Relaxed);
    let Some(place) = SHELF.places.get(at) else { return };
    let (kind, source, tag, bytes) = match put_off {
        PutOff::Received { comm, is_open, taken } => {
            // SAFETY: see `Shelf`; nobody has a reference.
            unsafe { (*place.comm.get()).write(comm) };
            (if is_open { RECEIVED_OPEN } else { RECEIVED }, taken.source, taken.tag, taken.bytes)
        }
        PutOff::Posted { comm, source, tag, request } => {
            // SAFETY: as above.
            unsafe {
                (*place.comm.get()).write(comm);
                (*place.request.get()).write(request);
            }
            SHELF.posted.store(SHELF.posted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            (POSTED, source, tag, 0)
        }
        PutOff::Ended { request, taken } => {
            // SAFETY: as above.
            unsafe { (*place.request.get()).write(request) };
            (ENDED, taken.source, taken.tag, taken.bytes)
        }
    };
    place.kind.store(kind, Ordering::Relaxed);
    place.source.store(source, Ordering::Relaxed);
    place.tag.store(tag, Ordering::Relaxed);
    place.bytes.store(bytes, Ordering::Relaxed);
    SHELF.end.store(at + 1, Ordering::Relaxed);
    if at + 1 >= DUE || bytes >= DUE_BYTES {
        SHELF.is_due.store(true, Ordering::Relaxed);
    }
}

/// Whether all that is put off is what one receive took whose source and tag were given, and that isn't [due](is_due).
#[inline(always)]
pub(super) fn is_plain() -> bool {
    // Where one is used, and none is taken, it is the first.
    let is_one = SHELF.end.load(Ordering::Relaxed) == 1 && SHELF.begin.load(Ordering::Relaxed) == 0;
    is_one && !is_due() && SHELF.places[0].kind.load(Ordering::Relaxed) == RECEIVED
}

/// What it took, if that [is all](is_plain), which is put off no longer. To be called only by who is in the session alone.
#[inline(always)]
pub(super) fn take_plain() -> Option<(ffi::MPI_Comm, Taken)> {
    if !is_plain() {
        return None;
    }
    SHELF.end.store(0, Ordering::Relaxed);
    let place = &SHELF.places[0];
    // SAFETY: see `Shelf`; `put` has written the communicator of what is of this kind.
    Some((unsafe { (*place.comm.get()).assume_init() }, place.taken()))
}

/// What was put off first, which is so no longer. To be called only by who is in the session alone.
#[inline]
pub(crate) fn take() -> Option<PutOff> {
    loop {
        let (at, end) = (SHELF.begin.load(Ordering::Relaxed), SHELF.end.load(Ordering::Relaxed));
        if at == end {
            SHELF.begin.store(0, Ordering::Relaxed);
            SHELF.end.store(0, Ordering::Relaxed);
            SHELF.is_due.store(false, Ordering::Relaxed);
            return None;
        }
        SHELF.begin.store(at + 1, Ordering::Relaxed);
        let place = SHELF.places.get(at)?;
        let kind = place.kind.load(Ordering::Relaxed);
        if kind != DONE {
            return Some(place.get(kind));
        }
    }
}

/// What a request took whose beginning was taken last, if its end is put off, too: that is so no longer. To be called only by who is in
/// the session alone.
#[inline]
pub(crate) fn take_end(request: ffi::MPI_Request) -> Option<Taken> {
    let (at, end) = (SHELF.begin.load(Ordering::Relaxed), SHELF.end.load(Ordering::Relaxed));
    let place = SHELF.places.get(at..end)?.iter().find(|place| place.is_end_of(request))?;
    place.kind.store(DONE, Ordering::Relaxed);
    Some(place.taken())
}

impl Place {
    #[inline]
    fn taken(&self) -> Taken {
        let (source, tag) = (self.source.load(Ordering::Relaxed), self.tag.load(Ordering::Relaxed));
        Taken { source, tag, bytes: self.bytes.load(Ordering::Relaxed) }
    }

    #[inline]
    fn is_end_of(&self, request: ffi::MPI_Request) -> bool {
        // SAFETY: see `Shelf`; nobody has a reference, and `put` has written the request of what is of this kind.
        self.kind.load(Ordering::Relaxed) == ENDED && unsafe { (*self.request.get()).assume_init() } == request
    }

    #[inline]
    fn get(&self, kind: u8) -> PutOff {
        let taken = self.taken();
        // SAFETY: see `Shelf`; nobody has a reference.
        let (comm, request) = unsafe { (&*self.comm.get(), &*self.request.get()) };
        // SAFETY: `put` has written what is of this kind.
        unsafe {
            match kind {
                POSTED => {
                    SHELF.posted.store(SHELF.posted.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
                    let (comm, request) = (comm.assume_init(), request.assume_init());
                    PutOff::Posted { comm, source: taken.source, tag: taken.tag, request }
                }
                ENDED => PutOff::Ended { request: request.assume_init(), taken },
                kind => PutOff::Received { comm: comm.assume_init(), is_open: kind == RECEIVED_OPEN, taken },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// There is one shelf, for one thread at a time.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn what_was_put_off_is_taken_once_in_order_and_as_it_was() {
        let _alone = alone();
        // SAFETY: constants of the shim.
        let (comm, request) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL) };
        let message = Taken { source: 3, tag: -7, bytes: 1 << 40 };
        for round in 1..=MAX / 4 {
            assert!(take().is_none() && !is_there());
            for number in 0..round as c_int {
                put(PutOff::Received { comm, is_open: true, taken: message });
                put(PutOff::Posted { comm, source: number, tag: 5, request });
                put(PutOff::Ended { request, taken: Taken { tag: number, ..message } });
                put(PutOff::Received { comm, is_open: false, taken: message });
            }
            assert_eq!((is_there(), is_full(), has_posted()), (true, round == MAX / 4, true));
            for number in 0..round as c_int {
                let is_it = |open| matches!(take(), Some(PutOff::Received { comm: of, is_open, taken }) if of == comm && is_open == open && taken == message);
                assert!(is_it(true));
                assert!(
                    matches!(take(), Some(PutOff::Posted { comm: of, source, tag: 5, .. }) if of == comm && source == number)
                );
                assert!(
                    matches!(take(), Some(PutOff::Ended { taken, .. }) if taken == Taken { tag: number, ..message })
                );
                assert!(is_it(false));
            }
        }
    }

    #[test]
    fn a_receive_that_is_all_there_is_is_taken_at_once() {
        let _alone = alone();
        // SAFETY: constants of the shim.
        let (comm, request) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL) };
        let taken = Taken { source: 2, tag: 9, bytes: 100 };
        let received = |is_open, taken| PutOff::Received { comm, is_open, taken };
        assert!(take_plain().is_none());
        put(received(false, taken));
        assert!(take_plain() == Some((comm, taken)) && !is_there());
        // Not if its source or tag was open, if it is long, if something else was put off, or another one.
        let posted = PutOff::Posted { comm, source: 1, tag: 4, request };
        let long = Taken { bytes: DUE_BYTES, ..taken };
        for others in [&[received(true, taken)][..], &[received(false, long)], &[posted], &[received(false, taken); 2]]
        {
            others.iter().copied().for_each(put);
            assert!(take_plain().is_none() && is_there());
            // Nor if it is the last one of several.
            while take().is_some() {
                assert!(take_plain().is_none());
            }
        }
    }

    #[test]
    fn the_end_of_a_request_is_found_behind_its_beginning_and_taken_once() {
        let _alone = alone();
        // SAFETY: constants of the shim; only handles that are compared.
        let (comm, null, other) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL, std::mem::zeroed()) };
        let taken = |tag| Taken { source: 1, tag, bytes: 8 };
        assert!(null != other);
        put(PutOff::Posted { comm, source: 1, tag: 4, request: null });
        put(PutOff::Ended { request: other, taken: taken(5) });
        put(PutOff::Ended { request: null, taken: taken(4) });
        put(PutOff::Ended { request: null, taken: taken(6) });
        assert!(matches!(take(), Some(PutOff::Posted { tag: 4, .. })) && !has_posted());
        assert_eq!(take_end(null), Some(taken(4)));
        assert!(matches!(take(), Some(PutOff::Ended { taken: at, .. }) if at == taken(5)));
        assert!(matches!(take(), Some(PutOff::Ended { taken: at, .. }) if at == taken(6)));
        assert!(take_end(null).is_none() && take().is_none() && !is_there());
        assert!(!is_due());
        put(PutOff::Received { comm, is_open: false, taken: Taken { bytes: DUE_BYTES, ..taken(7) } });
        assert!(is_due() && take().is_some() && take().is_none() && !is_due());
    }
}

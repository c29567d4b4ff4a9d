//! Call events handled at the next entry into the session.
//!
//! A rank often answers a received message at once, and the other rank waits for everything between the two. So a
//! blocking receive leaves here only the message taken, a posted receive what it may take, and a wait the ended
//! requests; [`enter`](crate::global::enter) handles these events in order, before anything else. A send and a wait do
//! so only if they are [due](is_due): a receive with both its post and its end here costs next to nothing. Not used
//! where threads call MPI at the same time.
//!
//! Recent stores are loaded again with the same width, here and on each message's path: a load wider than the stores
//! before it waits until these are in the cache, after MPI's stores to memory polled by the other rank. That costs half
//! as much as a message.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};

use counterfoil_mpi_logger::Arrival;
use mpi_sys as ffi;

/// Most events in the queue.
const MAX: usize = 32;
/// Numbers of events, and of bytes in one of them, at which they are due.
const DUE: usize = MAX / 2;
const DUE_BYTES: usize = 32 << 10;

/// An event of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A receive has taken a message; `is_wildcard` if its source or tag was a wildcard.
    Received { comm: ffi::MPI_Comm, is_wildcard: bool, arrival: Arrival },
    /// A receive was posted.
    Posted { comm: ffi::MPI_Comm, source: c_int, tag: c_int, request: ffi::MPI_Request },
    /// A request has ended; a receive's, with this message.
    Ended { request: ffi::MPI_Request, arrival: Arrival },
}

const RECEIVED: u8 = 0;
const RECEIVED_WILDCARD: u8 = 1;
const POSTED: u8 = 2;
const ENDED: u8 = 3;
/// Handled already.
const DONE: u8 = 4;

/// An [`Event`] in words stored and loaded one by one.
struct Entry {
    kind: AtomicU8,
    comm: UnsafeCell<MaybeUninit<ffi::MPI_Comm>>,
    request: UnsafeCell<MaybeUninit<ffi::MPI_Request>>,
    source: AtomicI32,
    tag: AtomicI32,
    bytes: AtomicUsize,
}

/// The events, in order.
struct Queue {
    /// Number of entries handled.
    begin: AtomicUsize,
    /// Number of entries used.
    end: AtomicUsize,
    /// Number of entries with a posted receive.
    posted: AtomicUsize,
    is_due: AtomicBool,
    entries: [Entry; MAX],
}

// SAFETY: the cells are reached only in MPI calls, by this module's functions, which are called only where the program
// has promised MPI never to have two threads in such calls at the same time (see `global`).
unsafe impl Sync for Queue {}

static QUEUE: Queue = Queue {
    begin: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
    posted: AtomicUsize::new(0),
    is_due: AtomicBool::new(false),
    entries: [const {
        Entry {
            kind: AtomicU8::new(0),
            comm: UnsafeCell::new(MaybeUninit::uninit()),
            request: UnsafeCell::new(MaybeUninit::uninit()),
            source: AtomicI32::new(0),
            tag: AtomicI32::new(0),
            bytes: AtomicUsize::new(0),
        }
    }; MAX],
};

/// Returns `true` if there are no events.
#[inline]
pub(crate) fn is_empty() -> bool {
    QUEUE.end.load(Ordering::Relaxed) == 0
}

/// Returns `true` if there is no space for another event.
#[inline]
pub(crate) fn is_full() -> bool {
    QUEUE.end.load(Ordering::Relaxed) == MAX
}

/// Returns `true` if the events are due to be handled.
#[inline]
pub(crate) fn is_due() -> bool {
    QUEUE.is_due.load(Ordering::Relaxed)
}

/// Makes the next test or wait for requests enter the session, even without events.
pub(crate) fn set_due() {
    QUEUE.is_due.store(true, Ordering::Relaxed);
}

/// Clears the due flag on entry into the session.
pub(crate) fn clear_due() {
    QUEUE.is_due.store(false, Ordering::Relaxed);
}

/// Returns the number of posted receives among the events.
#[inline]
pub(crate) fn posted() -> usize {
    QUEUE.posted.load(Ordering::Relaxed)
}

/// Returns `true` if a posted receive is among the events.
#[inline]
pub(crate) fn has_posted() -> bool {
    posted() > 0
}

/// Appends an event.
///
/// To be called only where threads don't call MPI at the same time, the session is not entered, and there is space.
#[inline]
pub(crate) fn put(event: Event) {
    let at = QUEUE.end.load(Ordering::Relaxed);
    let Some(entry) = QUEUE.entries.get(at) else { return };
    let (kind, source, tag, bytes) = match event {
        Event::Received { comm, is_wildcard, arrival } => {
            // SAFETY: see `Queue`; there is no reference.
            unsafe { (*entry.comm.get()).write(comm) };
            (if is_wildcard { RECEIVED_WILDCARD } else { RECEIVED }, arrival.source, arrival.tag, arrival.bytes)
        }
        Event::Posted { comm, source, tag, request } => {
            // SAFETY: as above.
            unsafe {
                (*entry.comm.get()).write(comm);
                (*entry.request.get()).write(request);
            }
            QUEUE.posted.store(QUEUE.posted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            (POSTED, source, tag, 0)
        }
        Event::Ended { request, arrival } => {
            // SAFETY: as above.
            unsafe { (*entry.request.get()).write(request) };
            (ENDED, arrival.source, arrival.tag, arrival.bytes)
        }
    };
    entry.kind.store(kind, Ordering::Relaxed);
    entry.source.store(source, Ordering::Relaxed);
    entry.tag.store(tag, Ordering::Relaxed);
    entry.bytes.store(bytes, Ordering::Relaxed);
    QUEUE.end.store(at + 1, Ordering::Relaxed);
    if at + 1 >= DUE || bytes >= DUE_BYTES {
        QUEUE.is_due.store(true, Ordering::Relaxed);
    }
}

/// Returns `true` if the only event is a message received without wildcards, and it isn't [due](is_due).
#[inline(always)]
pub(crate) fn is_plain() -> bool {
    // Where one is used, and none is arrival, it is the first.
    let is_one = QUEUE.end.load(Ordering::Relaxed) == 1 && QUEUE.begin.load(Ordering::Relaxed) == 0;
    is_one && !is_due() && QUEUE.entries[0].kind.load(Ordering::Relaxed) == RECEIVED
}

/// Takes the message if it [is the only event](is_plain).
///
/// To be called only in the session.
#[inline(always)]
pub(crate) fn take_plain() -> Option<(ffi::MPI_Comm, Arrival)> {
    if !is_plain() {
        return None;
    }
    QUEUE.end.store(0, Ordering::Relaxed);
    let entry = &QUEUE.entries[0];
    // SAFETY: see `Queue`; `put` has written the communicator of this kind.
    Some((unsafe { (*entry.comm.get()).assume_init() }, entry.arrival()))
}

/// Takes the first event.
///
/// To be called only in the session.
#[inline]
pub(crate) fn take() -> Option<Event> {
    loop {
        let (at, end) = (QUEUE.begin.load(Ordering::Relaxed), QUEUE.end.load(Ordering::Relaxed));
        if at == end {
            QUEUE.begin.store(0, Ordering::Relaxed);
            QUEUE.end.store(0, Ordering::Relaxed);
            QUEUE.is_due.store(false, Ordering::Relaxed);
            return None;
        }
        QUEUE.begin.store(at + 1, Ordering::Relaxed);
        let entry = QUEUE.entries.get(at)?;
        let kind = entry.kind.load(Ordering::Relaxed);
        if kind != DONE {
            return Some(entry.get(kind));
        }
    }
}

/// Takes the end of the request whose post was taken last, if it is queued, and returns its message.
///
/// To be called only in the session.
#[inline]
pub(crate) fn take_end(request: ffi::MPI_Request) -> Option<Arrival> {
    let (at, end) = (QUEUE.begin.load(Ordering::Relaxed), QUEUE.end.load(Ordering::Relaxed));
    let entry = QUEUE.entries.get(at..end)?.iter().find(|entry| entry.is_end_of(request))?;
    entry.kind.store(DONE, Ordering::Relaxed);
    Some(entry.arrival())
}

impl Entry {
    #[inline]
    fn arrival(&self) -> Arrival {
        let (source, tag) = (self.source.load(Ordering::Relaxed), self.tag.load(Ordering::Relaxed));
        Arrival { source, tag, bytes: self.bytes.load(Ordering::Relaxed) }
    }

    #[inline]
    fn is_end_of(&self, request: ffi::MPI_Request) -> bool {
        // SAFETY: see `Queue`; there is no reference, and `put` has written the request of this kind.
        self.kind.load(Ordering::Relaxed) == ENDED && unsafe { (*self.request.get()).assume_init() } == request
    }

    #[inline]
    fn get(&self, kind: u8) -> Event {
        let arrival = self.arrival();
        // SAFETY: see `Queue`; there is no reference.
        let (comm, request) = unsafe { (&*self.comm.get(), &*self.request.get()) };
        // SAFETY: `put` has written the fields of this kind.
        unsafe {
            match kind {
                POSTED => {
                    QUEUE.posted.store(QUEUE.posted.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
                    let (comm, request) = (comm.assume_init(), request.assume_init());
                    Event::Posted { comm, source: arrival.source, tag: arrival.tag, request }
                }
                ENDED => Event::Ended { request: request.assume_init(), arrival },
                kind => Event::Received { comm: comm.assume_init(), is_wildcard: kind == RECEIVED_WILDCARD, arrival },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Serialises tests: there is one queue, for one thread at a time.
    fn lock_queue() -> MutexGuard<'static, ()> {
        static QUEUE: Mutex<()> = Mutex::new(());
        QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn events_are_taken_once_in_order_and_unchanged() {
        let _queue = lock_queue();
        // SAFETY: constants of the shim.
        let (comm, request) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL) };
        let message = Arrival { source: 3, tag: -7, bytes: 1 << 40 };
        for round in 1..=MAX / 4 {
            assert!(take().is_none() && is_empty());
            for number in 0..round as c_int {
                put(Event::Received { comm, is_wildcard: true, arrival: message });
                put(Event::Posted { comm, source: number, tag: 5, request });
                put(Event::Ended { request, arrival: Arrival { tag: number, ..message } });
                put(Event::Received { comm, is_wildcard: false, arrival: message });
            }
            assert_eq!((!is_empty(), is_full(), has_posted()), (true, round == MAX / 4, true));
            for number in 0..round as c_int {
                let is_it = |wildcard| matches!(take(), Some(Event::Received { comm: of, is_wildcard, arrival }) if of == comm && is_wildcard == wildcard && arrival == message);
                assert!(is_it(true));
                assert!(
                    matches!(take(), Some(Event::Posted { comm: of, source, tag: 5, .. }) if of == comm && source == number)
                );
                assert!(
                    matches!(take(), Some(Event::Ended { arrival, .. }) if arrival == Arrival { tag: number, ..message })
                );
                assert!(is_it(false));
            }
        }
        assert!(take().is_none() && is_empty());
    }

    #[test]
    fn the_only_receive_is_taken_at_once() {
        let _queue = lock_queue();
        // SAFETY: constants of the shim.
        let (comm, request) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL) };
        let arrival = Arrival { source: 2, tag: 9, bytes: 100 };
        let received = |is_wildcard, arrival| Event::Received { comm, is_wildcard, arrival };
        assert!(take_plain().is_none());
        put(received(false, arrival));
        assert!(take_plain() == Some((comm, arrival)) && is_empty());
        // Not with a wildcard, if it is long, if the event is another, or not the only one.
        let posted = Event::Posted { comm, source: 1, tag: 4, request };
        let long = Arrival { bytes: DUE_BYTES, ..arrival };
        for others in
            [&[received(true, arrival)][..], &[received(false, long)], &[posted], &[received(false, arrival); 2]]
        {
            others.iter().copied().for_each(put);
            assert!(take_plain().is_none() && !is_empty());
            // Nor as the last of several.
            while take().is_some() {
                assert!(take_plain().is_none());
            }
        }
    }

    #[test]
    fn the_end_of_a_request_is_found_after_its_post_and_taken_once() {
        let _queue = lock_queue();
        // SAFETY: constants of the shim; the handles are only compared.
        let (comm, null, other) = unsafe { (ffi::RSMPI_COMM_WORLD, ffi::RSMPI_REQUEST_NULL, std::mem::zeroed()) };
        let arrival = |tag| Arrival { source: 1, tag, bytes: 8 };
        assert!(null != other);
        put(Event::Posted { comm, source: 1, tag: 4, request: null });
        put(Event::Ended { request: other, arrival: arrival(5) });
        put(Event::Ended { request: null, arrival: arrival(4) });
        put(Event::Ended { request: null, arrival: arrival(6) });
        assert!(matches!(take(), Some(Event::Posted { tag: 4, .. })) && !has_posted());
        assert_eq!(take_end(null), Some(arrival(4)));
        assert!(matches!(take(), Some(Event::Ended { arrival: at, .. }) if at == arrival(5)));
        assert!(matches!(take(), Some(Event::Ended { arrival: at, .. }) if at == arrival(6)));
        assert!(take_end(null).is_none() && take().is_none() && is_empty());
        assert!(!is_due());
        put(Event::Received { comm, is_wildcard: false, arrival: Arrival { bytes: DUE_BYTES, ..arrival(7) } });
        assert!(is_due() && take().is_some() && take().is_none() && !is_due());
    }
}

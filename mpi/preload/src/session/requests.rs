//! Requests that something is to be done about when they end.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use mpi_sys as ffi;
use rustc_hash::FxHashMap;

use super::key;
use crate::message::{Collective, Outgoing};
use counterfoil_mpi::matching::Posted;

/// What a request stands for.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// A receive on a communicator.
    Receive(Receiving),
    /// A communicator that is being made.
    Comm {
        /// Where its handle will be.
        at: *mut ffi::MPI_Comm,
        /// The number that it will have.
        number: u32,
    },
    /// A persistent operation.
    Persistent(Persistent),
    /// A send that the program wants to call off.
    CalledOff,
}

// SAFETY: the only pointer is one into the program's memory, which MPI has, too; it is read when the program has waited for the
// request, as MPI writes it.
unsafe impl Send for Pending {}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    /// The communicator's place and number.
    pub(crate) comm: (usize, u32),
    /// Whom it may take a message from; `None` is a wildcard.
    pub(crate) source: Option<c_int>,
    pub(crate) tag: Option<c_int>,
    /// Its turn among the receives of the communicator; `None` while it isn't under way.
    pub(crate) posted: Option<Posted>,
    /// Whether the program left open whom it receives from, or which tag.
    pub(crate) is_open: bool,
    /// Whether it is a partitioned message.
    pub(crate) is_partitioned: bool,
}

/// An operation that can be started again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Persistent {
    pub(crate) what: Repeated,
    pub(crate) is_active: bool,
}

/// Which operation it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Repeated {
    Send(Outgoing),
    SendPartitioned(Outgoing),
    Receive(Receiving),
    Collective(Collective),
}

/// The requests that are known.
#[derive(Debug)]
pub(crate) struct Requests {
    known: FxHashMap<usize, Pending>,
}

/// How many requests are known: read where nobody is in the session.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// How many of them are something else than receives.
static OTHERS: AtomicUsize = AtomicUsize::new(0);

/// Whether a request is known.
#[inline]
pub(crate) fn are_there() -> bool {
    KNOWN.load(Ordering::Relaxed) > 0
}

/// Whether nothing has to be done when a known request ends but to count what it took.
#[inline]
pub(crate) fn are_receives() -> bool {
    OTHERS.load(Ordering::Relaxed) == 0
}

/// So many other requests than receives, where `pending` is one of them.
fn others(pending: Option<&Pending>) -> usize {
    usize::from(pending.is_some_and(|pending| !matches!(pending, Pending::Receive(_))))
}

impl Requests {
    /// None. There is one of these at a time.
    pub(crate) fn new() -> Requests {
        KNOWN.store(0, Ordering::Relaxed);
        OTHERS.store(0, Ordering::Relaxed);
        Requests { known: FxHashMap::default() }
    }

    /// A request begins.
    pub(crate) fn add(&mut self, request: ffi::MPI_Request, pending: Pending) {
        if !is_null(request) {
            let now = others(Some(&pending));
            let before = self.known.insert(key(request), pending);
            self.count(now, others(before.as_ref()));
        }
    }

    /// So many others begin, and so many end.
    #[inline]
    fn count(&self, begin: usize, end: usize) {
        KNOWN.store(self.known.len(), Ordering::Relaxed);
        if begin != end {
            OTHERS.store(OTHERS.load(Ordering::Relaxed) + begin - end, Ordering::Relaxed);
        }
    }

    fn remove(&mut self, request: usize) -> Option<Pending> {
        let pending = self.known.remove(&request)?;
        self.count(0, others(Some(&pending)));
        Some(pending)
    }

    /// From here on the end of each request is looked at: it may have been called off.
    pub(crate) fn may_be_called_off(&self) {
        self.count(1, 0);
    }

    /// What a request stands for.
    pub(crate) fn get_mut(&mut self, request: ffi::MPI_Request) -> Option<&mut Pending> {
        self.known.get_mut(&key(request))
    }

    /// A request has ended: says what it stood for. A persistent one stays, inactive.
    #[inline]
    pub(crate) fn end(&mut self, request: ffi::MPI_Request) -> Option<Pending> {
        let pending = self.remove(key(request))?;
        let Pending::Persistent(persistent) = pending else { return Some(pending) };
        let what = persistent.what;
        self.add(request, Pending::Persistent(Persistent { what, is_active: false }));
        // An inactive one ends at once, and nothing has happened.
        persistent.is_active.then_some(pending)
    }

    /// A request is given up.
    pub(crate) fn forget(&mut self, request: ffi::MPI_Request) -> Option<Pending> {
        self.remove(key(request))
    }
}

/// Whether there is no request.
#[inline]
pub(crate) fn is_null(request: ffi::MPI_Request) -> bool {
    // SAFETY: a constant of the shim.
    request == unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// The handles of an array.
///
/// # Safety
/// `requests` has `count`, and nobody writes them while the slice is used.
pub(crate) unsafe fn handles<'a>(count: c_int, requests: *const ffi::MPI_Request) -> &'a [ffi::MPI_Request] {
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 || requests.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(requests, count) }
}

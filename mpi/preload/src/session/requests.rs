//! Requests tracked by the session until they end.

use std::collections::HashMap;
use std::ffi::c_int;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mpi_sys as ffi;
use rustc_hash::FxHashSet;

use super::Piece;
use super::mpi_call::{key, request_of};
use crate::Operation;
use counterfoil_mpi_core::arguments::Outgoing;
use counterfoil_mpi_logger::{CommId, Determinant, PostedReceive, Stream};

/// A request's operation.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// A receive on a communicator.
    Receive(Receiving),
    /// A communicator being made.
    Comm {
        /// Address of its handle.
        at: *mut ffi::MPI_Comm,
        /// Its number.
        number: u32,
    },
    /// A persistent operation.
    Persistent(Persistent),
    /// A receive [counted](super::Session::count_early) before the program waited for it, and the outcome to record
    /// then.
    Counted(Option<Determinant>),
    /// A send being cancelled by the program.
    CancelledSend,
    /// A generalized request, the program's own.
    Generalized,
}

// SAFETY: the only pointer is one into the program's memory, which MPI has, too. It is read when the program has waited
// for the request; MPI has written it then.
unsafe impl Send for Pending {}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiving {
    pub(crate) comm: CommId,
    /// Source; `None` is a wildcard.
    pub(crate) source: Option<c_int>,
    /// Tag; `None` is a wildcard.
    pub(crate) tag: Option<c_int>,
    /// Its position in posting order; `None` while it isn't pending.
    pub(crate) posted: Option<PostedReceive>,
    /// True if the program gave a wildcard, even where its source and tag are known by now.
    pub(crate) is_wildcard: bool,
}

/// A persistent operation.
#[derive(Clone, Debug)]
pub(crate) struct Persistent {
    pub(crate) kind: PersistentKind,
    pub(crate) is_active: bool,
}

/// A persistent collective operation.
#[derive(Debug)]
pub(crate) struct PersistentCollective {
    pub(crate) operation: Operation,
    pub(crate) comm: ffi::MPI_Comm,
    /// This rank's contribution, with datatypes owned by the library; `None` if it makes none.
    pub(crate) pieces: Option<Vec<Piece>>,
}

/// Kind of a persistent operation, whose messages have datatypes owned by the library.
#[derive(Clone, Debug)]
pub(crate) enum PersistentKind {
    Send(Outgoing),
    #[cfg_attr(not(wraps = "send_partitioned"), expect(dead_code, reason = "this MPI has no partitioned sends"))]
    SendPartitioned(Outgoing, Stream),
    Receive(Receiving),
    #[cfg_attr(not(wraps = "receive_partitioned"), expect(dead_code, reason = "this MPI has no partitioned receives"))]
    ReceivePartitioned(Stream),
    #[cfg_attr(
        not(wraps = "collective_persistent"),
        expect(dead_code, reason = "this MPI has no persistent collectives")
    )]
    Collective(Arc<PersistentCollective>),
}

/// Hashes a request's key.
///
/// MPI makes requests in blocks of memory, so requests of successive operations are neighbours, and stay so in the
/// table. With hashes that scatter them, each access to a large table waits for memory.
#[derive(Default)]
struct HandleHasher(u64);

impl HandleHasher {
    /// Logarithm of the alignment of Open MPI's requests.
    const ALIGN: u32 = 6;
    /// Odd, with about as many ones as zeros.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    /// Upper bits, which the table compares before keys.
    const TAG: u64 = 0x7F << 57;
}

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize((self.0 as usize).rotate_left(8) ^ usize::from(*byte)));
    }

    #[inline]
    fn write_usize(&mut self, key: usize) {
        let key = key as u64;
        // Handles that are numbers, not addresses, differ in the lower bits.
        let (block, rest) = (key >> Self::ALIGN, key & ((1 << Self::ALIGN) - 1));
        let place = block.wrapping_add(rest.wrapping_mul(Self::SPREAD));
        self.0 = place & !Self::TAG | block.wrapping_mul(Self::SPREAD) & Self::TAG;
    }
}

/// Pending requests.
#[derive(Debug)]
pub(crate) struct Requests {
    known: HashMap<usize, Pending, BuildHasherDefault<HandleHasher>>,
    /// Receives being cancelled by the program.
    cancelled: FxHashSet<usize>,
    /// Number of known requests for communicators being made.
    making: usize,
}

/// Number of known requests, read outside the session.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// Number of them that aren't receives, or are being cancelled by the program.
static OTHERS: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of known requests.
#[inline]
pub(crate) fn known() -> usize {
    KNOWN.load(Ordering::Relaxed)
}

/// Returns `true` if any request is known.
#[inline]
pub(crate) fn are_any() -> bool {
    known() > 0
}

/// Returns `true` if all known requests are uncancelled receives, so that only messages have to be counted.
#[inline]
pub(crate) fn are_receives() -> bool {
    OTHERS.load(Ordering::Relaxed) == 0
}

/// Returns 1 for the request of a communicator being made, else 0.
fn making(pending: Option<&Pending>) -> usize {
    usize::from(matches!(pending, Some(Pending::Comm { .. })))
}

/// Returns 1 for a request that isn't a receive's, else 0.
fn others(pending: Option<&Pending>) -> usize {
    usize::from(pending.is_some_and(|pending| !matches!(pending, Pending::Receive(_))))
}

impl Requests {
    /// Returns an empty table; there is one at a time.
    pub(crate) fn new() -> Requests {
        KNOWN.store(0, Ordering::Relaxed);
        OTHERS.store(0, Ordering::Relaxed);
        Requests { known: HashMap::default(), cancelled: FxHashSet::default(), making: 0 }
    }

    /// Adds a new request.
    pub(crate) fn add(&mut self, request: ffi::MPI_Request, pending: Pending) {
        if !is_null(request) {
            let now = others(Some(&pending));
            self.making += making(Some(&pending));
            let before = self.known.insert(key(request), pending);
            self.making -= making(before.as_ref());
            let ended = others(before.as_ref()) + self.forget_cancelled(key(request));
            self.count(now, ended);
        }
    }

    /// Counts requests that aren't receives: new and ended ones.
    #[inline]
    fn count(&self, begin: usize, end: usize) {
        KNOWN.store(self.known.len(), Ordering::Relaxed);
        if begin != end {
            OTHERS.store(OTHERS.load(Ordering::Relaxed) + begin - end, Ordering::Relaxed);
        }
    }

    fn remove(&mut self, request: usize) -> Option<Pending> {
        let pending = self.known.remove(&request)?;
        self.making -= making(Some(&pending));
        let ended = others(Some(&pending)) + self.forget_cancelled(request);
        self.count(0, ended);
        Some(pending)
    }

    /// Returns 1 for an ended receive that the program has cancelled, else 0.
    #[inline]
    fn forget_cancelled(&mut self, request: usize) -> usize {
        usize::from(!self.cancelled.is_empty() && self.cancelled.remove(&request))
    }

    /// Returns `true` while a communicator is being made by a non-blocking call.
    ///
    /// If a rank makes progress between two such calls, Open MPI 5.0.11 may let each wait for another one for ever
    /// (docs/book/src/reference/mpis.md).
    pub(crate) fn are_making_comms(&self) -> bool {
        self.making > 0
    }

    /// Returns the uncounted receives, in posting order.
    pub(crate) fn uncounted_receives(&self) -> Vec<(ffi::MPI_Request, Receiving)> {
        let receiving = |pending: &Pending| match pending {
            Pending::Receive(receiving) => Some(*receiving),
            // A wildcard's outcome is recorded at its end, for which this kind has no place.
            Pending::Persistent(Persistent { kind: PersistentKind::Receive(receiving), is_active: true }) => {
                Some(*receiving).filter(|receiving| !receiving.is_wildcard)
            }
            _ => None,
        };
        let of = |(key, pending): (&usize, &Pending)| {
            // SAFETY: the key of a request.
            Some((unsafe { request_of(*key) }, receiving(pending).filter(|receiving| receiving.posted.is_some())?))
        };
        let mut receives: Vec<_> = self.known.iter().filter_map(of).collect();
        receives.sort_unstable_by_key(|(_, receiving)| receiving.posted);
        receives
    }

    /// Marks a receive's message as counted, so that its end only records the outcome.
    pub(crate) fn set_counted(&mut self, request: ffi::MPI_Request, outcome: Option<Determinant>) {
        match self.get_mut(request) {
            Some(Pending::Persistent(Persistent { kind: PersistentKind::Receive(receiving), .. })) => {
                receiving.posted = None;
            }
            Some(Pending::Receive(_)) => self.add(request, Pending::Counted(outcome)),
            _ => {}
        }
    }

    /// Marks a request as being cancelled by the program.
    ///
    /// Until it ends, every request's end is examined. An unknown one is a send.
    pub(crate) fn cancel(&mut self, request: ffi::MPI_Request) {
        match self.known.get(&key(request)) {
            None => self.add(request, Pending::CancelledSend),
            Some(Pending::Receive(_)) => {
                let is_new = self.cancelled.insert(key(request));
                self.count(usize::from(is_new), 0);
            }
            Some(_) => {}
        }
    }

    /// Returns a request's operation.
    pub(crate) fn get_mut(&mut self, request: ffi::MPI_Request) -> Option<&mut Pending> {
        self.known.get_mut(&key(request))
    }

    /// Ends a request and returns its operation.
    ///
    /// A persistent one stays, inactive.
    #[inline]
    pub(crate) fn end(&mut self, request: ffi::MPI_Request) -> Option<Pending> {
        let pending = self.remove(key(request))?;
        let Pending::Persistent(persistent) = pending else { return Some(pending) };
        let kind = persistent.kind.clone();
        self.add(request, Pending::Persistent(Persistent { kind, is_active: false }));
        // A wait for an inactive one returns at once, and nothing has happened.
        persistent.is_active.then_some(Pending::Persistent(persistent))
    }

    /// Removes a request freed by the program.
    pub(crate) fn forget(&mut self, request: ffi::MPI_Request) -> Option<Pending> {
        self.remove(key(request))
    }
}

/// Returns `true` for the null request.
#[inline]
pub(crate) fn is_null(request: ffi::MPI_Request) -> bool {
    // SAFETY: a constant of the shim.
    request == unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// Returns an array's handles.
///
/// # Safety
/// `requests` has `count` handles, not written while the slice is used.
pub(crate) unsafe fn handles<'a>(count: c_int, requests: *const ffi::MPI_Request) -> &'a [ffi::MPI_Request] {
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 || requests.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(requests, count) }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    fn receive() -> Pending {
        let comm = CommId::NONE;
        Pending::Receive(Receiving { comm, source: Some(0), tag: Some(0), posted: None, is_wildcard: false })
    }

    #[test]
    fn handles_at_any_distance_are_spread_over_the_table_and_neighbours_stay_so() {
        const KEYS: u64 = 4096;
        let hash = |key: u64| BuildHasherDefault::<HandleHasher>::default().hash_one(key as usize);
        // Consecutive numbers, and requests of 64 bytes to 4 KiB, in a half-full table, whose places are examined
        // sixteen at a time.
        for distance in [1, 4, 64, 448, 576, 640, 1024, 4096] {
            let mut groups = vec![0; 2 * KEYS as usize / 16];
            (0..KEYS).for_each(|n| groups[(hash(0x7f30_1234_5000 + n * distance) % (2 * KEYS) / 16) as usize] += 1);
            assert!(groups.iter().all(|keys| *keys <= 32), "{distance}: {groups:?}");
            if distance.is_multiple_of(64) {
                assert_eq!(hash((1 << 30) + distance) << 7, (hash(1 << 30) + distance / 64) << 7);
            }
        }
        let tags: FxHashSet<u64> = (0..128).map(|n| hash(n * 576) >> 57).collect();
        assert!(tags.len() >= 32, "{} tags", tags.len());
    }

    #[test]
    fn only_pending_requests_are_counted() {
        let mut requests = Requests::new();
        // SAFETY: keys of no request, which MPI never gets.
        let [first, second, third] = [8, 16, 24].map(|key| unsafe { request_of(key) });
        requests.add(first, receive());
        requests.add(second, receive());
        assert!(are_receives());
        requests.cancel(first);
        requests.cancel(first);
        requests.cancel(third);
        assert!(!are_receives() && known() == 3);
        assert!(matches!(requests.end(third), Some(Pending::CancelledSend)));
        assert!(!are_receives());
        assert!(requests.end(first).is_some());
        assert!(are_receives() && known() == 1);
        // A handle that MPI reuses for another request, after an unseen end.
        requests.cancel(second);
        requests.add(second, receive());
        assert!(are_receives() && known() == 1);
        assert!(requests.forget(second).is_some());
        assert!(are_receives() && !are_any());
    }
}

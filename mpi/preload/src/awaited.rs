//! Requests awaited by the program's current call, and the bytes it may receive by them.
//!
//! A poll during the call examines the other receives ([`count_early`](crate::session::Session::count_early)), but not
//! these: Open MPI's `MPI_Request_get_status` takes a request on which a wait sleeps for complete. Nor any while ended
//! requests are handled one by one, since MPI has freed those still in the table. So a wait for many bytes doesn't
//! sleep on its requests (`wrap::in_turn`). With several threads a call takes its requests out of the table, so a poll
//! finds only unawaited ones.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use counterfoil_mpi_core::control::failures::is_failure;
use mpi_sys as ffi;

use crate::deferred;
use crate::session::requests::known;
use crate::session::{key, last_size};

/// Values of [`AWAITED`] for no single request.
const NONE: usize = 0;
const SEVERAL: usize = usize::MAX;

/// Key of the request.
static AWAITED: AtomicUsize = AtomicUsize::new(NONE);
/// Receive bytes up to which no log is full because of them.
static BYTES_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Polls may examine receives.
static MAY_LOOK: AtomicBool = AtomicBool::new(false);
/// Several threads may be in calls at the same time.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
/// Bytes in receives begun since none was pending, and in persistent ones.
static POSTED: AtomicUsize = AtomicUsize::new(0);
static PERSISTENT: AtomicUsize = AtomicUsize::new(0);
/// Bytes in the longest of these.
static LONGEST: AtomicUsize = AtomicUsize::new(0);

/// Makes polls examine receives, and waits for more than `bytes_max` bytes handle their requests one by one.
///
/// Up to `bytes_max` bytes may be received without a full log.
pub(crate) fn begin(bytes_max: usize, is_multiple: bool) {
    BYTES_MAX.store(bytes_max, Ordering::Relaxed);
    MAY_LOOK.store(true, Ordering::Relaxed);
    IS_SHARED.store(is_multiple, Ordering::Relaxed);
}

/// Notes concurrent calls by several threads from now on.
#[cfg(wraps = "session_init")]
pub(crate) fn share() {
    IS_SHARED.store(true, Ordering::Relaxed);
}

/// Notes a call that failed with this code.
///
/// After a process failure, no poll examines receives any more: those found interrupted by the call may be complete
/// without a message.
#[inline]
pub(crate) fn note_failed(code: c_int) {
    if is_failure(code) {
        look_no_more();
    }
}

/// Notes a process failure: from now on no poll examines receives.
pub(crate) fn look_no_more() {
    MAY_LOOK.store(false, Ordering::Relaxed);
}

/// Makes a call that waits for one request.
#[inline(always)]
pub(crate) fn while_awaiting<T>(request: ffi::MPI_Request, call: impl FnOnce() -> T) -> T {
    with(key(request), call)
}

/// Makes a call that waits for any of several requests, or handles several ended ones.
#[inline(always)]
pub(crate) fn while_awaiting_several<T>(call: impl FnOnce() -> T) -> T {
    with(SEVERAL, call)
}

#[inline(always)]
fn with<T>(awaited: usize, call: impl FnOnce() -> T) -> T {
    AWAITED.store(awaited, Ordering::Relaxed);
    let done = call();
    AWAITED.store(NONE, Ordering::Relaxed);
    done
}

/// Returns `true` if a poll may examine this receive, which is in the request table.
pub(crate) fn can_look_at(request: ffi::MPI_Request) -> bool {
    let awaited = AWAITED.load(Ordering::Relaxed);
    let is_awaited = || !IS_SHARED.load(Ordering::Relaxed) && (awaited == SEVERAL || awaited == key(request));
    MAY_LOOK.load(Ordering::Relaxed) && !is_awaited()
}

fn add(sum: &AtomicUsize, count: i64, datatype: ffi::MPI_Datatype) {
    if BYTES_MAX.load(Ordering::Relaxed) == usize::MAX {
        return;
    }
    let size = last_size(datatype).unwrap_or_else(|| {
        let mut size: c_int = 0;
        // SAFETY: a datatype that MPI has accepted in a receive, and a pointer to a local variable.
        unsafe { ffi::PMPI_Type_size(datatype, &raw mut size) };
        size.into()
    });
    let bytes = usize::try_from(count).unwrap_or(0).saturating_mul(usize::try_from(size).unwrap_or(usize::MAX));
    if bytes > LONGEST.load(Ordering::Relaxed) {
        LONGEST.fetch_max(bytes, Ordering::Relaxed);
    }
    if IS_SHARED.load(Ordering::Relaxed) {
        let add = |sum: usize| Some(sum.saturating_add(bytes));
        // It never fails.
        let _ = sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    } else {
        sum.store(sum.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
    }
}

/// Notes a posted receive of `count` elements.
#[inline]
pub(crate) fn note_posted(count: i64, datatype: ffi::MPI_Datatype) {
    add(&POSTED, count, datatype);
}

/// Notes a persistent receive of `count` elements.
pub(crate) fn note_persistent(count: i64, datatype: ffi::MPI_Datatype) {
    add(&PERSISTENT, count, datatype);
}

/// Returns `true` if pending requests may receive more than the senders' logs have space for.
#[inline]
pub(crate) fn are_many_bytes() -> bool {
    let pending = known() + deferred::posted();
    if pending == 0 {
        for sum in [&POSTED, &PERSISTENT, &LONGEST] {
            sum.store(0, Ordering::Relaxed);
        }
        return false;
    }
    let sum = POSTED.load(Ordering::Relaxed).saturating_add(PERSISTENT.load(Ordering::Relaxed));
    let max = BYTES_MAX.load(Ordering::Relaxed);
    // The sum has those ended since, if some request was always pending.
    sum > max && pending.saturating_mul(LONGEST.load(Ordering::Relaxed)) > max
}

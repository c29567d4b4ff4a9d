//! Which of the program's requests its current call waits for, and how much it may receive by one.
//!
//! A poll during the call looks at the other receives ([`count_early`](crate::session::Session::count_early)), but not
//! at these: Open MPI's `MPI_Request_get_status` takes a request on which a wait sleeps for complete. Nor at any while
//! ended requests are handled one by one, since MPI has freed those that are still in the table. So a wait for many
//! bytes doesn't sleep on its requests (`wrap::in_turn`). With several threads a call takes its requests out of the
//! table, so a poll finds only those that no thread awaits.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use counterfoil_mpi_core::control::failures::is_failure;
use mpi_sys as ffi;

use crate::deferred;
use crate::session::requests::known;
use crate::session::{key, last_size};

/// Values of [`AWAITED`] that are no request.
const NONE: usize = 0;
const SEVERAL: usize = usize::MAX;

/// Key of the request.
static AWAITED: AtomicUsize = AtomicUsize::new(NONE);
/// Bytes of receives up to which no log is full because of them.
static BYTES_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Polls may look at receives.
static MAY_LOOK: AtomicBool = AtomicBool::new(false);
/// Several threads may be in calls at the same time.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
/// Bytes of the receives that were begun since none was pending, and of persistent ones.
static POSTED: AtomicUsize = AtomicUsize::new(0);
static PERSISTENT: AtomicUsize = AtomicUsize::new(0);
/// Bytes of the longest of these.
static LONGEST: AtomicUsize = AtomicUsize::new(0);

/// Makes a wait for more than `bytes_max` bytes, which may be received without a full log, handle its requests one by
/// one, and polls look at the others.
pub(crate) fn begin(bytes_max: usize, is_multiple: bool) {
    BYTES_MAX.store(bytes_max, Ordering::Relaxed);
    MAY_LOOK.store(true, Ordering::Relaxed);
    IS_SHARED.store(is_multiple, Ordering::Relaxed);
}

/// Notes that several threads may be in calls at the same time from now on.
#[cfg(wraps = "session_init")]
pub(crate) fn share() {
    IS_SHARED.store(true, Ordering::Relaxed);
}

/// Notes a call that failed with this code. After a process failure, no poll looks at receives any more: what that call
/// has found interrupted may be complete without a message.
#[inline]
pub(crate) fn note_failed(code: c_int) {
    if is_failure(code) {
        look_no_more();
    }
}

/// Notes that a process has failed: from now on no poll looks at receives.
pub(crate) fn look_no_more() {
    MAY_LOOK.store(false, Ordering::Relaxed);
}

/// Makes a call that waits for one request.
#[inline(always)]
pub(crate) fn while_awaiting<T>(request: ffi::MPI_Request, call: impl FnOnce() -> T) -> T {
    with(key(request), call)
}

/// Makes a call that waits for any of several requests, or handles several that have ended.
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

/// Returns `true` if a poll may look at this receive, which is in the table of requests.
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

/// Notes a receive of `count` elements that was posted.
#[inline]
pub(crate) fn note_posted(count: i64, datatype: ffi::MPI_Datatype) {
    add(&POSTED, count, datatype);
}

/// Notes a persistent receive of `count` elements.
pub(crate) fn note_persistent(count: i64, datatype: ffi::MPI_Datatype) {
    add(&PERSISTENT, count, datatype);
}

/// Returns `true` if so much may be received by pending requests that the senders' logs have no space for all of it.
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
    // The sum has those that have ended since, if some request was always pending.
    sum > max && pending.saturating_mul(LONGEST.load(Ordering::Relaxed)) > max
}

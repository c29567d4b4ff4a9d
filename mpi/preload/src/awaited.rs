//! Which of the program's requests its current call waits for.
//!
//! A poll during the call looks at the other receives ([`count_early`](crate::session::Session::count_early)), but not at these:
//! Open MPI's `MPI_Request_get_status` takes a request on which a wait sleeps for complete. Nor at any while ended requests are handled one
//! by one, since MPI has freed those that are still in the table.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mpi_sys as ffi;

use crate::session::key;
use crate::session::requests::{are_any, are_generalized, handles};

/// Values of [`AWAITED`] that are no request.
const NONE: usize = 0;
const SEVERAL: usize = usize::MAX;

/// True where requests can be looked at.
static IS_ALLOWED: AtomicBool = AtomicBool::new(false);
/// Key of the request.
static AWAITED: AtomicUsize = AtomicUsize::new(NONE);

/// Sets whether requests can be looked at: one thread at a time calls MPI, and no receive is complete without a message, as one is that a
/// failure has interrupted.
pub(crate) fn allow(is_allowed: bool) {
    IS_ALLOWED.store(is_allowed, Ordering::Relaxed);
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

/// Returns `true` if a poll may look at this receive.
pub(crate) fn can_look_at(request: ffi::MPI_Request) -> bool {
    let awaited = AWAITED.load(Ordering::Relaxed);
    IS_ALLOWED.load(Ordering::Relaxed) && awaited != SEVERAL && awaited != key(request)
}

/// Waits until all of several requests are complete, without a call that sleeps on them: polls may look at them meanwhile. The call that
/// ends them returns at once then.
///
/// # Safety
/// `requests` has `count` handles.
pub(crate) unsafe fn wait_until_complete(count: c_int, requests: *const ffi::MPI_Request) {
    // The program's function for the status of a generalized request is called as often as without the library.
    if count < 2 || !are_any() || are_generalized() || !IS_ALLOWED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the caller's promise.
    for &request in unsafe { handles(count, requests) } {
        let mut flag = 0;
        // SAFETY: the program's request, of which an error is left to the call that ends it, and a pointer to a local variable.
        while flag == 0
            && unsafe { ffi::PMPI_Request_get_status(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) } == 0
        {}
    }
}

//! Requests that are waited for and tested.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::before::{End, Few, are_known, before, ended_one, first, held, missed_one};
use super::status::{Statuses, statuses_wanted, with_status};
use crate::session::{Choice, asks_plainly, enter, missed, records_choices};

/// One request, which has ended after `call` if `has_ended` says so of its code. Programs ask again and again: little is done where it
/// has not.
///
/// # Safety
/// As for [`wait`].
#[inline(always)]
unsafe fn one(
    request: *mut ffi::MPI_Request,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    has_ended: impl FnOnce(c_int) -> bool,
) -> c_int {
    if request.is_null() {
        // An error, of which MPI knows what to make.
        return call(status);
    }
    // SAFETY: the program's request.
    let (held, handle) = unsafe { (if asks_plainly() { None } else { held(request) }, *request) };
    let then = |code, status: &ffi::MPI_Status| {
        if has_ended(code) {
            ended_one(held, handle, code, status)
        } else {
            missed_one(held);
            code
        }
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// One request has ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait(
    request: *mut ffi::MPI_Request,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    if asks_plainly() && !are_known() {
        return call(status);
    }
    // SAFETY: as for this function.
    unsafe { one(request, status, call, |_| true) }
}

/// One request may have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test(
    request: *mut ffi::MPI_Request,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function; the call has said whether it has ended.
    unsafe { one(request, status, call, move |code| code != 0 || *flag != 0) }
}

/// Records which of several requests ended, where the program leaves that to MPI.
fn decided(count: c_int, index: c_int) {
    if count > 1
        && records_choices()
        && let Ok(index) = u32::try_from(index)
    {
        enter(|session| session.decide(Choice::Ended { index }));
    }
}

/// At most one of several requests, which has ended after `call` if `has_ended` says so of its code.
///
/// # Safety
/// As for [`wait_any`].
#[inline(always)]
unsafe fn any(
    (count, requests): (c_int, *mut ffi::MPI_Request),
    index: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    has_ended: impl FnOnce(c_int) -> bool,
) -> c_int {
    // SAFETY: as for this function. One of one has ended where the call says so: it is in no doubt which.
    unsafe {
        if count == 1 {
            one(requests, status, call, has_ended)
        } else {
            any_of_several((count, requests), index, status, call, has_ended)
        }
    }
}

/// [`any`] of more than one, or of none.
///
/// # Safety
/// As for [`wait_any`].
#[inline(never)]
unsafe fn any_of_several(
    (count, requests): (c_int, *mut ffi::MPI_Request),
    index: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    has_ended: impl FnOnce(c_int) -> bool,
) -> c_int {
    let mut few = Few::new();
    // SAFETY: the program's requests.
    let mut before = unsafe { before(count, requests, &mut few) };
    let then = |code, status: &ffi::MPI_Status| {
        if !has_ended(code) {
            before.none();
            return code;
        }
        // SAFETY: the call has said which one.
        let at = unsafe { *index };
        if code == 0 {
            decided(count, at);
        }
        let end = |index| if usize::try_from(at) == Ok(index) { End::of(code, status) } else { End::Not };
        first(code, before.settle(end))
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// One of several requests has ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait_any(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    index: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { any((count, requests), index, status, call, |_| true) }
}

/// One of several requests may have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test_any(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function; the call has said whether one has ended.
    unsafe { any((count, requests), index, status, call, move |code| code != 0 || *flag != 0) }
}

/// What the array says of one of several requests.
///
/// # Safety
/// `statuses` has one at `index`, filled in by a call that returned `code`.
unsafe fn of_several<'a>(code: c_int, statuses: *const ffi::MPI_Status, index: usize) -> End<'a> {
    // SAFETY: the caller's promise.
    let status = unsafe { &*statuses.add(index) };
    if code == 0 {
        End::With(status)
    } else if code != ffi::MPI_ERR_IN_STATUS as c_int || status.MPI_ERROR == ffi::MPI_ERR_PENDING as c_int {
        End::Not
    } else {
        End::of(status.MPI_ERROR, status)
    }
}

/// All of several requests, which have ended after `call` if `have_ended` says so of its code.
///
/// # Safety
/// As for [`wait_all`].
#[inline(always)]
unsafe fn all(
    (count, requests): (c_int, *mut ffi::MPI_Request),
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    have_ended: impl FnOnce(c_int) -> bool,
) -> c_int {
    let mut few = Few::new();
    // SAFETY: the program's requests.
    let mut before = unsafe { before(count, requests, &mut few) };
    if before.is_nothing() {
        return call(statuses);
    }
    let mut ours = Statuses::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    if !have_ended(code) {
        before.none();
        return code;
    }
    // SAFETY: as they have ended, the call has filled in as many statuses as requests.
    first(code, before.settle(|index| unsafe { of_several(code, statuses, index) }))
}

/// All of several requests have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait_all(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { all((count, requests), statuses, call, |_| true) }
}

/// All of several requests may have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test_all(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    flag: *mut c_int,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function; the call has said whether they have ended.
    unsafe { all((count, requests), statuses, call, move |code| *flag != 0 || code == ffi::MPI_ERR_IN_STATUS as c_int) }
}

/// Some of several requests have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait_some(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let mut few = Few::new();
    // SAFETY: the program's requests.
    let mut before = unsafe { before(count, requests, &mut few) };
    let mut ours = Statuses::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    // SAFETY: the call has said how many have ended, if any was active.
    let ended = usize::try_from(unsafe { *outcount }).unwrap_or(0);
    let is_said = code == 0 || code == ffi::MPI_ERR_IN_STATUS as c_int;
    let ended = if is_said && ended > 0 && ended <= usize::try_from(count).unwrap_or(0) {
        // SAFETY: of as many the call has filled in which, and with what status.
        unsafe { std::slice::from_raw_parts(indices, ended) }
    } else {
        &[]
    };
    if ended.is_empty() {
        before.none();
        return code;
    }
    for index in ended {
        decided(count, *index);
    }
    let place = |index: usize| ended.iter().position(|&at| usize::try_from(at) == Ok(index));
    // SAFETY: as above.
    first(code, before.settle(|index| place(index).map_or(End::Not, |at| unsafe { of_several(code, statuses, at) })))
}

/// Some of several requests may have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test_some(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { wait_some(count, requests, outcount, indices, statuses, call) }
}

/// A request is looked at and stays as it is.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn request_status(
    _: ffi::MPI_Request,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let code = call(status);
    // SAFETY: the call has said whether it has ended. It stays: whoever waits for it later is told.
    if code == 0 && unsafe { *flag } == 0 {
        missed();
    }
    code
}

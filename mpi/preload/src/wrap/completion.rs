//! Waits and tests.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::in_turn::wait_in_turn;
use super::pending::{
    Completion, InlineHandles, RequestSnapshot, TakenRequest, are_known, end_one, first, put_back_one, snapshot,
    take_one,
};
use crate::awaited::{are_many_bytes, note_failed, while_awaiting, while_awaiting_several};
use crate::global::{can_skip_session, count_failed_poll, enter, records_determinants};
use crate::handlers;
use crate::status::{Statuses, statuses_wanted, with_status};
use counterfoil_mpi_logger::Determinant;

/// Waits for or tests one request, ended if `has_ended` is true for the call's code.
///
/// Programs poll in loops, so little is done for a pending one.
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
        // An error, which MPI handles.
        return call(status);
    }
    // SAFETY: as for this function.
    unsafe {
        let taken = if can_skip_session() { None } else { take_one(request) };
        one_taken(taken, request, status, call, has_ended)
    }
}

/// [`one`] for a request already taken out of the session, if necessary.
///
/// # Safety
/// As for [`wait`].
#[inline(always)]
unsafe fn one_taken(
    taken: Option<Box<TakenRequest>>,
    request: *const ffi::MPI_Request,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    has_ended: impl FnOnce(c_int) -> bool,
) -> c_int {
    // SAFETY: the program's request.
    let handle = unsafe { *request };
    let then = |code, status: &ffi::MPI_Status| {
        if has_ended(code) {
            end_one(taken, handle, code, status)
        } else {
            put_back_one(taken);
            code
        }
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, |status| while_awaiting(handle, || call(status)), then) }
}

/// Waits for a request.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait(
    request: *mut ffi::MPI_Request,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    if can_skip_session() && !are_known() {
        return call(status);
    }
    // SAFETY: as for this function.
    unsafe { one(request, status, call, |_| true) }
}

/// Tests a request.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test(
    request: *mut ffi::MPI_Request,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function; the call has set the flag.
    unsafe { one(request, status, call, move |code| code != 0 || *flag != 0) }
}

/// Returns `true` if a test of this request needs next to nothing before its MPI call: no other thread calls, nothing
/// is due, and the program has no error handler.
#[inline(always)]
pub(crate) fn is_polled_directly(request: *const ffi::MPI_Request) -> bool {
    can_skip_session() && !handlers::are_any() && !request.is_null()
}

/// Makes a call in a separate function, which saves its own registers.
#[inline(never)]
pub(crate) fn apart(call: impl FnOnce() -> c_int) -> c_int {
    call()
}

/// Tests a request that [is polled directly](is_polled_directly).
///
/// Inlined into the program's call, and stores next to nothing: a program updating memory between its polls has these
/// updates under way at the same time only as long as the processor has room for the stores after them.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(always)]
pub(crate) unsafe fn poll_directly(
    request: *const ffi::MPI_Request,
    flag: *const c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function; the call has set the flag.
    unsafe { one_taken(None, request, status, call, move |code| code != 0 || *flag != 0) }
}

/// Records which request has ended, out of several left to MPI's choice.
fn record_completed(count: c_int, index: c_int) {
    if count > 1
        && records_determinants()
        && let Ok(index) = u32::try_from(index)
    {
        enter(|session| session.record(Determinant::Completed { index }));
    }
}

/// Waits for or tests any one of several requests; one has ended if `has_ended` is true for the call's code.
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
    // SAFETY: as for this function. With one request the index is known.
    unsafe {
        if count == 1 {
            one(requests, status, call, has_ended)
        } else {
            any_of_several((count, requests), index, status, call, has_ended)
        }
    }
}

/// [`any`] for none or several.
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
    let mut handles = InlineHandles::new();
    // SAFETY: the program's requests.
    let mut pending = unsafe { snapshot(count, requests, &mut handles) };
    let then = |code, status: &ffi::MPI_Status| {
        if !has_ended(code) {
            pending.put_back();
            return code;
        }
        if index.is_null() {
            // An error, which MPI has handled.
            pending.put_back();
            return code;
        }
        // SAFETY: the call has said which one.
        let at = unsafe { *index };
        if code == 0 {
            record_completed(count, at);
        }
        let end =
            |index| if usize::try_from(at) == Ok(index) { Completion::new(code, status) } else { Completion::Pending };
        first(code, pending.end(end))
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, |status| while_awaiting_several(|| call(status)), then) }
}

/// Waits for any one of several requests.
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

/// Tests any one of several requests.
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
    // SAFETY: as for this function; the call has set the flag.
    unsafe { any((count, requests), index, status, call, move |code| code != 0 || *flag != 0) }
}

/// Returns one request's completion from the array of statuses.
///
/// # Safety
/// `statuses` has one at `index`, filled in by a call that returned `code`.
unsafe fn completion_of<'a>(code: c_int, statuses: *const ffi::MPI_Status, index: usize) -> Completion<'a> {
    // SAFETY: the caller's promise.
    let status = unsafe { &*statuses.add(index) };
    if code == 0 {
        Completion::Ended(status)
    } else if code != ffi::MPI_ERR_IN_STATUS as c_int || status.MPI_ERROR == ffi::MPI_ERR_PENDING as c_int {
        note_failed(code);
        Completion::Pending
    } else {
        Completion::new(status.MPI_ERROR, status)
    }
}

/// Waits for or tests all of several requests, ended if `have_ended` is true for the call's code.
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
    let mut handles = InlineHandles::new();
    // SAFETY: the program's requests.
    let mut pending = unsafe { snapshot(count, requests, &mut handles) };
    if pending.is_empty() {
        return call(statuses);
    }
    let mut ours = Statuses::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    if !have_ended(code) {
        pending.put_back();
        return code;
    }
    // SAFETY: as they have ended, the call has filled in as many statuses as requests.
    first(code, pending.end(|index| unsafe { completion_of(code, statuses, index) }))
}

/// Waits for all of several requests.
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
    unsafe {
        let are_valid = !requests.is_null() && (!statuses.is_null() || statuses == ffi::RSMPI_STATUSES_IGNORE);
        if count > 1 && are_many_bytes() && are_valid {
            wait_in_turn(count, requests, statuses)
        } else {
            all((count, requests), statuses, |statuses| while_awaiting_several(|| call(statuses)), |_| true)
        }
    }
}

/// Tests all of several requests.
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
    // SAFETY: as for this function; the call has set the flag.
    unsafe {
        all((count, requests), statuses, call, move |code| {
            code == ffi::MPI_ERR_IN_STATUS as c_int || code == 0 && *flag != 0
        })
    }
}

/// Places of requests in the list of ended ones.
enum Places<'a> {
    /// Few, searched one by one.
    Few(&'a [c_int]),
    /// Pairs (index, place), in ascending order.
    Sorted(Vec<(usize, usize)>),
}

impl Places<'_> {
    /// Most requests searched one by one.
    const FEW: usize = 16;

    fn new(ended: &[c_int]) -> Places<'_> {
        if ended.len() <= Places::FEW {
            return Places::Few(ended);
        }
        let pair = |(place, &index): (usize, &c_int)| Some((usize::try_from(index).ok()?, place));
        let mut sorted: Vec<_> = ended.iter().enumerate().filter_map(pair).collect();
        sorted.sort_unstable();
        Places::Sorted(sorted)
    }

    /// Returns the place of the request with this index in the program's array, if it has ended.
    fn of(&self, index: usize) -> Option<usize> {
        match self {
            Places::Few(ended) => ended.iter().position(|&at| usize::try_from(at) == Ok(index)),
            Places::Sorted(sorted) => {
                sorted.binary_search_by_key(&index, |(index, _)| *index).ok().map(|at| sorted[at].1)
            }
        }
    }
}

/// Calls a function for some of several requests, and handles the ended ones.
///
/// `handle` gets their indices. Returns the code, and these indices: none if the call doesn't say.
///
/// # Safety
/// As for [`wait_some`].
pub(super) unsafe fn some<'a>(
    (count, requests): (c_int, *mut ffi::MPI_Request),
    outcount: *const c_int,
    indices: *const c_int,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    handle: impl FnOnce(&RequestSnapshot<'_>, &[c_int]),
) -> (c_int, &'a [c_int]) {
    let mut handles = InlineHandles::new();
    // SAFETY: the program's requests.
    let mut pending = unsafe { snapshot(count, requests, &mut handles) };
    let mut ours = Statuses::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    let is_said = code == 0 || code == ffi::MPI_ERR_IN_STATUS as c_int;
    // SAFETY: the call has said how many have ended, if any was active.
    let ended = if is_said { usize::try_from(unsafe { *outcount }).unwrap_or(0) } else { 0 };
    let ended = if ended > 0 && ended <= usize::try_from(count).unwrap_or(0) {
        // SAFETY: the call has filled in as many indices and statuses.
        unsafe { std::slice::from_raw_parts(indices, ended) }
    } else {
        &[]
    };
    if ended.is_empty() {
        pending.restore();
    }
    handle(&pending, ended);
    let places = Places::new(ended);
    let place = |index| places.of(index);
    // SAFETY: as above.
    let completion =
        |index| place(index).map_or(Completion::Pending, |at| unsafe { completion_of(code, statuses, at) });
    (if ended.is_empty() { code } else { first(code, pending.end(completion)) }, ended)
}

/// Waits for some of several requests.
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
    let handle = |pending: &RequestSnapshot<'_>, ended: &[c_int]| {
        if ended.is_empty() {
            pending.count_failure();
        }
        ended.iter().for_each(|index| record_completed(count, *index));
    };
    let call = |statuses| while_awaiting_several(|| call(statuses));
    // SAFETY: as for this function.
    unsafe { some((count, requests), outcount, indices, statuses, call, handle) }.0
}

/// Tests some of several requests.
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

/// Tests a request without freeing it.
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
    // SAFETY: the call has set the flag. The request stays: a later wait handles its end.
    if code == 0 && unsafe { *flag } == 0 {
        count_failed_poll();
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_has_ended_has_its_place() {
        for len in [0, 1, 16, 17, 100] {
            let ended: Vec<c_int> = (0..len).map(|place| 3 * ((7 * place) % 101)).collect();
            let places = Places::new(&ended);
            for (place, index) in ended.iter().enumerate() {
                assert_eq!(places.of(*index as usize), Some(place));
                assert_eq!(places.of(*index as usize + 1), None);
            }
        }
    }
}

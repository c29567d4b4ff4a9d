//! Several operations that are waited for together.

use std::ffi::c_int;

use mpi_sys as ffi;

use crate::error::{MpiError, check, count};
use crate::request::{Ended, Pending, blank};

/// Makes a call with the requests of `pending`, and puts back what it leaves of them.
fn with_requests(
    call: &'static str,
    pending: &[&Pending],
    make: impl FnOnce(c_int, *mut ffi::MPI_Request) -> c_int,
) -> Result<c_int, MpiError> {
    let len = count(call, pending.len())?;
    let mut requests: Vec<_> = pending.iter().map(|pending| pending.raw()).collect();
    let code = make(len, requests.as_mut_ptr());
    for (pending, request) in pending.iter().zip(requests) {
        // SAFETY: the request in the same place, after the call.
        unsafe { pending.set(request) };
    }
    Ok(code)
}

fn place(index: c_int, len: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|index| *index < len)
}

/// One that has ended: its place, and how. `None` if none is under way, or, without `wait`, if none has ended.
///
/// # Errors
/// [`MpiError`]: none was looked at.
pub(crate) fn any(pending: &[&Pending], wait: bool) -> Result<Option<(usize, Ended)>, MpiError> {
    let told = pending.iter().enumerate().find_map(|(at, pending)| Some((at, pending.take_ended()?)));
    if told.is_some() {
        return Ok(told);
    }
    let (mut index, mut flag, mut status) = (-1, 1, blank());
    let (at, status_at) = (&raw mut index, &raw mut status);
    let call = if wait { "MPI_Waitany" } else { "MPI_Testany" };
    let code = with_requests(call, pending, |len, requests| {
        // SAFETY: `len` requests, each active or null, and pointers to local variables.
        unsafe {
            if wait {
                ffi::MPI_Waitany(len, requests, at, status_at)
            } else {
                ffi::MPI_Testany(len, requests, at, &raw mut flag, status_at)
            }
        }
    })?;
    match place(index, pending.len()) {
        Some(index) if flag != 0 || code != 0 => Ok(Some((index, pending[index].conclude(call, code, &status)))),
        _ => check(call, code).map(|()| None),
    }
}

/// What the array says of one that a call speaks of: `None` if it is under way.
fn one_of_several(call: &'static str, code: c_int, pending: &Pending, status: &ffi::MPI_Status) -> Option<Ended> {
    if code == 0 {
        Some(pending.conclude(call, 0, status))
    } else if status.MPI_ERROR == ffi::MPI_ERR_PENDING as c_int {
        None
    } else {
        Some(pending.conclude(call, status.MPI_ERROR, status))
    }
}

fn is_said(code: c_int) -> bool {
    code == 0 || code == ffi::MPI_ERR_IN_STATUS as c_int
}

/// Those that have ended, in the order of their places; with `wait`, at least one, if one is under way.
///
/// # Errors
/// [`MpiError`]: none was looked at.
pub(crate) fn some(pending: &[&Pending], wait: bool) -> Result<Vec<(usize, Ended)>, MpiError> {
    let told = |(at, pending): (usize, &&Pending)| Some((at, pending.take_ended()?));
    let mut ended: Vec<_> = pending.iter().enumerate().filter_map(told).collect();
    let wait = wait && ended.is_empty();
    let (mut outcount, mut indices) = (0, vec![0; pending.len()]);
    let mut statuses = vec![blank(); pending.len()];
    let (at, indices_at, statuses_at) = (&raw mut outcount, indices.as_mut_ptr(), statuses.as_mut_ptr());
    let call = if wait { "MPI_Waitsome" } else { "MPI_Testsome" };
    let code = with_requests(call, pending, |len, requests| {
        // SAFETY: as in `any`; as many indices and statuses as requests.
        unsafe {
            if wait {
                ffi::MPI_Waitsome(len, requests, at, indices_at, statuses_at)
            } else {
                ffi::MPI_Testsome(len, requests, at, indices_at, statuses_at)
            }
        }
    })?;
    if !is_said(code) {
        check(call, code)?;
    }
    let said = indices.iter().zip(&statuses).take(usize::try_from(outcount).unwrap_or(0));
    ended.extend(said.filter_map(|(index, status)| {
        let index = place(*index, pending.len())?;
        Some((index, one_of_several(call, code, pending[index], status)?))
    }));
    ended.sort_unstable_by_key(|(index, _)| *index);
    Ok(ended)
}

/// How each has ended; `None` without `wait`, if not all have. One is `None` where another's failure has ended the call before.
///
/// # Errors
/// [`MpiError`]: none was looked at.
pub(crate) fn all(pending: &[&Pending], wait: bool) -> Result<Option<Vec<Option<Ended>>>, MpiError> {
    let (mut flag, mut statuses) = (1, vec![blank(); pending.len()]);
    let statuses_at = statuses.as_mut_ptr();
    let call = if wait { "MPI_Waitall" } else { "MPI_Testall" };
    let code = with_requests(call, pending, |len, requests| {
        // SAFETY: as in `any`; as many statuses as requests.
        unsafe {
            if wait {
                ffi::MPI_Waitall(len, requests, statuses_at)
            } else {
                ffi::MPI_Testall(len, requests, &raw mut flag, statuses_at)
            }
        }
    })?;
    if !is_said(code) {
        check(call, code)?;
    }
    if code == 0 && flag == 0 {
        return Ok(None);
    }
    let each = pending.iter().zip(&statuses);
    let how = |(pending, status): (&&Pending, &ffi::MPI_Status)| {
        pending.take_ended().or_else(|| one_of_several(call, code, pending, status))
    };
    Ok(Some(each.map(how).collect()))
}

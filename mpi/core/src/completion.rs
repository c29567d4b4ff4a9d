//! Completion of several operations by one call: any, some or all of them.

use std::ffi::c_int;

use mpi_sys as ffi;

use crate::error::{MpiError, check, count};
use crate::request::{Completion, MpiOperation, empty_status};

/// Passes the requests in `pending` to `make`, and stores them again as it leaves them.
///
/// Returns the code.
fn with_requests(
    call: &'static str,
    pending: &[&MpiOperation],
    make: impl FnOnce(c_int, *mut ffi::MPI_Request) -> c_int,
) -> Result<c_int, MpiError> {
    let len = count(call, pending.len())?;
    let mut requests: Vec<_> = pending.iter().map(|pending| pending.raw()).collect();
    let code = make(len, requests.as_mut_ptr());
    for (pending, request) in pending.iter().zip(requests) {
        // SAFETY: the request at the same index, after the call.
        unsafe { pending.set(request) };
    }
    Ok(code)
}

fn valid_index(index: c_int, len: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|index| *index < len)
}

/// Returns the index and outcome of a completed operation.
///
/// `None` if no operation is pending or, without `wait`, none is complete.
///
/// # Errors
/// [`MpiError`]: no operation was completed.
pub fn any(pending: &[&MpiOperation], wait: bool) -> Result<Option<(usize, Completion)>, MpiError> {
    let (mut index, mut flag, mut status) = (-1, 1, empty_status());
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
    match valid_index(index, pending.len()) {
        Some(index) if flag != 0 || code != 0 => Ok(Some((index, pending[index].complete(call, code, &status)))),
        _ => check(call, code).map(|()| None),
    }
}

/// Returns the outcome of one operation in a call, by its status; `None` if it is still pending.
fn one_of_several(
    call: &'static str,
    code: c_int,
    pending: &MpiOperation,
    status: &ffi::MPI_Status,
) -> Option<Completion> {
    if code == 0 {
        Some(pending.complete(call, 0, status))
    } else if status.MPI_ERROR == ffi::MPI_ERR_PENDING as c_int {
        None
    } else {
        Some(pending.complete(call, status.MPI_ERROR, status))
    }
}

/// Returns `true` if the statuses contain each operation's outcome.
fn has_statuses(code: c_int) -> bool {
    code == 0 || code == ffi::MPI_ERR_IN_STATUS as c_int
}

/// Returns index and outcome for all completed operations; with `wait`, at least one, if any is pending.
///
/// # Errors
/// [`MpiError`]: no operation was completed.
pub fn some(pending: &[&MpiOperation], wait: bool) -> Result<Vec<(usize, Completion)>, MpiError> {
    let (mut outcount, mut indices) = (0, vec![0; pending.len()]);
    let mut statuses = vec![empty_status(); pending.len()];
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
    if !has_statuses(code) {
        check(call, code)?;
    }
    let reported = indices.iter().zip(&statuses).take(usize::try_from(outcount).unwrap_or(0));
    let completed = reported.filter_map(|(index, status)| {
        let index = valid_index(*index, pending.len())?;
        Some((index, one_of_several(call, code, pending[index], status)?))
    });
    Ok(completed.collect())
}

/// Returns each operation's outcome; `None`, without `wait`, if one is still pending.
///
/// An outcome is `None` if another operation's failure ended the call first.
///
/// # Errors
/// [`MpiError`]: no operation was completed.
pub fn all(pending: &[&MpiOperation], wait: bool) -> Result<Option<Vec<Option<Completion>>>, MpiError> {
    let (mut flag, mut statuses) = (1, vec![empty_status(); pending.len()]);
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
    if !has_statuses(code) {
        check(call, code)?;
    }
    if code == 0 && flag == 0 {
        return Ok(None);
    }
    let each = pending.iter().zip(&statuses);
    Ok(Some(each.map(|(pending, status)| one_of_several(call, code, pending, status)).collect()))
}

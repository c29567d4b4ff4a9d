//! What calls say of messages and requests that have ended.

use std::ffi::c_int;

use mpi_sys as ffi;
use smallvec::SmallVec;

/// Statuses of ours, of which a few are on the stack.
pub(super) type Statuses = SmallVec<[ffi::MPI_Status; 8]>;

/// Makes a call that fills a status in, the program's or one of ours where it wants none; `then` is given its code and the status, where it is.
///
/// # Safety
/// `status` is the program's.
#[inline(always)]
pub(super) unsafe fn with_status(
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    then: impl FnOnce(c_int, &ffi::MPI_Status) -> c_int,
) -> c_int {
    let mut ours = blank();
    // SAFETY: a constant of the shim.
    let status = if status == unsafe { ffi::RSMPI_STATUS_IGNORE } { &raw mut ours } else { status };
    let code = call(status);
    // SAFETY: ours, or what the program has given for a status; the call is done with it.
    then(code, unsafe { &*status })
}

/// A status that says nothing yet.
pub(super) fn blank() -> ffi::MPI_Status {
    // SAFETY: numbers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// Statuses to be filled in: the program's, or ours where it wants none.
pub(super) fn statuses_wanted(
    count: c_int,
    statuses: *mut ffi::MPI_Status,
    ours: &mut Statuses,
) -> *mut ffi::MPI_Status {
    // SAFETY: a constant of the shim.
    if statuses == unsafe { ffi::RSMPI_STATUSES_IGNORE } {
        ours.resize(usize::try_from(count).unwrap_or(0).max(1), blank());
        ours.as_mut_ptr()
    } else {
        statuses
    }
}

/// Whether what has ended was called off.
pub(super) fn is_cancelled(status: &ffi::MPI_Status) -> bool {
    let mut flag = 0;
    // SAFETY: a status that MPI filled in, and a pointer to a local variable.
    unsafe { ffi::PMPI_Test_cancelled(status, &raw mut flag) };
    flag != 0
}

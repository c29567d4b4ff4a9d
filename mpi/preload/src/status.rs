//! Message and request statuses.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use counterfoil_mpi_logger::Arrival;
use mpi_sys as ffi;
use smallvec::SmallVec;

unsafe extern "C" {
    /// Returns the number of bytes received, from a status filled in by MPI.
    fn counterfoil_bytes(status: *const ffi::MPI_Status) -> usize;
    /// Offset of this number in a status, if it is one `size_t` there; else negative.
    static counterfoil_bytes_at: isize;
}

/// Statuses owned by the library, a few of them on the stack.
pub(crate) type Statuses = SmallVec<[ffi::MPI_Status; 8]>;

/// Makes a call that fills in a status: the program's, or one of the library's if the program ignores it.
///
/// Calls `then` with the code and the status.
///
/// # Safety
/// `status` is the program's.
#[inline(always)]
pub(crate) unsafe fn with_status(
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    then: impl FnOnce(c_int, &ffi::MPI_Status) -> c_int,
) -> c_int {
    let mut own = MaybeUninit::uninit();
    // SAFETY: a constant of the shim.
    let status = if status == unsafe { ffi::RSMPI_STATUS_IGNORE } { own.write(blank()) } else { status };
    let code = call(status);
    // SAFETY: the library's, or the one given by the program; the call is done with it.
    then(code, unsafe { &*status })
}

/// Returns an empty status.
pub(crate) fn blank() -> ffi::MPI_Status {
    // SAFETY: integers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// Returns MPI's status for an inactive request.
pub(crate) fn empty() -> ffi::MPI_Status {
    let (mut flag, mut status) = (0, blank());
    // SAFETY: a constant of the shim, and pointers to local variables.
    unsafe {
        let mut null = ffi::RSMPI_REQUEST_NULL;
        ffi::PMPI_Test(&raw mut null, &raw mut flag, &raw mut status);
    }
    status
}

/// Returns the statuses to fill in: the program's, or the library's if the program ignores them.
pub(crate) fn statuses_wanted(
    count: c_int,
    statuses: *mut ffi::MPI_Status,
    own: &mut Statuses,
) -> *mut ffi::MPI_Status {
    // SAFETY: a constant of the shim.
    if statuses == unsafe { ffi::RSMPI_STATUSES_IGNORE } {
        own.resize(usize::try_from(count).unwrap_or(0).max(1), blank());
        own.as_mut_ptr()
    } else {
        statuses
    }
}

/// Returns `true` for a cancelled request's status.
pub(crate) fn is_cancelled(status: &ffi::MPI_Status) -> bool {
    let mut flag = 0;
    // SAFETY: a status filled in by MPI, and a pointer to a local variable.
    unsafe { ffi::PMPI_Test_cancelled(status, &raw mut flag) };
    flag != 0
}

/// Returns the message taken by a receive, from the status filled in by MPI.
#[inline]
pub(crate) fn arrival(status: &ffi::MPI_Status) -> Arrival {
    // SAFETY: a status filled in by MPI, and a constant of a C file of this library, by the same `mpi.h`.
    let bytes = unsafe {
        match usize::try_from(counterfoil_bytes_at) {
            Ok(at) => (&raw const *status).byte_add(at).cast::<usize>().read(),
            Err(_) => counterfoil_bytes(status),
        }
    };
    Arrival { source: status.MPI_SOURCE, tag: status.MPI_TAG, bytes }
}

/// Returns the error class of MPI's code; `None` for one that it doesn't know.
fn error_class(code: c_int) -> Option<c_int> {
    let mut class = 0;
    // SAFETY: a code of MPI's, and a pointer to a local variable.
    (unsafe { ffi::PMPI_Error_class(code, &raw mut class) } == 0).then_some(class)
}

/// Returns `true` if a call about requests has ended none of them, since its arguments are wrong.
pub(crate) fn is_refusal(code: c_int) -> bool {
    let wrong = [ffi::MPI_ERR_ARG as c_int, ffi::MPI_ERR_REQUEST as c_int];
    code != 0 && error_class(code).is_some_and(|class| wrong.contains(&class))
}

/// Returns `true` if a receive with this code has taken a message, even a truncated one.
pub(crate) fn has_taken(code: c_int) -> bool {
    code == 0 || error_class(code) == Some(ffi::MPI_ERR_TRUNCATE as c_int)
}

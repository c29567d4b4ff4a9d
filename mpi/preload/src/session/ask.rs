//! Calls of MPI that the library makes for itself.

use std::ffi::c_int;

use mpi_sys as ffi;

/// What MPI said no to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with code {code}")]
pub(crate) struct Refused {
    pub(crate) call: &'static str,
    pub(crate) code: c_int,
}

/// Makes a call; the function that it stands in returns [`Refused`] where MPI says no. To be written in an `unsafe` block.
macro_rules! ask {
    ($name:ident($($argument:expr),*)) => {
        match mpi_sys::$name($($argument),*) {
            0 => {}
            code => return Err($crate::session::ask::Refused { call: stringify!($name), code }),
        }
    };
}

pub(crate) use ask;

/// Whether a request has ended.
///
/// # Safety
/// A request that MPI knows, or the null one.
pub(crate) unsafe fn has_ended(request: &mut ffi::MPI_Request) -> Result<bool, Refused> {
    let mut flag = 0;
    // SAFETY: the caller's promise, a pointer to a local variable, and no status.
    unsafe { ask!(PMPI_Test(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE)) };
    Ok(flag != 0)
}

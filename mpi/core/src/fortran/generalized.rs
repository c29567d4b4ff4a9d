//! Fortran functions for generalized requests, in place of C's.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

use super::{Fint, TRUE};

/// `MPI_Grequest_query_function`: state, status, error code.
pub type Query = unsafe extern "C-unwind" fn(*mut ffi::MPI_Aint, *mut Fint, *mut Fint);
/// `MPI_Grequest_free_function`: state, error code.
pub type Free = unsafe extern "C-unwind" fn(*mut ffi::MPI_Aint, *mut Fint);
/// `MPI_Grequest_cancel_function`: state, whether the operation is complete, error code.
pub type Cancel = unsafe extern "C-unwind" fn(*mut ffi::MPI_Aint, *mut Fint, *mut Fint);

/// State passed to the C functions.
pub struct Generalized {
    query: Query,
    free: Free,
    cancel: Cancel,
    /// The program's own state.
    extra: ffi::MPI_Aint,
}

impl Generalized {
    /// Returns the state for a request; [`free`] frees it.
    ///
    /// # Safety
    /// See the [module](super).
    pub unsafe fn begin(query: Query, free: Free, cancel: Cancel, extra: *const ffi::MPI_Aint) -> *mut c_void {
        // SAFETY: as for this function.
        Box::into_raw(Box::new(Generalized { query, free, cancel, extra: unsafe { *extra } })).cast()
    }
}

/// Calls the program's query function.
///
/// # Safety
/// `state` is a [`Generalized`], and `status` the MPI's, aligned.
pub unsafe extern "C" fn query(state: *mut c_void, status: *mut ffi::MPI_Status) -> c_int {
    let mut code = 0;
    // SAFETY: as for this function; a status is the same memory in both languages.
    unsafe {
        let generalized = &mut *state.cast::<Generalized>();
        (generalized.query)(&raw mut generalized.extra, status.cast(), &raw mut code);
    }
    code
}

/// Calls the program's free function, and frees the state.
///
/// # Safety
/// `state` is a [`Generalized`], which nothing uses from now on.
pub unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    let mut code = 0;
    // SAFETY: as for this function.
    unsafe {
        let mut generalized = Box::from_raw(state.cast::<Generalized>());
        (generalized.free)(&raw mut generalized.extra, &raw mut code);
    }
    code
}

/// Calls the program's cancel function.
///
/// # Safety
/// `state` is a [`Generalized`].
pub unsafe extern "C" fn cancel(state: *mut c_void, complete: c_int) -> c_int {
    let (mut complete, mut code) = (if complete == 0 { 0 } else { *TRUE }, 0);
    // SAFETY: as for this function.
    unsafe {
        let generalized = &mut *state.cast::<Generalized>();
        (generalized.cancel)(&raw mut generalized.extra, &raw mut complete, &raw mut code);
    }
    code
}

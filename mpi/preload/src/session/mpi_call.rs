//! MPI calls made by the library for itself.

use std::ffi::c_int;

use mpi_sys as ffi;

/// A call refused by MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with code {code}")]
pub(crate) struct CallError {
    pub(crate) call: &'static str,
    pub(crate) code: c_int,
}

/// Makes a call; the enclosing function returns [`CallError`] if MPI refuses it.
///
/// To be used in an `unsafe` block.
macro_rules! mpi_try {
    ($name:ident($($argument:expr),*)) => {
        match mpi_sys::$name($($argument),*) {
            0 => {}
            code => return Err($crate::session::mpi_call::CallError { call: stringify!($name), code }.into()),
        }
    };
}

pub(crate) use mpi_try;

/// Returns a number for a handle, whatever this MPI's handles are.
#[inline]
pub(crate) fn key<T: Copy>(handle: T) -> usize {
    const { assert!(size_of::<T>() <= size_of::<usize>()) }
    let mut bytes = [0u8; size_of::<usize>()];
    // SAFETY: as many bytes as a handle has, for which the array has room; handles are pointers or integers, without
    // padding.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const handle).cast::<u8>(), bytes.as_mut_ptr(), size_of::<T>());
    }
    usize::from_ne_bytes(bytes)
}

/// Returns a key's request.
///
/// # Safety
/// `key` is a request's.
pub(super) unsafe fn request_of(key: usize) -> ffi::MPI_Request {
    let bytes = key.to_ne_bytes();
    // SAFETY: the first bytes are the request's.
    unsafe { bytes.as_ptr().cast::<ffi::MPI_Request>().read_unaligned() }
}

/// Returns `true` for the null communicator.
pub(crate) fn is_null_comm(comm: ffi::MPI_Comm) -> bool {
    // SAFETY: a constant of the shim.
    comm == unsafe { ffi::RSMPI_COMM_NULL }
}

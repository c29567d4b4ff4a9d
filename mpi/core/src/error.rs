//! Errors from MPI calls.

use std::ffi::{CStr, c_char, c_int};

use mpi_sys as ffi;

use crate::threads::Threads;

/// Failure of an MPI call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// MPI returned an error.
    #[error("{call}: {text} (error {code} of class {class})")]
    Call {
        /// Function name.
        call: &'static str,
        /// Code returned by the function.
        code: i32,
        /// Error class: one of `MPI_ERR_*`.
        class: i32,
        /// MPI's error description.
        text: String,
    },
    /// The length exceeds an `int`, MPI's type for counts.
    #[error("{call}: {len} bytes, and a message of MPI has at most {} here", i32::MAX)]
    TooLong {
        /// Function name.
        call: &'static str,
        /// Length in bytes.
        len: usize,
    },
    /// A buffer's length differs from the one needed by the operation.
    #[error("{call}: {len} bytes were given where {needed} are needed")]
    Length {
        /// Function name.
        call: &'static str,
        /// Buffer length in bytes.
        len: usize,
        /// Needed length in bytes.
        needed: usize,
    },
    /// A buffer doesn't have as many parts as there are ranks.
    #[error("{call}: {parts} parts were given where there are {ranks} ranks")]
    Parts {
        /// Function name.
        call: &'static str,
        /// Number of parts.
        parts: usize,
        /// Number of ranks.
        ranks: usize,
    },
    /// The process has initialised MPI before.
    #[error("MPI can be initialised once a process, and this one has done so")]
    Used,
    /// The MPI library doesn't support the thread level.
    #[error("this MPI provides the thread level {given:?}, and {asked:?} is needed")]
    Threads {
        /// Requested thread level.
        asked: Threads,
        /// Thread level provided by the library; `None` for a number outside the standard.
        given: Option<Threads>,
    },
}

/// Returns an error if `code`, returned by `call`, is one.
///
/// # Errors
/// [`MpiError::Call`] with MPI's text.
#[inline]
pub fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(describe(call, code)) }
}

/// Converts a length to MPI's `int`.
pub(crate) fn count(call: &'static str, len: usize) -> Result<c_int, MpiError> {
    c_int::try_from(len).map_err(|_| MpiError::TooLong { call, len })
}

#[cold]
fn describe(call: &'static str, code: c_int) -> MpiError {
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let (mut len, mut class) = (0, 0);
    // SAFETY: the buffer has MPI_MAX_ERROR_STRING bytes and one more, which stays zero; the standard allows both calls
    // at any time, even before MPI_Init and after MPI_Finalize. If they fail, the text stays empty.
    unsafe {
        ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &raw mut len);
        ffi::MPI_Error_class(code, &raw mut class);
    }
    let text =
        CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
    MpiError::Call { call, code, class, text }
}

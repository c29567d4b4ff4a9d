//! What MPI says when it refuses.

use std::ffi::{CStr, c_char, c_int};

use mpi_sys as ffi;

/// Why a call of MPI failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// MPI returned an error.
    #[error("{call}: {text} (error {code} of class {class})")]
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: i32,
        /// The class of that error: one of `MPI_ERR_*`.
        class: i32,
        /// MPI's own words.
        text: String,
    },
    /// More bytes than fit into the `int` with which MPI counts.
    #[error("{call}: {len} bytes, and a message of MPI has at most {} here", i32::MAX)]
    TooLong {
        /// The function.
        call: &'static str,
        /// How many bytes.
        len: usize,
    },
    /// Memory for an operation has not the length that the other ranks' has.
    #[error("{call}: {len} bytes were given where {needed} are needed")]
    Length {
        /// The function.
        call: &'static str,
        /// How many bytes there are.
        len: usize,
        /// How many there have to be.
        needed: usize,
    },
    /// Memory for an operation has not as many parts as there are ranks.
    #[error("{call}: {parts} parts were given where there are {ranks} ranks")]
    Parts {
        /// The function.
        call: &'static str,
        /// How many parts there are.
        parts: usize,
        /// How many ranks.
        ranks: usize,
    },
    /// The process has initialised MPI already, or has ended it.
    #[error("MPI can be initialised once a process, and this one has done so")]
    Used,
    /// The MPI was built without what is needed for threads.
    #[error("this MPI gives the thread level {given:?} where {asked:?} is needed")]
    Threads {
        /// What was asked for.
        asked: crate::Threads,
        /// What the library has; `None` for a number that isn't one of the standard's.
        given: Option<crate::Threads>,
    },
}

/// An error of `call` if `code` is one.
///
/// # Errors
/// [`MpiError::Call`] with MPI's text.
#[inline]
pub(crate) fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(describe(call, code)) }
}

/// A length as MPI counts.
pub(crate) fn count(call: &'static str, len: usize) -> Result<c_int, MpiError> {
    c_int::try_from(len).map_err(|_| MpiError::TooLong { call, len })
}

#[cold]
fn describe(call: &'static str, code: c_int) -> MpiError {
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let (mut len, mut class) = (0, 0);
    // SAFETY: the buffer has MPI_MAX_ERROR_STRING bytes and one more, which stays zero; the standard allows both calls at any
    // time, also before MPI_Init and after MPI_Finalize. Where they fail, the zeros stand for no words.
    unsafe {
        ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &raw mut len);
        ffi::MPI_Error_class(code, &raw mut class);
    }
    let text =
        CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
    MpiError::Call { call, code, class, text }
}

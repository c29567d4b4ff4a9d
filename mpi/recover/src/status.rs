//! Statuses, as programs read them.

use std::ffi::c_int;

use mpi_sys as ffi;

/// Outcome of a request.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    /// Bytes received.
    pub(crate) len: usize,
    pub(crate) is_cancelled: bool,
    /// Error code, or 0.
    pub(crate) code: c_int,
    /// Status of a generalized request, filled in by the program's function.
    pub(crate) own: Option<Box<ffi::MPI_Status>>,
}

impl Outcome {
    /// Returns the outcome of a send, a collective operation, or an inactive request.
    pub(crate) fn empty() -> Outcome {
        // SAFETY: shim constants.
        let (source, tag) = unsafe { (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG) };
        Outcome { source, tag, len: 0, is_cancelled: false, code: 0, own: None }
    }

    /// Returns a receive's outcome from `MPI_PROC_NULL`.
    pub(crate) fn of_nobody() -> Outcome {
        // SAFETY: a shim constant.
        Outcome { source: unsafe { ffi::RSMPI_PROC_NULL }, ..Outcome::empty() }
    }

    /// Stores it, unless the program ignores the status.
    ///
    /// `MPI_ERROR` is left as it is: only calls completing several requests set it.
    ///
    /// # Safety
    /// The program's status.
    pub(crate) unsafe fn store(&self, status: *mut ffi::MPI_Status) {
        // SAFETY: the program's status; the functions are local.
        unsafe {
            if status == ffi::RSMPI_STATUS_IGNORE {
                return;
            }
            if let Some(own) = &self.own {
                let error = (*status).MPI_ERROR;
                status.write(**own);
                (*status).MPI_ERROR = error;
                return;
            }
            (*status).MPI_SOURCE = self.source;
            (*status).MPI_TAG = self.tag;
            ffi::PMPI_Status_set_elements_x(status, ffi::RSMPI_UINT8_T, self.len as ffi::MPI_Count);
            ffi::PMPI_Status_set_cancelled(status, c_int::from(self.is_cancelled));
        }
    }
}

//! Communicators after a process failure: User-Level Failure Mitigation (MPI 5.0 draft; Open MPI 5 with `mpirun --with-ft ulfm`).

use std::ffi::c_int;

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::control::failures::{is_failure, ranks_of};
use crate::error::{MpiError, check};

// control/failures.c, which includes mpi-ext.h.
unsafe extern "C" {
    safe fn counterfoil_outlives_failures() -> c_int;
    fn counterfoil_failed(comm: ffi::MPI_Comm, failed: *mut ffi::MPI_Group) -> c_int;
    fn counterfoil_meet(comm: ffi::MPI_Comm, flag: *mut c_int, request: *mut ffi::MPI_Request) -> c_int;
}

/// Returns `true` if processes outlive the failure of another one. MPI is initialised.
pub(crate) fn outlives_failures() -> bool {
    counterfoil_outlives_failures() != 0
}

impl MpiError {
    /// Returns `true` if the error reports a failed process, or a communicator that was revoked after a failure.
    pub fn is_process_failure(&self) -> bool {
        matches!(self, MpiError::Call { code, .. } if is_failure(*code))
    }
}

/// Barrier of the living ranks that was begun. Dropped before its completion, it leaves its flag to MPI.
#[derive(Debug)]
pub(crate) struct Meeting {
    request: ffi::MPI_Request,
    /// On the heap, and MPI's until the barrier is complete; null afterwards.
    flag: *mut c_int,
}

impl Comm {
    /// Returns the ranks that have failed, and acknowledges these failures: receives from any source go on without them.
    pub(crate) fn failed_ranks(&self) -> Result<Vec<u32>, MpiError> {
        // SAFETY: a valid communicator, a pointer to a local variable, and a group of its members.
        unsafe {
            let mut failed = ffi::RSMPI_GROUP_NULL;
            check("MPIX_Comm_failure_get_acked", counterfoil_failed(self.raw(), &raw mut failed))?;
            ranks_of(failed, self.raw())
        }
    }

    /// Begins a barrier of the living ranks, which completes in spite of failures.
    pub(crate) fn meet(&self) -> Result<Meeting, MpiError> {
        let mut meeting = Meeting {
            // SAFETY: a constant of the shim.
            request: unsafe { ffi::RSMPI_REQUEST_NULL },
            flag: Box::into_raw(Box::new(1)),
        };
        // SAFETY: a valid communicator, a pointer to a local variable, and a flag that is not freed before the request is complete.
        let code = unsafe { counterfoil_meet(self.raw(), meeting.flag, &raw mut meeting.request) };
        check("MPIX_Comm_iagree", code)?;
        Ok(meeting)
    }
}

impl Meeting {
    /// Returns `Some` once all living ranks have begun the barrier: `true` if all had acknowledged the same failures before, `false` on all
    /// of them otherwise.
    pub(crate) fn poll(&mut self) -> Result<Option<bool>, MpiError> {
        let mut flag = 0;
        // SAFETY: a request of `meet`, or the null request that an earlier test left.
        let code = unsafe { ffi::PMPI_Test(&raw mut self.request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        let agreed = match check("MPI_Test", code) {
            Err(error) if error.is_process_failure() => Some(false),
            Err(error) => return Err(error),
            Ok(()) => (flag != 0).then_some(true),
        };
        if agreed.is_some() && !self.flag.is_null() {
            // SAFETY: it came from `into_raw`, and MPI no longer uses it.
            drop(unsafe { Box::from_raw(std::mem::replace(&mut self.flag, std::ptr::null_mut())) });
        }
        Ok(agreed)
    }
}

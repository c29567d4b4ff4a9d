//! Communicators after a process failure: User-Level Failure Mitigation (MPI 5.0 draft; Open MPI 5 with `mpirun --with-ft ulfm`).

use std::ffi::c_int;

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::control::failures::{acknowledge_failures, begin_agreement, is_failure};
use crate::error::{MpiError, check};

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
        // SAFETY: a valid communicator.
        unsafe { acknowledge_failures(self.raw()) }
    }

    /// Begins a barrier of the living ranks, which completes in spite of failures.
    pub(crate) fn meet(&self) -> Result<Meeting, MpiError> {
        let flag = Box::into_raw(Box::new(1));
        // SAFETY: a valid communicator, and a flag that is not freed before the request is complete.
        let request = unsafe { begin_agreement(self.raw(), flag) }?;
        Ok(Meeting { request, flag })
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

//! Communicators after a process failure: User-Level Failure Mitigation (MPI 5.0 draft; Open MPI 5 with `mpirun --with-ft ulfm`).

use std::ffi::c_int;
use std::rc::Rc;

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::control::failures::{is_failure, ranks_of};
use crate::error::{MpiError, check};

// control/failures.c, which includes mpi-ext.h.
unsafe extern "C" {
    safe fn counterfoil_outlives_failures() -> c_int;
    safe fn counterfoil_is_revoked(code: c_int) -> c_int;
    fn counterfoil_failed(comm: ffi::MPI_Comm, failed: *mut ffi::MPI_Group) -> c_int;
    fn counterfoil_living(comm: ffi::MPI_Comm, living: *mut ffi::MPI_Comm) -> c_int;
    fn counterfoil_agree(comm: ffi::MPI_Comm, flag: *mut c_int) -> c_int;
    fn counterfoil_meet(comm: ffi::MPI_Comm, flag: *mut c_int, request: *mut ffi::MPI_Request) -> c_int;
    fn counterfoil_revoke(comm: ffi::MPI_Comm) -> c_int;
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

    /// Returns `true` if the error reports that the communicator was revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        matches!(self, MpiError::Call { code, .. } if counterfoil_is_revoked(*code) != 0)
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
    /// Revokes the communicator: every operation on it, of any rank, ends with an error, except [`shrink`](Self::shrink) and
    /// [`agree`](Self::agree).
    pub(crate) fn revoke(&self) -> Result<(), MpiError> {
        // SAFETY: a valid communicator.
        check("MPIX_Comm_revoke", unsafe { counterfoil_revoke(self.raw()) })
    }

    /// Returns the ranks that have failed; receives from any source go on without them.
    pub(crate) fn failed_ranks(&self) -> Result<Vec<u32>, MpiError> {
        // SAFETY: a valid communicator, a pointer to a local variable, and a group of its members.
        unsafe {
            let mut failed = ffi::RSMPI_GROUP_NULL;
            check("MPIX_Comm_failure_get_acked", counterfoil_failed(self.raw(), &raw mut failed))?;
            ranks_of(failed, self.raw())
        }
    }

    /// Creates a communicator of the living ranks, in their order. Collective over them.
    pub(crate) fn shrink(&self) -> Result<Comm, MpiError> {
        let mut raw = self.raw();
        // SAFETY: a valid communicator and a pointer to a local variable.
        check("MPIX_Comm_shrink", unsafe { counterfoil_living(self.raw(), &raw mut raw) })?;
        Ok(Comm::made(raw, Rc::clone(&self.universe)))
    }

    /// Returns `true` if every living rank has given `true`. Collective; fails on all ranks alike if a rank has failed unnoticed.
    pub(crate) fn agree(&self, flag: bool) -> Result<bool, MpiError> {
        let mut flag = c_int::from(flag);
        // SAFETY: a valid communicator and a pointer to a local variable.
        check("MPIX_Comm_agree", unsafe { counterfoil_agree(self.raw(), &raw mut flag) })?;
        Ok(flag != 0)
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

    /// Copies `own` of every rank to all ranks, in their order. Collective.
    pub(crate) fn all_gather_u32(&self, own: u32) -> Result<Vec<u32>, MpiError> {
        let mut bytes = vec![0; 4 * self.size()? as usize];
        self.all_gather(&own.to_le_bytes(), &mut bytes)?;
        let numbers = bytes.chunks_exact(4).filter_map(|number| number.try_into().ok().map(u32::from_le_bytes));
        Ok(numbers.collect())
    }
}

impl Meeting {
    /// Returns `true` once all living ranks have begun the barrier.
    pub(crate) fn test(&mut self) -> Result<bool, MpiError> {
        let mut flag = 0;
        // SAFETY: a request of `meet`, or the null request that an earlier test left.
        let code = unsafe { ffi::PMPI_Test(&raw mut self.request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        let is_complete = match check("MPI_Test", code) {
            // The agreement is complete, and reports a failure.
            Err(error) if error.is_process_failure() => true,
            Err(error) => return Err(error),
            Ok(()) => flag != 0,
        };
        if is_complete && !self.flag.is_null() {
            // SAFETY: it came from `into_raw`, and MPI no longer uses it.
            drop(unsafe { Box::from_raw(std::mem::replace(&mut self.flag, std::ptr::null_mut())) });
        }
        Ok(is_complete)
    }
}

//! Communicators after a process failure: User-Level Failure Mitigation (MPI 5.0 draft; Open MPI 5 with
//! `mpirun --with-ft ulfm`).

use std::ffi::c_int;

use mpi_sys as ffi;

use crate::comm::Comm;
use crate::control::failures::{acknowledge_failures, begin_agreement, is_failure};
use crate::error::{MpiError, check};
use crate::watchdog::Call;

impl MpiError {
    /// Returns `true` if the error reports a failed process, or a communicator revoked after a failure.
    pub fn is_process_failure(&self) -> bool {
        matches!(self, MpiError::Call { code, .. } if is_failure(*code))
    }
}

/// A started barrier over the living ranks.
///
/// Dropped before its completion, it leaves its flag to MPI.
#[derive(Debug)]
pub struct Meeting {
    request: ffi::MPI_Request,
    /// On the heap, and MPI's until the barrier is complete; null afterwards.
    flag: *mut c_int,
}

impl Comm {
    /// Returns and acknowledges the failed ranks, so receives from any source continue without them.
    pub fn failed_ranks(&self) -> Result<Vec<u32>, MpiError> {
        // SAFETY: a valid communicator.
        unsafe { acknowledge_failures(self.raw()) }
    }

    /// Begins a barrier over the living ranks, comparing each rank's value.
    ///
    /// It completes in spite of failures.
    pub fn meet(&self, compared: u16) -> Result<Meeting, MpiError> {
        let flag = Box::into_raw(Box::new(with_complement(compared)));
        // SAFETY: a valid communicator, and a flag not freed before the request is complete.
        let request = unsafe { begin_agreement(self.raw(), flag) }?;
        Ok(Meeting { request, flag })
    }
}

impl Meeting {
    /// Returns `Some` once all living ranks have begun the barrier.
    ///
    /// `true` if all have given it the same value; otherwise, or if MPI meanwhile found a failure not acknowledged by
    /// all, `false` on every rank. (It doesn't find every failure: a participating rank unaware of one doesn't make it
    /// fail.)
    pub fn poll(&mut self) -> Result<Option<bool>, MpiError> {
        let mut flag = 0;
        let _call = Call::begin();
        // SAFETY: a request from `meet`, or the null request left by an earlier test.
        let code = unsafe { ffi::PMPI_Test(&raw mut self.request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
        let is_agreed = match check("MPI_Test", code) {
            Err(error) if error.is_process_failure() => false,
            Err(error) => return Err(error),
            Ok(()) if flag == 0 => return Ok(None),
            Ok(()) => true,
        };
        if self.flag.is_null() {
            return Ok(Some(is_agreed));
        }
        // SAFETY: it came from `into_raw`, and MPI no longer uses it.
        let combined = unsafe { Box::from_raw(std::mem::replace(&mut self.flag, std::ptr::null_mut())) };
        Ok(Some(is_agreed && is_same(*combined)))
    }
}

/// Returns a number with its complement.
///
/// Combined by a bitwise and, as in an agreement, two different ones lose a bit in both halves.
fn with_complement(compared: u16) -> c_int {
    (u32::from(compared) << 16 | u32::from(!compared)).cast_signed()
}

/// Returns `true` if all combined numbers are the same.
fn is_same(combined: c_int) -> bool {
    let combined = combined.cast_unsigned();
    (combined >> 16) as u16 == !(combined as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_in_one_bit_is_not_the_same_whoever_is_asked() {
        for compared in [0, 1, 0x1234, u16::MAX] {
            let own = with_complement(compared);
            assert!(is_same(own) && is_same(own & own));
            for bit in 0..16 {
                assert!(!is_same(own & with_complement(compared ^ 1 << bit)), "{compared} {bit}");
                assert!(!is_same(own & with_complement(compared ^ 1 << bit) & own));
            }
        }
    }
}

//! Survivable process failures, where the MPI supports them.
//!
//! This is User-Level Failure Mitigation: `mpirun --with-ft ulfm` in Open MPI 5. Failed ranks are waited for no more,
//! and everything else continues.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use mpi_sys as ffi;

use crate::error::{MpiError, check};

/// Time for the other processes to learn about a revocation.
const REVOCATION_TIME: Duration = Duration::from_millis(50);

// failures.c, next to this file, which includes mpi-ext.h.
unsafe extern "C" {
    safe fn counterfoil_outlives_failures() -> c_int;
    safe fn counterfoil_is_failure(code: c_int) -> c_int;
    safe fn counterfoil_is_pending(code: c_int) -> c_int;
    safe fn counterfoil_failed_code() -> c_int;
    fn counterfoil_failed(comm: ffi::MPI_Comm, failed: *mut ffi::MPI_Group) -> c_int;
    fn counterfoil_living(comm: ffi::MPI_Comm, living: *mut ffi::MPI_Comm) -> c_int;
    fn counterfoil_meet(comm: ffi::MPI_Comm, flag: *mut c_int, request: *mut ffi::MPI_Request) -> c_int;
    fn counterfoil_revoke(comm: ffi::MPI_Comm) -> c_int;
    fn counterfoil_is_revoked(comm: ffi::MPI_Comm) -> c_int;
}

/// Returns `true` for an MPI error code reporting a process failure, or a communicator revoked after one.
#[inline]
pub fn is_failure(code: c_int) -> bool {
    code != 0 && counterfoil_is_failure(code) != 0
}

/// Returns `true` for the error code of an interrupted receive still pending after a failure
/// (`MPIX_ERR_PROC_FAILED_PENDING`).
#[inline]
pub fn is_pending(code: c_int) -> bool {
    code != 0 && counterfoil_is_pending(code) != 0
}

/// Returns the error code for a blocking call interrupted by a failure (`MPIX_ERR_PROC_FAILED`).
pub fn failed_code() -> c_int {
    counterfoil_failed_code()
}

/// Returns `true` for an error reporting a process failure.
pub(super) fn reports_failure(error: &MpiError) -> bool {
    matches!(error, MpiError::Call { code, .. } if is_failure(*code))
}

/// Failed ranks in MPI_COMM_WORLD.
#[derive(Debug)]
pub struct Failures {
    /// True if other processes survive a failure.
    is_survivable: bool,
    has_failed: Vec<bool>,
    /// Failed ranks not yet returned by [`poll`](Self::poll).
    unreported: Vec<u32>,
    /// Agreement result in [`meet`](Self::meet); one per process, never freed.
    flag: &'static mut c_int,
}

impl Failures {
    /// Returns the failures for a job of `ranks` ranks, survivable if the MPI supports it.
    pub(super) fn new(ranks: u32) -> Failures {
        Failures { is_survivable: outlives_failures(), ..Failures::fatal(ranks) }
    }

    /// Returns the failures for a job ending with its first failed rank, whatever the MPI supports.
    pub(super) fn fatal(ranks: u32) -> Failures {
        Failures {
            is_survivable: false,
            has_failed: vec![false; ranks as usize],
            unreported: Vec::new(),
            flag: Box::leak(Box::new(1)),
        }
    }

    /// Returns `true` if processes may fail while others live.
    pub fn are_survivable(&self) -> bool {
        self.is_survivable
    }

    /// Returns `true` for an error reporting a survivable failure.
    pub(super) fn explain(&self, error: &MpiError) -> bool {
        self.is_survivable && reports_failure(error)
    }

    /// Turns errors for survivable failures into success, where they make no difference.
    pub(super) fn ignore(&self, done: Result<(), MpiError>) -> Result<(), MpiError> {
        match done {
            Err(error) if self.explain(&error) => Ok(()),
            done => done,
        }
    }

    /// Returns `true` if a rank has failed.
    pub fn has_failed(&self, rank: u32) -> bool {
        self.has_failed.get(rank as usize) == Some(&true)
    }

    /// Returns `true` if any rank has failed.
    pub fn any_failed(&self) -> bool {
        self.has_failed.contains(&true)
    }

    /// Takes the ranks that failed since the last call.
    pub fn poll(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unreported)
    }

    /// Asks MPI for failed members of an MPI_COMM_WORLD duplicate, after a call on it has reported a failure.
    pub(super) fn update(&mut self, comm: ffi::MPI_Comm) -> Result<(), MpiError> {
        // SAFETY: the control communicator, which is valid.
        for rank in unsafe { acknowledge_failures(comm) }? {
            if let Some(has_failed) = self.has_failed.get_mut(rank as usize)
                && !std::mem::replace(has_failed, true)
            {
                self.unreported.push(rank);
            }
        }
        Ok(())
    }

    /// Begins a barrier over all living ranks: an agreement, which completes in spite of failures.
    pub(super) fn meet(&mut self, comm: ffi::MPI_Comm) -> Result<ffi::MPI_Request, MpiError> {
        // SAFETY: the control communicator, which is valid, and a flag never freed and used by nothing else.
        unsafe { begin_agreement(comm, &raw mut *self.flag) }
    }
}

/// Returns `true` if processes survive another one's failure.
///
/// MPI is initialised.
pub fn outlives_failures() -> bool {
    counterfoil_outlives_failures() != 0
}

/// Tells all processes that the job ends: revokes MPI_COMM_WORLD, and makes progress for [`REVOCATION_TIME`].
///
/// Survivable failures only.
pub(crate) fn revoke_world() {
    // SAFETY: a predefined communicator. If MPI fails, the others don't learn about it.
    unsafe { counterfoil_revoke(ffi::RSMPI_COMM_WORLD) };
    let begun = Instant::now();
    while begun.elapsed() < REVOCATION_TIME {
        let mut flag = 0;
        // SAFETY: a predefined communicator and a pointer to a local variable.
        unsafe { ffi::PMPI_Iprobe(0, 0, ffi::RSMPI_COMM_SELF, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
    }
}

/// Returns `true` if a process has told all others that the job ends.
pub fn is_world_revoked() -> bool {
    // SAFETY: a predefined communicator.
    unsafe { counterfoil_is_revoked(ffi::RSMPI_COMM_WORLD) != 0 }
}

/// Returns and acknowledges a communicator's failed members, so receives from any source continue without them.
///
/// Returns none where the MPI doesn't survive failures.
///
/// # Safety
/// `comm` is valid.
pub(crate) unsafe fn acknowledge_failures(comm: ffi::MPI_Comm) -> Result<Vec<u32>, MpiError> {
    if !outlives_failures() {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise, a pointer to a local variable, and a group of `comm`'s members.
    unsafe {
        let mut failed = ffi::RSMPI_GROUP_NULL;
        check("MPIX_Comm_failure_get_acked", counterfoil_failed(comm, &raw mut failed))?;
        ranks_of(failed, comm)
    }
}

/// Begins an agreement among a communicator's living members, which completes in spite of failures.
///
/// # Safety
/// `comm` is valid. Nothing else uses `flag`, which stays valid until the request is complete.
pub(crate) unsafe fn begin_agreement(comm: ffi::MPI_Comm, flag: *mut c_int) -> Result<ffi::MPI_Request, MpiError> {
    // SAFETY: the caller's promise, a shim constant, and a pointer to a local variable.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        check("MPIX_Comm_iagree", counterfoil_meet(comm, flag, &raw mut request))?;
        Ok(request)
    }
}

/// Returns the ranks of a group's members in a communicator, and frees the group.
///
/// # Safety
/// `comm` is valid, and the group's members are among its members.
unsafe fn ranks_of(mut group: ffi::MPI_Group, comm: ffi::MPI_Comm) -> Result<Vec<u32>, MpiError> {
    let mut size = 0;
    // SAFETY: the caller's promise, pointers to local variables, and arrays with an element for each member.
    unsafe {
        let mut all = ffi::RSMPI_GROUP_NULL;
        check("MPI_Comm_group", ffi::PMPI_Comm_group(comm, &raw mut all))?;
        check("MPI_Group_size", ffi::PMPI_Group_size(group, &raw mut size))?;
        let ranks: Vec<c_int> = (0..size).collect();
        let mut there = vec![0; ranks.len()];
        check(
            "MPI_Group_translate_ranks",
            ffi::PMPI_Group_translate_ranks(group, size, ranks.as_ptr(), all, there.as_mut_ptr()),
        )?;
        check("MPI_Group_free", ffi::PMPI_Group_free(&raw mut all))?;
        check("MPI_Group_free", ffi::PMPI_Group_free(&raw mut group))?;
        Ok(there.into_iter().filter_map(|rank| u32::try_from(rank).ok()).collect())
    }
}

/// Exchanges the numbers of messages sent between all living ranks; all of them call this.
///
/// Returns for each rank the number sent to this one; 0 for failed ranks.
pub(super) fn exchange_counts(comm: ffi::MPI_Comm, sent: &[u64]) -> Result<Vec<u64>, MpiError> {
    // SAFETY: a communicator whose living ranks all call this, pointers to local variables, and arrays with an element
    // for each living rank.
    unsafe {
        let mut living = ffi::RSMPI_COMM_NULL;
        check("MPIX_Comm_shrink", counterfoil_living(comm, &raw mut living))?;
        let exchanged = exchange_among_living(comm, living, sent);
        if exchanged.is_err() {
            // Another rank has failed: revoke, so ranks waiting for this one don't do so for ever.
            counterfoil_revoke(living);
        }
        check("MPI_Comm_free", ffi::PMPI_Comm_free(&raw mut living))?;
        exchanged
    }
}

/// Implements [`exchange_counts`] on the communicator of living ranks.
///
/// # Safety
/// Both communicators are valid, the members of `living` are members of `comm`, and all of them call this.
unsafe fn exchange_among_living(
    comm: ffi::MPI_Comm,
    living: ffi::MPI_Comm,
    sent: &[u64],
) -> Result<Vec<u64>, MpiError> {
    // SAFETY: the caller's promise, a pointer to a local variable, and arrays with an element for each living rank.
    unsafe {
        let mut group = ffi::RSMPI_GROUP_NULL;
        check("MPI_Comm_group", ffi::PMPI_Comm_group(living, &raw mut group))?;
        let ranks = ranks_of(group, comm)?;
        let mine: Vec<u64> = ranks.iter().map(|rank| sent.get(*rank as usize).copied().unwrap_or(0)).collect();
        let mut theirs = vec![0u64; mine.len()];
        let (from, to) = (mine.as_ptr().cast(), theirs.as_mut_ptr().cast());
        check("MPI_Alltoall", ffi::PMPI_Alltoall(from, 1, ffi::RSMPI_UINT64_T, to, 1, ffi::RSMPI_UINT64_T, living))?;
        let mut expected = vec![0; sent.len()];
        for (rank, count) in ranks.into_iter().zip(theirs) {
            if let Some(expected) = expected.get_mut(rank as usize) {
                *expected = count;
            }
        }
        Ok(expected)
    }
}

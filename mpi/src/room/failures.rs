//! Processes that fail while the others live on, where the MPI can do that (User-Level Failure Mitigation: `mpirun --with-ft ulfm` of
//! Open MPI 5): ranks that have failed are waited for no more, and everything else goes on.

use std::ffi::c_int;

use mpi_sys as ffi;

use crate::error::{MpiError, check};

// Made of mpi-ext.h: failures.c, beside this file.
unsafe extern "C" {
    safe fn counterfoil_outlives_failures() -> c_int;
    safe fn counterfoil_is_failure(code: c_int) -> c_int;
    fn counterfoil_failed(comm: ffi::MPI_Comm, failed: *mut ffi::MPI_Group) -> c_int;
    fn counterfoil_living(comm: ffi::MPI_Comm, living: *mut ffi::MPI_Comm) -> c_int;
    fn counterfoil_meet(comm: ffi::MPI_Comm, flag: *mut c_int, request: *mut ffi::MPI_Request) -> c_int;
    fn counterfoil_revoke(comm: ffi::MPI_Comm) -> c_int;
}

/// Whether a code of MPI says that a process has failed, or that a communicator was revoked for that.
#[inline]
pub fn is_failure(code: c_int) -> bool {
    code != 0 && counterfoil_is_failure(code) != 0
}

/// The same of an error.
pub(super) fn says_failure(error: &MpiError) -> bool {
    matches!(error, MpiError::Call { code, .. } if is_failure(*code))
}

/// Which ranks of MPI_COMM_WORLD have failed.
#[derive(Debug)]
pub struct Failures {
    /// Whether the others live on.
    may_come: bool,
    is_gone: Vec<bool>,
    /// Those that nobody has been [told](Self::news) of yet.
    news: Vec<u32>,
    /// Where MPI puts what a meeting agrees on: never freed, a process has one.
    flag: &'static mut c_int,
}

impl Failures {
    /// Of a job of so many ranks, in which the others live on if the MPI lets them.
    pub(super) fn new(ranks: u32) -> Failures {
        Failures { may_come: counterfoil_outlives_failures() != 0, ..Failures::none(ranks) }
    }

    /// Of a job that ends when one of its ranks does, whatever the MPI can.
    pub(super) fn none(ranks: u32) -> Failures {
        Failures {
            may_come: false,
            is_gone: vec![false; ranks as usize],
            news: Vec::new(),
            flag: Box::leak(Box::new(1)),
        }
    }

    /// Whether processes may fail while others live.
    pub(super) fn may_come(&self) -> bool {
        self.may_come
    }

    /// Whether an error says that one has.
    pub(super) fn explain(&self, error: &MpiError) -> bool {
        self.may_come && says_failure(error)
    }

    /// What was done, where it doesn't matter that somebody has failed.
    pub(super) fn pass_over(&self, done: Result<(), MpiError>) -> Result<(), MpiError> {
        match done {
            Err(error) if self.explain(&error) => Ok(()),
            done => done,
        }
    }

    /// Whether a rank has failed.
    pub fn is_gone(&self, rank: u32) -> bool {
        self.is_gone.get(rank as usize) == Some(&true)
    }

    /// How many have failed.
    pub fn count(&self) -> u32 {
        self.is_gone.iter().map(|is_gone| u32::from(*is_gone)).sum()
    }

    /// Which ranks have failed since this was last asked.
    pub fn news(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.news)
    }

    /// MPI has said of an operation on a duplicate of MPI_COMM_WORLD that somebody has failed: finds out who.
    pub(super) fn note(&mut self, comm: ffi::MPI_Comm) -> Result<(), MpiError> {
        // SAFETY: a living communicator and a pointer to a local variable.
        let gone = unsafe {
            let mut failed = ffi::RSMPI_GROUP_NULL;
            check("MPIX_Comm_failure_get_acked", counterfoil_failed(comm, &raw mut failed))?;
            ranks_of(failed, comm)?
        };
        for rank in gone {
            if let Some(is_gone) = self.is_gone.get_mut(rank as usize)
                && !std::mem::replace(is_gone, true)
            {
                self.news.push(rank);
            }
        }
        Ok(())
    }

    /// Begins to wait until everybody who lives has come here: a barrier that is right with failures.
    pub(super) fn meet(&mut self, comm: ffi::MPI_Comm) -> Result<ffi::MPI_Request, MpiError> {
        // SAFETY: a living communicator, a flag that is there for ever and that nobody else uses, and a pointer to a local variable.
        unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            check("MPIX_Comm_iagree", counterfoil_meet(comm, &raw mut *self.flag, &raw mut request))?;
            Ok(request)
        }
    }
}

/// The ranks in a communicator of the members of a group, which is given back to MPI.
///
/// # Safety
/// A living communicator, and a group of processes in it.
unsafe fn ranks_of(mut group: ffi::MPI_Group, comm: ffi::MPI_Comm) -> Result<Vec<u32>, MpiError> {
    let mut size = 0;
    // SAFETY: the caller's promise, pointers to local variables, and arrays with a number for each of the group.
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

/// All who live tell each other how many messages they have sent to each: of each rank, how many to this one; 0 of those that have
/// failed. All who live do this together.
pub(super) fn tell_counts(comm: ffi::MPI_Comm, sent: &[u64]) -> Result<Vec<u64>, MpiError> {
    // SAFETY: a communicator whose ranks all do this now, pointers to local variables, and arrays with a number for each living rank.
    unsafe {
        let mut living = ffi::RSMPI_COMM_NULL;
        check("MPIX_Comm_shrink", counterfoil_living(comm, &raw mut living))?;
        let told = tell_living(comm, living, sent);
        if told.is_err() {
            // Another one has failed: who waits for this rank must not do so for ever.
            counterfoil_revoke(living);
        }
        check("MPI_Comm_free", ffi::PMPI_Comm_free(&raw mut living))?;
        told
    }
}

/// [`tell_counts`] on the communicator of those who live.
///
/// # Safety
/// Both are living communicators, one of the ranks of the other; all its ranks do this now.
unsafe fn tell_living(comm: ffi::MPI_Comm, living: ffi::MPI_Comm, sent: &[u64]) -> Result<Vec<u64>, MpiError> {
    // SAFETY: the caller's promise, a pointer to a local variable, and arrays with a number for each living rank.
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

//! A wait for all of several requests, which handles each as it ends.

use std::ffi::c_int;

use mpi_sys as ffi;
use smallvec::{SmallVec, smallvec};

use super::completion::some;
use crate::next;
use crate::session::requests::is_null;
use crate::status::{Statuses, blank, empty, statuses_wanted};

/// Requests tested together, the first of them pending: tests of all take too long where there are very many.
const WINDOW: usize = 32;
/// Tests of a window without an end before all requests are tested once: one of them may have failed.
const TESTS_MAX: u32 = 256;

/// Progress of a wait for all of `count` requests.
struct Wait {
    count: usize,
    requests: *mut ffi::MPI_Request,
    /// One for each request.
    statuses: *mut ffi::MPI_Status,
    has_ended: Vec<bool>,
}

/// Outcome of a test.
enum Tested {
    /// No request is active any more.
    Inactive,
    /// None has ended, or some have, without an error.
    Ended { any: bool },
    /// The call is over with this code.
    Failed(c_int),
}

impl Wait {
    /// Tests the requests from `begin` on, at most `len`, and handles the ended ones.
    fn test(&mut self, begin: usize, len: usize) -> Tested {
        let len = len.min(self.count - begin);
        let mut ended = 0;
        let mut indices: SmallVec<[c_int; WINDOW]> = smallvec![0; len];
        let mut statuses = Statuses::new();
        statuses.resize(len, blank());
        // The program's arrays are no longer than this.
        let count = c_int::try_from(len).unwrap_or(c_int::MAX);
        // SAFETY: `begin` and `len` are within the program's requests.
        let requests = unsafe { self.requests.add(begin) };
        let (outcount, into, of_ended) = (&raw mut ended, indices.as_mut_ptr(), statuses.as_mut_ptr());
        // SAFETY: as above, and arrays of as many elements.
        let call = |statuses| unsafe { (next::Testsome.get())(count, requests, outcount, into, statuses) };
        // A test that finds none is not one of the program's.
        // SAFETY: as above.
        let (code, those) = unsafe { some((count, requests), outcount, into, of_ended, call, |_, _| {}) };
        for (at, index) in those.iter().enumerate() {
            let Some(index) = usize::try_from(*index).ok().filter(|index| *index < len) else { continue };
            self.has_ended[begin + index] = true;
            // SAFETY: one status for each request.
            unsafe { self.statuses.add(begin + index).write(statuses[at]) };
        }
        match code {
            // SAFETY: a constant of the shim.
            0 if ended == unsafe { ffi::RSMPI_UNDEFINED } => Tested::Inactive,
            0 => Tested::Ended { any: !those.is_empty() },
            code => Tested::Failed(code),
        }
    }

    /// Tests until all have ended, and returns the call's code.
    fn finish(&mut self) -> c_int {
        let (mut begin, mut failed_tests) = (0, 0);
        while begin < self.count {
            let is_all = failed_tests == TESTS_MAX;
            let tested = if is_all { self.test(0, self.count) } else { self.test(begin, WINDOW) };
            match tested {
                Tested::Inactive if is_all => break,
                Tested::Inactive => begin += WINDOW,
                Tested::Ended { any } => failed_tests = if any || is_all { 0 } else { failed_tests + 1 },
                Tested::Failed(code) => {
                    self.mark_pending();
                    return code;
                }
            }
            begin += self.has_ended.get(begin..).unwrap_or_default().iter().take_while(|ended| **ended).count();
        }
        0
    }

    /// Marks pending requests in the statuses after an error.
    fn mark_pending(&mut self) {
        for index in (0..self.count).filter(|index| !self.has_ended[*index]) {
            // SAFETY: as many requests and statuses.
            unsafe {
                if !is_null(*self.requests.add(index)) {
                    (*self.statuses.add(index)).MPI_ERROR = ffi::MPI_ERR_PENDING as c_int;
                }
            }
        }
    }
}

/// Waits for all of several requests, and handles each as it ends.
///
/// Their messages are acknowledged while others are awaited, which their senders may lack space for until then. Ends
/// like Open MPI's `MPI_Waitall`: when all have ended, or one has failed.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(super) unsafe fn wait_in_turn(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    statuses: *mut ffi::MPI_Status,
) -> c_int {
    let mut ours = Statuses::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let count = usize::try_from(count).unwrap_or(0);
    let empty = empty();
    for index in 0..count {
        // SAFETY: one status for each request; an inactive request's is empty.
        unsafe { statuses.add(index).write(empty) };
    }
    Wait { count, requests, statuses, has_ended: vec![false; count] }.finish()
}

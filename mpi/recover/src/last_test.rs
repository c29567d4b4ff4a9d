//! The last test or probe that found nothing.
//!
//! A program that tests in a loop repeats it, and most repetitions need no poll of the MPI: each is counted, as the
//! record of outcomes demands, and finds nothing again.

use std::cell::RefCell;

use mpi_sys as ffi;

use crate::failure::Failure;
use crate::front::Front;

/// A test or probe.
#[derive(Clone, Copy)]
pub(crate) enum Test<'a> {
    /// Of any of these requests.
    Any(&'a [ffi::MPI_Request]),
    /// Of all of them.
    All(&'a [ffi::MPI_Request]),
    /// Of a message in a communicator, from a job rank, with a tag; `None` is a wildcard.
    Probe(ffi::MPI_Comm, Option<u32>, Option<i32>),
}

/// Kind of a test of requests, or a probe; none at first.
#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    None,
    Any,
    All,
    Probe(ffi::MPI_Comm, Option<u32>, Option<i32>),
}

/// The last test that found nothing.
#[derive(Default)]
pub(crate) struct LastTest(RefCell<(Kind, Vec<ffi::MPI_Request>)>);

impl LastTest {
    /// Forgets the test: a handle may have another meaning.
    pub(crate) fn forget(&self) {
        self.0.borrow_mut().0 = Kind::None;
    }
}

impl Front {
    /// Notes that the process's last call was this test, and found nothing.
    ///
    /// All its requests are the endpoint's: no other call completes them.
    pub(crate) fn note_nothing_found(&self, test: Test<'_>) {
        let (kind, handles) = &mut *self.last_test.0.borrow_mut();
        let (its_kind, its_handles) = test.parts();
        *kind = its_kind;
        handles.clear();
        handles.extend_from_slice(its_handles);
        self.process.note_nothing_found();
    }

    /// Returns `true` if this test was the process's last call, and no poll is due: it finds nothing again.
    pub(crate) fn finds_nothing_again(&self, test: Test<'_>) -> Result<bool, Failure> {
        let (kind, handles) = &*self.last_test.0.borrow();
        Ok((*kind, handles.as_slice()) == test.parts() && self.process.repeat_nothing_found()?)
    }
}

impl<'a> Test<'a> {
    fn parts(self) -> (Kind, &'a [ffi::MPI_Request]) {
        match self {
            Test::Any(handles) => (Kind::Any, handles),
            Test::All(handles) => (Kind::All, handles),
            Test::Probe(comm, source, tag) => (Kind::Probe(comm, source, tag), &[]),
        }
    }
}

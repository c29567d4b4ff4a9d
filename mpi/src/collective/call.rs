//! Which of MPI's functions does what, at once or later.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use mpi_sys as ffi;

use super::{Elements, Parts, Ready, Reduction, What};
use crate::error::{MpiError, check};
use crate::request::{Borrowed, Kind, LocalScope, Memory, Pending, none};

/// Calls the function that does it at once, or the one that begins it: the name, and what it returns.
macro_rules! call {
    ($later:expr, $now:ident, $begin:ident, $($argument:expr),* $(,)?) => {
        match $later {
            None => (stringify!($now), ffi::$now($($argument),*)),
            Some(request) => (stringify!($begin), ffi::$begin($($argument),*, request)),
        }
    };
}

impl<'b, B: ?Sized> Ready<'_, 'b, B> {
    /// # Safety
    /// The memory is this operation's alone until it is over; `later` is where a request can be put that is ended afterwards, or `None`.
    unsafe fn call(&self, later: Option<*mut ffi::MPI_Request>) -> Result<(), MpiError> {
        let (from, into) = (self.from.0.cast::<c_void>(), self.into.0.cast::<c_void>());
        // That both fit was seen in `fits`.
        let (len, room) = (self.from.1 as c_int, self.into.1 as c_int);
        let (comm, ranks) = (self.comm.raw(), self.comm.size()? as c_int);
        let lens = |parts: &Option<Parts>| parts.as_ref().map_or(std::ptr::null(), |parts| parts.lens.as_ptr());
        let places = |parts: &Option<Parts>| parts.as_ref().map_or(std::ptr::null(), |parts| parts.places.as_ptr());
        let (lens_from, places_from) = (lens(&self.from_parts), places(&self.from_parts));
        let (lens_into, places_into) = (lens(&self.into_parts), places(&self.into_parts));
        // SAFETY: the caller's promise; `fits` has seen that there is memory for what this rank gives and gets, MPI doesn't look at the
        // rest.
        let (name, code) = unsafe {
            let byte = ffi::RSMPI_UINT8_T;
            match self.what {
                What::Barrier => match later {
                    None => ("MPI_Barrier", ffi::MPI_Barrier(comm)),
                    Some(request) => ("MPI_Ibarrier", ffi::MPI_Ibarrier(comm, request)),
                },
                What::Broadcast { root } => {
                    call!(later, MPI_Bcast, MPI_Ibcast, into, room, byte, root as c_int, comm)
                }
                What::Gather { root, in_parts: true } => call!(
                    later,
                    MPI_Gatherv,
                    MPI_Igatherv,
                    from,
                    len,
                    byte,
                    into,
                    lens_into,
                    places_into,
                    byte,
                    root as c_int,
                    comm
                ),
                What::Gather { root, .. } => {
                    call!(later, MPI_Gather, MPI_Igather, from, len, byte, into, len, byte, root as c_int, comm)
                }
                What::Scatter { root, in_parts: true } => call!(
                    later,
                    MPI_Scatterv,
                    MPI_Iscatterv,
                    from,
                    lens_from,
                    places_from,
                    byte,
                    into,
                    room,
                    byte,
                    root as c_int,
                    comm
                ),
                What::Scatter { root, .. } => {
                    call!(later, MPI_Scatter, MPI_Iscatter, from, room, byte, into, room, byte, root as c_int, comm)
                }
                What::AllGather if self.into_parts.is_some() => call!(
                    later,
                    MPI_Allgatherv,
                    MPI_Iallgatherv,
                    from,
                    len,
                    byte,
                    into,
                    lens_into,
                    places_into,
                    byte,
                    comm
                ),
                What::AllGather => {
                    call!(later, MPI_Allgather, MPI_Iallgather, from, len, byte, into, len, byte, comm)
                }
                What::AllToAll if self.into_parts.is_some() => call!(
                    later,
                    MPI_Alltoallv,
                    MPI_Ialltoallv,
                    from,
                    lens_from,
                    places_from,
                    byte,
                    into,
                    lens_into,
                    places_into,
                    byte,
                    comm
                ),
                What::AllToAll => {
                    let part = len / ranks;
                    call!(later, MPI_Alltoall, MPI_Ialltoall, from, part, byte, into, part, byte, comm)
                }
                What::Reduce(which, Elements { operation, datatype, bytes }) => {
                    let len = (self.from.1 / bytes) as c_int;
                    match which {
                        Reduction::All => {
                            call!(later, MPI_Allreduce, MPI_Iallreduce, from, into, len, datatype, operation, comm)
                        }
                        Reduction::To(root) => call!(
                            later,
                            MPI_Reduce,
                            MPI_Ireduce,
                            from,
                            into,
                            len,
                            datatype,
                            operation,
                            root as c_int,
                            comm
                        ),
                        Reduction::Scattered => call!(
                            later,
                            MPI_Reduce_scatter_block,
                            MPI_Ireduce_scatter_block,
                            from,
                            into,
                            len / ranks,
                            datatype,
                            operation,
                            comm
                        ),
                        Reduction::UpToSelf => {
                            call!(later, MPI_Scan, MPI_Iscan, from, into, len, datatype, operation, comm)
                        }
                        Reduction::BeforeSelf => {
                            call!(later, MPI_Exscan, MPI_Iexscan, from, into, len, datatype, operation, comm)
                        }
                    }
                }
            }
        };
        check(name, code)
    }

    /// Does it.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn now(self) -> Result<(), MpiError> {
        // SAFETY: `self` has the borrows of the memory, and the call is over when this returns.
        unsafe { self.call(None) }
    }

    /// # Safety
    /// As of [`call`](Self::call): what is pending is over before `'b` ends.
    unsafe fn begin_unscoped(mut self) -> Result<(Pending, *mut B), MpiError> {
        let mut request = none();
        // SAFETY: the caller's promise; lengths and places are on the heap, where `Pending` leaves them.
        unsafe {
            self.call(Some(&raw mut request))?;
            let numbers = [self.from_parts.take(), self.into_parts.take()].into_iter().flatten();
            let numbers = numbers.flat_map(|parts| [parts.lens, parts.places]).collect();
            let memory = Memory { _numbers: numbers, ..Memory::default() };
            let universe = Rc::clone(&self.comm.universe);
            Ok((Pending::begun(request, Kind::Collective, memory, universe), self.memory))
        }
    }

    /// Begins it, and leaves it to be over before `scope` is.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn later(self, scope: &LocalScope<'b>) -> Result<Borrowed<'b, B>, MpiError> {
        // SAFETY: the scope, which is over before `'b` ends, ends the operation; the memory is given back once, when it is over.
        unsafe {
            let (pending, memory) = self.begin_unscoped()?;
            Ok(Borrowed::new(scope.register(pending), memory))
        }
    }
}

impl Ready<'_, 'static, ()> {
    /// Begins it. Whatever it gives is there for ever.
    ///
    /// # Errors
    /// [`MpiError`].
    pub(crate) fn begin(self) -> Result<Borrowed<'static, ()>, MpiError> {
        // SAFETY: no borrow ends, and there is no memory.
        unsafe {
            let (pending, memory) = self.begin_unscoped()?;
            Ok(Borrowed::new(Rc::new(pending), memory))
        }
    }
}

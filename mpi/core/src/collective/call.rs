//! The MPI functions for collective operations, in their blocking and immediate forms.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use mpi_sys as ffi;

use super::{Collective, Elements, Parts, Ready, Reduction};
use crate::comm::{Comm, null_request};
use crate::error::{MpiError, check};
use crate::request::{Kind, Memory, MpiOperation};

/// Calls the blocking function, or with a request the immediate one: the function's name, and the returned code.
macro_rules! call {
    ($request:expr, $blocking:ident | $immediate:ident: $($argument:expr),*) => {
        match $request {
            None => (stringify!($blocking), ffi::$blocking($($argument),*)),
            Some(request) => (stringify!($immediate), ffi::$immediate($($argument,)* request)),
        }
    };
}

impl Ready<'_> {
    /// # Safety
    /// Nothing else uses the memory until the operation has ended. `request`, if given, is valid for a write, and the
    /// request put there is ended afterwards.
    unsafe fn call(&self, comm: &Comm, request: Option<*mut ffi::MPI_Request>) -> Result<(), MpiError> {
        let expected = (self.rank, self.ranks);
        if (comm.rank()?, comm.size()?) != expected {
            return Err(MpiError::Parts {
                call: self.name(),
                parts: expected.1 as usize,
                ranks: comm.size()? as usize,
            });
        }
        let (from, into) = (self.send.bytes.as_ptr().cast::<c_void>(), self.receive.bytes.0.cast::<c_void>());
        // `check_buffers` has checked that both fit into an int.
        let (len, room) = (self.send.bytes.len() as c_int, self.receive.bytes.1 as c_int);
        let (universe, comm, ranks) = (&comm.universe, comm.raw(), self.ranks as c_int);
        let layout = |parts: &Option<Parts>| {
            let null = (std::ptr::null(), std::ptr::null());
            parts.as_ref().map_or(null, |parts| (parts.lens.as_ptr(), parts.displacements.as_ptr()))
        };
        let ((lens_from, displs_from), (lens_into, displs_into)) =
            (layout(&self.send.parts), layout(&self.receive.parts));
        // SAFETY: by this function's contract; `check_buffers` has checked that the buffers are large enough for what
        // this rank sends and receives, and MPI ignores the other arguments.
        let (name, code) = unsafe {
            let byte = ffi::RSMPI_UINT8_T;
            match &self.operation {
                Collective::Barrier => call!(request, MPI_Barrier | MPI_Ibarrier: comm),
                Collective::Broadcast(root) => {
                    call!(request, MPI_Bcast | MPI_Ibcast: into, room, byte, *root as c_int, comm)
                }
                Collective::Gather(root) => {
                    call!(request, MPI_Gather | MPI_Igather: from, len, byte, into, len, byte, *root as c_int, comm)
                }
                Collective::GatherVarcount(root) => call!(request, MPI_Gatherv | MPI_Igatherv:
                    from, len, byte, into, lens_into, displs_into, byte, *root as c_int, comm),
                Collective::Scatter(root) => {
                    call!(request, MPI_Scatter | MPI_Iscatter: from, room, byte, into, room, byte, *root as c_int, comm)
                }
                Collective::ScatterVarcount(root) => call!(request, MPI_Scatterv | MPI_Iscatterv:
                    from, lens_from, displs_from, byte, into, room, byte, *root as c_int, comm),
                Collective::AllGather if universe.is_unseen() && request.is_none() => {
                    ("MPI_Allgather", ffi::PMPI_Allgather(from, len, byte, into, len, byte, comm))
                }
                Collective::AllGather => {
                    call!(request, MPI_Allgather | MPI_Iallgather: from, len, byte, into, len, byte, comm)
                }
                Collective::AllGatherVarcount => call!(request, MPI_Allgatherv | MPI_Iallgatherv:
                    from, len, byte, into, lens_into, displs_into, byte, comm),
                Collective::AllToAll => {
                    let part = len / ranks;
                    call!(request, MPI_Alltoall | MPI_Ialltoall: from, part, byte, into, part, byte, comm)
                }
                Collective::AllToAllVarcount => call!(request, MPI_Alltoallv | MPI_Ialltoallv:
                    from, lens_from, displs_from, byte, into, lens_into, displs_into, byte, comm),
                Collective::Reduce(reduction, Elements { operation: op, datatype, bytes, .. }) => {
                    let (op, datatype) = (*op, *datatype);
                    let len = (self.send.bytes.len() / bytes) as c_int;
                    match reduction {
                        Reduction::All => {
                            call!(request, MPI_Allreduce | MPI_Iallreduce: from, into, len, datatype, op, comm)
                        }
                        Reduction::To(root) => {
                            call!(request, MPI_Reduce | MPI_Ireduce: from, into, len, datatype, op, *root as c_int, comm)
                        }
                        Reduction::Scattered => call!(request, MPI_Reduce_scatter_block | MPI_Ireduce_scatter_block:
                            from, into, len / ranks, datatype, op, comm),
                        Reduction::UpToSelf => {
                            call!(request, MPI_Scan | MPI_Iscan: from, into, len, datatype, op, comm)
                        }
                        Reduction::BeforeSelf => {
                            call!(request, MPI_Exscan | MPI_Iexscan: from, into, len, datatype, op, comm)
                        }
                    }
                }
            }
        };
        check(name, code)
    }

    /// Carries the operation out.
    ///
    /// # Errors
    /// [`MpiError`].
    pub fn run_on(self, comm: &Comm) -> Result<(), MpiError> {
        // SAFETY: `self` holds the memory borrows, and the operation has ended when the call returns.
        unsafe { self.call(comm, None) }
    }

    /// Begins the operation.
    ///
    /// # Errors
    /// [`MpiError`].
    ///
    /// # Safety
    /// The memory stays borrowed until the operation is complete.
    pub unsafe fn begin_on(mut self, comm: &Comm) -> Result<MpiOperation, MpiError> {
        let mut request = null_request();
        // SAFETY: by this function's contract; lengths and displacements are on the heap, where `MpiOperation` leaves
        // them.
        unsafe {
            self.call(comm, Some(&raw mut request))?;
            let numbers = [self.send.parts.take(), self.receive.parts.take()].into_iter().flatten();
            let numbers = numbers.flat_map(|parts| [parts.lens, parts.displacements]).collect();
            let memory = Memory { _numbers: numbers, ..Memory::default() };
            Ok(MpiOperation::begun(request, Kind::Collective, memory, Rc::clone(&comm.universe)))
        }
    }
}

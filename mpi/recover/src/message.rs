//! The program's call arguments.

use std::ffi::c_int;

use counterfoil_mpi_core::arguments::{Incoming, Outgoing, Side};
use mpi_sys as ffi;

use crate::Operation;
use crate::memory::Memory;

impl From<&Outgoing> for Memory {
    fn from(out: &Outgoing) -> Memory {
        Memory { at: out.buf.cast_mut(), count: out.count, datatype: out.datatype }
    }
}

impl From<&Incoming> for Memory {
    fn from(incoming: &Incoming) -> Memory {
        Memory { at: incoming.buf, count: incoming.count, datatype: incoming.datatype }
    }
}

/// A collective operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collective {
    pub(crate) operation: Operation,
    pub(crate) comm: ffi::MPI_Comm,
    pub(crate) root: Option<c_int>,
    pub(crate) send: Option<Side>,
    pub(crate) receive: Option<Side>,
    pub(crate) op: Option<ffi::MPI_Op>,
}

//! What calls are about.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

use crate::session::Name;
use crate::{Class, Operation};

/// A message that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) buf: *const c_void,
    pub(crate) count: i64,
    pub(crate) datatype: ffi::MPI_Datatype,
    pub(crate) dest: c_int,
    pub(crate) tag: c_int,
    pub(crate) comm: ffi::MPI_Comm,
}

impl Outgoing {
    /// What the program calls the stream that it belongs to.
    #[inline(always)]
    pub(crate) fn name(&self) -> Name {
        Name::new(self.comm, self.dest, self.tag)
    }
}

/// What a receive or a probe asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    /// Where it goes; null for a probe.
    pub(crate) buf: *mut c_void,
    pub(crate) count: i64,
    pub(crate) datatype: ffi::MPI_Datatype,
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    pub(crate) comm: ffi::MPI_Comm,
}

impl Incoming {
    /// Without what is to be received into.
    pub(crate) fn asking(source: c_int, tag: c_int, comm: ffi::MPI_Comm) -> Incoming {
        // SAFETY: a constant of the shim.
        let datatype = unsafe { ffi::RSMPI_UINT8_T };
        Incoming { buf: std::ptr::null_mut(), count: 0, datatype, source, tag, comm }
    }
}

/// How many elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counts {
    /// So many; for each rank, where there is a part for each.
    One(i64),
    /// For each rank another number.
    Many(*const c_int),
    /// For each rank another number.
    ManyLarge(*const ffi::MPI_Count),
}

/// Where a rank's part begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Displs {
    /// One behind the other.
    None,
    /// In extents of the datatype.
    Elements(*const c_int),
    /// In extents of the datatype.
    ElementsLarge(*const ffi::MPI_Aint),
    /// In bytes.
    Bytes(*const c_int),
    /// In bytes.
    BytesLarge(*const ffi::MPI_Aint),
}

/// Of what datatype.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Types {
    /// One for all.
    One(ffi::MPI_Datatype),
    /// For each rank another one.
    Many(*const ffi::MPI_Datatype),
}

/// The memory of one side of a collective operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) buf: *const c_void,
    pub(crate) counts: Counts,
    pub(crate) displs: Displs,
    pub(crate) types: Types,
}

/// A collective operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collective {
    pub(crate) operation: Operation,
    pub(crate) class: Class,
    pub(crate) comm: ffi::MPI_Comm,
    pub(crate) root: Option<c_int>,
    pub(crate) send: Option<Side>,
    pub(crate) receive: Option<Side>,
}

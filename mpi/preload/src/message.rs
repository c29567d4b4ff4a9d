//! Arguments of the program's calls.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

use crate::session::StreamKey;
use crate::{Class, Operation};

/// A message to send.
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
    /// Returns the key of its stream.
    #[inline(always)]
    pub(crate) fn key(&self) -> StreamKey {
        StreamKey::new(self.comm, self.dest, self.tag)
    }
}

/// A receive or a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    /// Buffer; null for a probe.
    pub(crate) buf: *mut c_void,
    pub(crate) count: i64,
    pub(crate) datatype: ffi::MPI_Datatype,
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    pub(crate) comm: ffi::MPI_Comm,
}

impl Incoming {
    /// Returns a receive without a buffer.
    pub(crate) fn envelope(source: c_int, tag: c_int, comm: ffi::MPI_Comm) -> Incoming {
        // SAFETY: a constant of the shim.
        let datatype = unsafe { ffi::RSMPI_UINT8_T };
        Incoming { buf: std::ptr::null_mut(), count: 0, datatype, source, tag, comm }
    }

    /// Returns `true` if its source or tag is a wildcard.
    #[inline]
    pub(crate) fn is_wildcard(&self) -> bool {
        is_wildcard(self.source, self.tag)
    }
}

/// Returns `true` if a source or tag is a wildcard.
#[inline]
pub(crate) fn is_wildcard(source: c_int, tag: c_int) -> bool {
    // SAFETY: constants of the shim.
    unsafe { source == ffi::RSMPI_ANY_SOURCE || tag == ffi::RSMPI_ANY_TAG }
}

/// Returns `true` for MPI_PROC_NULL: what is sent to it, and received from it, is nothing.
#[inline]
pub(crate) fn is_proc_null(rank: c_int) -> bool {
    // SAFETY: a constant of the shim.
    rank == unsafe { ffi::RSMPI_PROC_NULL }
}

/// Numbers of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counts {
    /// One number, for each rank's part if there are several.
    One(i64),
    /// A number for each rank.
    Many(*const c_int),
    /// A number for each rank.
    #[cfg(wraps = "large_counts")]
    ManyLarge(*const ffi::MPI_Count),
}

/// Displacements of the ranks' parts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Displs {
    /// None: each part follows the one before.
    Contiguous,
    /// In extents of the datatype.
    Elements(*const c_int),
    /// In extents of the datatype.
    #[cfg(wraps = "large_counts")]
    ElementsLarge(*const ffi::MPI_Aint),
    /// In bytes.
    Bytes(*const c_int),
    /// In bytes.
    BytesLarge(*const ffi::MPI_Aint),
}

/// Datatypes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Types {
    /// One for all.
    One(ffi::MPI_Datatype),
    /// One for each rank.
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

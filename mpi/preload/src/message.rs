//! The program's collective operations.

use std::ffi::c_int;

use counterfoil_mpi_core::arguments::Side;
use mpi_sys as ffi;

use crate::{Class, Operation};

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

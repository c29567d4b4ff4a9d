//! MPI as far as Counterfoil needs it, with errors in place of aborts.
//!
//! The bindings are `mpi-sys`: every call's return code is checked, and MPI's description of an error is in
//! [`MpiError`]. MPI is initialised once per process, by [`Universe`]; a [`Comm`] is one of its communicators.
//!
//! | module | contents |
//! |---|---|
//! | [`universe`], `threads` | MPI in this process |
//! | [`comm`], [`topology`] | communicators, and those derived from them |
//! | [`point_to_point`], [`envelope`] | messages |
//! | [`collective`], [`operation`], [`reduction`] | collective operations and reductions |
//! | [`request`], [`completion`] | operations that are waited for later |
//! | [`ulfm`], [`control::failures`] | process failures that others survive |
//! | [`arguments`], [`fortran`] | a program's call arguments, for interposition libraries |
//! | `abort`, `exit`, `parent` | the end of a job and of this process |
//! | [`watchdog`], `fast_boxes` | shared-memory damage by a killed process |
//! | [`idle`] | waits |
//! | `symbols` | symbols missing from MPI's headers |
//! | [`control`] | the loggers' control communicator ([`counterfoil_mpi_logger`]) |
//!
//! `unsafe` is here because MPI is a C interface; every block states its guarantees.

mod abort;
pub mod arguments;
pub mod collective;
pub mod comm;
pub mod completion;
pub mod control;
pub mod envelope;
pub mod error;
pub mod exit;
pub mod fast_boxes;
pub mod fortran;
pub mod idle;
pub mod operation;
mod parent;
pub mod point_to_point;
pub mod reduction;
pub mod request;
mod symbols;
mod threads;
pub mod topology;
pub mod ulfm;
pub mod universe;
pub mod watchdog;

pub use comm::{Comm, Matched, Sending};
pub use error::MpiError;
pub use threads::Threads;
pub use universe::Universe;

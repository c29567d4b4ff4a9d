//! Recovers an unmodified MPI program.
//!
//! The library exports MPI's functions and is loaded before the MPI (`LD_PRELOAD`), so it receives the program's calls.
//! They become calls to the runtime's endpoint over the MPI: every message is logged by its sender, every outcome
//! depending on timing is recorded, and a rank whose process is killed is run again by a spare process, which gets the
//! same messages and outcomes. After `MPI_Init` the MPI carries the endpoint's frames; none of the program's calls
//! involving another process reach it.
//!
//! | module | contents |
//! |---|---|
//! | `exports`, `queries` | the exported functions: generated from the table in `../calls`, and others |
//! | `process`, `output` | the rank's beginning, end and output |
//! | `front`, `failure` | the rank's state; errors |
//! | `clocks`, `alloc`, `next` | clocks and memory, in place of the C library's |
//! | `replay`, `mark` | the rank replayed alone; its progress so far |
//! | `calls` | messages between two ranks |
//! | `requests`, `status`, `last_test` | requests, and every way to wait and to test |
//! | `collective`, `reduction` | collective operations |
//! | `comms`, `groups` | communicators and topologies; groups |
//! | `memory` | datatypes: the program's memory as messages |
//! | `checkpoint` | checkpoints taken by the program |
//! | `fortran` | Fortran calls, converted to C |
//! | `handle`, `slab` | handles for requests, messages and groups |

#![cfg_attr(not(has = "Psend_init"), expect(dead_code, reason = "what only partitioned messages need"))]

use std::ffi::{c_char, c_int, c_void};

use mpi_sys as ffi;

#[allow(unreachable_pub, reason = "exported with their own names")]
mod alloc;
mod calls;
#[allow(unreachable_pub, reason = "exported with names of C")]
mod checkpoint;
#[allow(non_snake_case, unreachable_pub, reason = "exported with their own names")]
mod clocks;
mod collective;
mod comms;
mod crash;
mod failure;
#[allow(non_snake_case, unreachable_pub, reason = "exported with MPI's names")]
mod fortran;
mod front;
#[allow(non_snake_case, unreachable_pub, reason = "exported with MPI's names")]
mod groups;
mod handle;
mod last_test;
mod mark;
mod memory;
mod message;
mod next;
mod output;
mod process;
#[allow(non_snake_case, unreachable_pub, reason = "exported with MPI's names")]
mod queries;
mod reduction;
mod replay;
mod requests;
mod slab;
mod status;

use counterfoil_mpi_core::arguments::{Counts, Displs, Incoming, Mode, Outgoing, Side, Types};
use failure::Failure;
use fortran::Fint;
use front::{check, enter};
use memory::Memory;
use message::Collective;

// Generated, with MPI's names.
#[allow(non_snake_case, unreachable_pub, unused_variables, unused_unsafe, clippy::all)]
mod exports {
    use super::*;
    use crate::groups::*;
    use crate::queries::*;
    use crate::reduction::MPI_Op_free;

    include!(concat!(env!("OUT_DIR"), "/calls.rs"));
}

use exports::Operation;

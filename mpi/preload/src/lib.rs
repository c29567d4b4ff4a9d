//! Logs what an unmodified MPI program sends.
//!
//! The library has the names of MPI's calls and is loaded before the MPI (`LD_PRELOAD`), so the program's calls come here first. Each
//! is passed on to whoever has the name next: another tool of this kind, or the MPI; some in a form that doesn't wait, so that what is sent is
//! copied meanwhile. What a rank sends is copied into
//! its log; what it received is counted and acknowledged to its senders in batches, on a communicator of the library's own. Nothing is
//! added to the program's messages: `docs/piggyback.md` says why that suffices.
//!
//! | module | what it has |
//! |---|---|
//! | `calls` | the calls, generated from the table in `../calls` |
//! | `wrap` | what is done with each class of calls |
//! | `session` | the log and everything that is known while MPI is up |
//! | `settings` | what the user asked for |
//! | `next` | where calls are passed on to |
//!
//! A problem of this library is never the program's: it is said once on standard error, and the call goes to MPI all the same.

use std::ffi::{c_char, c_int, c_void};

use mpi_sys as ffi;

// Classes and forms of calls that the MPI at hand doesn't have are not called.
#[allow(dead_code)]
mod message;
mod next;
mod say;
#[allow(dead_code)]
mod session;
mod settings;
#[allow(dead_code)]
mod wrap;

use counterfoil_mpi_calls::Class;
use message::{Collective, Counts, Displs, Incoming, Outgoing, Side, Types};
use next::Next;
use wrap::Mode;

// Generated, and the names are MPI's.
#[allow(non_upper_case_globals, non_snake_case, unreachable_pub, clippy::all)]
mod calls {
    use super::*;

    include!(concat!(env!("OUT_DIR"), "/calls.rs"));
}

use calls::{Operation, next as pass};

//! Logs an unmodified MPI program's messages.
//!
//! The library exports MPI's functions and is loaded before the MPI (`LD_PRELOAD`), so the program's calls come here
//! first. Each call is passed on to the next library with its name: another tool of this kind, or the MPI. Some calls
//! are passed on in a non-blocking form, so that a message is copied while it is under way. Messages are copied into
//! the rank's log; received ones are counted, and acknowledged to their senders in batches, on a communicator owned by
//! the library. Nothing is added to the program's messages: `docs/book/src/explanation/counting.md` says why that
//! suffices.
//!
//! | module | contents |
//! |---|---|
//! | `calls` | the exported functions, generated from the table in `../calls` |
//! | `wrap` | the wrapper of each class of calls |
//! | `global`, `deferred` | the process's session, and its deferred events |
//! | `awaited` | requests awaited by the current call |
//! | `session` | the logger's driver: state while MPI is initialised |
//! | `handlers` | the program's error handlers |
//! | `calls::next` | the next library's functions, which calls are passed on to |
//! | `symbol` | their look-up by name |
//!
//! An error of the library never becomes the program's: it is reported once on standard error, and the call goes to
//! MPI.

use std::ffi::{c_char, c_int, c_void};

use mpi_sys as ffi;

mod awaited;
mod deferred;
mod failed_polls;
mod global;
mod handlers;
mod host;
mod message;
mod say;
mod session;
mod status;
mod symbol;
mod wrap;

use counterfoil_mpi_calls::Class;
use counterfoil_mpi_core::arguments::{Counts, Displs, Incoming, Mode, Outgoing, Side, Types};
use counterfoil_mpi_core::fortran::Fint;
use message::Collective;
use symbol::Symbol;

// Generated, with MPI's names.
#[allow(non_upper_case_globals, non_snake_case, unreachable_pub, clippy::all)]
mod calls {
    use super::*;

    include!(concat!(env!("OUT_DIR"), "/calls.rs"));
}

/// Arguments of Fortran calls.
mod fortran {
    pub(crate) use counterfoil_mpi_core::arguments::{neighbours, parts};
    pub(crate) use counterfoil_mpi_core::fortran::*;

    #[cfg(wraps = "session_init")]
    use mpi_sys as ffi;

    #[cfg(wraps = "session_init")]
    unsafe extern "C" {
        fn counterfoil_fortran_session_f2c(number: Fint) -> ffi::MPI_Session;
        fn counterfoil_fortran_session_c2f(session: ffi::MPI_Session) -> Fint;
    }

    /// Returns a number's handle.
    #[cfg(wraps = "session_init")]
    pub(crate) fn session(number: Fint) -> ffi::MPI_Session {
        // SAFETY: the MPI refuses numbers of no handle.
        unsafe { counterfoil_fortran_session_f2c(number) }
    }

    /// Returns a handle's number.
    #[cfg(wraps = "session_init")]
    pub(crate) fn session_number(session: ffi::MPI_Session) -> Fint {
        // SAFETY: a handle given by the MPI.
        unsafe { counterfoil_fortran_session_c2f(session) }
    }
}

use calls::{Operation, next};

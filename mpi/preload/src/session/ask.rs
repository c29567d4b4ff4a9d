//! Calls of MPI that the library makes for itself.

use std::ffi::c_int;

/// What MPI said no to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with code {code}")]
pub(crate) struct Refused {
    pub(crate) call: &'static str,
    pub(crate) code: c_int,
}

/// Makes a call; the function that it stands in returns [`Refused`] where MPI says no. To be written in an `unsafe` block.
macro_rules! ask {
    ($name:ident($($argument:expr),*)) => {
        match mpi_sys::$name($($argument),*) {
            0 => {}
            code => return Err($crate::session::ask::Refused { call: stringify!($name), code }),
        }
    };
}

pub(crate) use ask;

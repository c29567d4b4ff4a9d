//! The launcher of the MPI under test.

use std::ffi::OsString;

pub(crate) fn mpirun() -> OsString {
    std::env::var_os("COUNTERFOIL_MPIRUN").unwrap_or_else(|| "mpirun".into())
}

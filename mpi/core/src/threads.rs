//! Thread levels.

use std::ffi::c_int;

use mpi_sys as ffi;

/// Thread level: the threads that may call MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Threads {
    /// The process has one thread.
    Single,
    /// Only the thread that initialised MPI may call it.
    Funneled,
    /// Any thread may call MPI, one at a time.
    Serialized,
    /// Any thread may call MPI at any time.
    Multiple,
}

impl Threads {
    pub(crate) const ALL: [Threads; 4] = [Threads::Single, Threads::Funneled, Threads::Serialized, Threads::Multiple];

    pub(crate) fn raw(self) -> c_int {
        // SAFETY: shim constants linked by `mpi-sys`, never written.
        unsafe {
            match self {
                Threads::Single => ffi::RSMPI_THREAD_SINGLE,
                Threads::Funneled => ffi::RSMPI_THREAD_FUNNELED,
                Threads::Serialized => ffi::RSMPI_THREAD_SERIALIZED,
                Threads::Multiple => ffi::RSMPI_THREAD_MULTIPLE,
            }
        }
    }
}

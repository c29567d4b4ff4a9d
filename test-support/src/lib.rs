//! Support for the tests of several crates; no crate that is not itself a test or a fuzz body depends on it.
//!
//! - [`SimulatedDisk`]: a [`StorageBackend`](counterfoil::StorageBackend) in memory that loses any subset of the
//!   unsynced bytes in a power cut.
//! - [`power_cuts`]: random histories of a store or a log on such a disk, with the power cut at every operation and the
//!   recovered state compared with a model.
//! - [`random`]: reproducible pseudo-random numbers.
//! - [`child`]: tests in a process of their own.
//! - [`open_files`]: the files that this process has open.
//! - [`note_untested`]: what a test has not tested, because this machine can't.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod child;
mod open_files;
pub mod power_cuts;
pub mod random;
mod simulated_disk;
mod untested;

pub use open_files::{OpenFile, open_files};
pub use simulated_disk::{Fault, SimulatedDisk, SkippedSync};
pub use untested::note_untested;

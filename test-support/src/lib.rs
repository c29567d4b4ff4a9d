//! Test support for several crates; only tests and fuzz bodies depend on it.
//!
//! - [`SimulatedDisk`]: an in-memory [`StorageBackend`](counterfoil::StorageBackend) that loses any subset of the
//!   unsynced bytes in a power cut.
//! - [`power_cuts`]: random store or log histories on such a disk, with the power cut at every operation and the
//!   recovered state compared with a model.
//! - [`random`]: reproducible pseudo-random numbers.
//! - [`child`]: tests in their own process.
//! - [`open_files`]: open files in this process.
//! - [`note_untested`]: properties that a test couldn't test on this machine.
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

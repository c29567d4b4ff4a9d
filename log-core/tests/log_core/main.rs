//! Tests of the in-memory log through its public interface, in one program.
#![cfg(not(counterfoil_loom))]
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod committing;
mod images_while_sealing;
mod lanes;
#[cfg(not(miri))]
mod local_log;
mod model;
mod options;
#[cfg(not(miri))]
mod process_crash_safe;
mod recovered_lanes;
mod spilled;
mod stress;

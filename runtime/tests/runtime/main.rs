//! Tests of the runtime's public interface within one process.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod collectives;
mod damage;
mod lone_rank;
mod process_manager;
mod readings;
#[path = "../threads/mod.rs"]
mod threads;

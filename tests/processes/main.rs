//! Tests that start this program again as a child process that is killed, or has a full disk.
//!
//! They are a separate program: until a new process has executed its program, it holds its parent's open files, and
//! with them the lock of a log that another test has closed and opens again.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod full_shared_memory;
mod killed_writer;
mod real_faults;
#[path = "../counterfoil/spilled.rs"]
mod spilled;

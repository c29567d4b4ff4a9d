//! Tests starting this program again as a child process, to be killed or with a full disk.
//!
//! They are a separate program: until a new process has executed its program, it holds its parent's open files, and
//! with them the lock on a log being closed and reopened by another test.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod full_shared_memory;
mod killed_writer;
mod real_faults;
#[path = "../counterfoil/spilled.rs"]
mod spilled;

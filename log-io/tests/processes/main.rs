//! Tests that restart this program as a process to be killed, traced, or limited for good.
//!
//! They are a separate program: a process just being started holds its parent's open files, and with them the lock on a
//! directory that another test has closed and opens again.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

#[path = "../log_io/backend_suite/mod.rs"]
mod backend_suite;
mod full_disk;
mod in_flight;
mod inherited;
mod kill;
#[path = "../log_io/many_segments.rs"]
mod many_segments;
mod open_files;

mod refusals;
mod syncs;
mod traced;

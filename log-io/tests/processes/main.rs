//! Tests that start this program again as a process that is killed, traced, or limited for good.
//!
//! They are a program of their own: a process that is just being started holds what its parent has open, and with it
//! the lock of a directory that another test has closed and opens again.
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

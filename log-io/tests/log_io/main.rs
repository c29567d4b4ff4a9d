//! Store tests, in one program.
//!
//! Tests that start processes are in `processes`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod backend_suite;
mod backends;
mod damage;
mod directory;
mod directory_entries;
mod exchanged;
mod golden;
mod many_segments;
mod power_cuts;
mod read_ahead;
mod scan;
mod small_chunks;
mod small_store;
mod space;
mod store;
mod view;

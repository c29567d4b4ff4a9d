//! End-to-end tests of the command line.
//!
//! Tests killing processes or running MPI programs are in `processes`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests and their helpers fail by panicking")]

mod bench;
mod book;
mod log;
mod output;
mod report;
mod simulate;
mod tables;

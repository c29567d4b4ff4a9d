//! End-to-end tests with real processes: killed ranks, failing launchers, MPI programs.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests and their helpers fail by panicking")]

mod demo;
mod demo_mpi;
#[path = "../cli/output.rs"]
mod output;
mod event_logging;
mod pessimistic;
mod program;
mod run;
mod script;

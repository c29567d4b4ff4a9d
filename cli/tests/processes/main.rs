//! End-to-end tests with real processes: killed ranks, failing launchers, MPI programs.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests and their helpers fail by panicking")]

mod chandy_lamport;
mod coordinated;
mod demo;
mod demo_mpi;
mod on_failure;
#[path = "../cli/output.rs"]
mod output;
mod pessimistic;
mod program;
mod run;
mod script;
mod unlogged;
mod user_level;

//! Tests of the simulator and, under it, the recovery rules, in one program.
#![forbid(unsafe_code)]

mod chandy_lamport;
mod coordinated;
mod global;
mod on_failure;
mod pessimistic;
mod plain;
mod planted;
mod recording;
mod send_deterministic;
mod user_level;

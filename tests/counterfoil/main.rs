//! Tests of `Log`, in one program.
//!
//! Tests starting processes are in `processes` and `node_local`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod constant_memory;
mod destroy;
mod keep;
mod largest_blocks;
mod memory_and_store;
mod memory_bound;
mod node_local_limits;
mod on_full;
mod opening;
mod options;
mod overtaken;
mod power_cuts;
mod recover;
mod spilled;
mod tables;
mod wakers;

//! Tests of the workloads, in one program.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod known_answers;
mod record;
mod replay;
#[path = "../../../runtime/tests/threads/mod.rs"]
mod threads;

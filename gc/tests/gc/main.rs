//! Collector tests, in one program.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod collector;
mod cost;
mod space;

//! The rules between processes that are killed.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod processes;

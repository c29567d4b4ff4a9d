//! Recovery rule tests, in one program.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod coordinated;
mod event_logging;
mod on_failure;
mod pessimistic;
mod random;
mod schedules;
mod send_deterministic;
mod statements;
mod user_level;

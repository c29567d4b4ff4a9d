//! Mistakes in the rules, planted one at a time: the effect of each where the tests in `counterfoil-protocols` show
//! that the rule is right.
//!
//! Scenarios for the send-deterministic rule run here, too, on this crate's build, without a mistake.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

// Tests for the rules name the crate under test.
extern crate counterfoil_canaries as counterfoil_protocols;

mod edits;
mod list;
mod pessimistic;
mod send_deterministic;

// Modules of the build script.
#[expect(dead_code, reason = "only `build/main.rs` reads `Edit::file`")]
#[path = "../../build/place.rs"]
mod place;

#[path = "../../../protocols/tests/protocols/random.rs"]
mod random;

//! Mistakes of the rules, planted one at a time: the effect of each where the tests of `counterfoil-protocols` show
//! that the rule is right.
//!
//! The scenarios of the send-deterministic rule run here, too, over the build of this crate, without a mistake.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

// The tests of the rules name the crate that they test.
extern crate counterfoil_canaries as counterfoil_protocols;

mod edits;
mod list;
mod pessimistic;
mod send_deterministic;

// Of the build script.
#[expect(dead_code, reason = "only `build/main.rs` reads `Edit::file`")]
#[path = "../../build/place.rs"]
mod place;

#[path = "../../../protocols/tests/protocols/random.rs"]
mod random;

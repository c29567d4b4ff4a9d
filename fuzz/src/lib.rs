//! Fuzz bodies: plain functions over bytes, panicking when they find a bug.
//!
//! Each body reads a sequence of steps from its input, applies them to the implementation and to a naive model, and
//! compares the two after each step. An input ending within a step ends the sequence.
//!
//! On a stable compiler `cargo test -p counterfoil-fuzz` runs each body over its corpus, `corpus/<body>/*`, and over a
//! few thousand pseudo-random inputs. With nightly and cargo-fuzz, from the project's root:
//!
//! ```text
//! cargo +nightly fuzz run --fuzz-dir fuzz/cargo-fuzz wire_header fuzz/corpus/wire_header
//! ```
//!
//! `cargo run -p counterfoil-fuzz --example write_corpus` writes the corpora; inputs found by a fuzzer are added to
//! them.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod collector;
mod power_cuts;
mod recovery_notices;
mod recv_window;
mod send_window;
mod shared_log;
mod store;
mod wire_header;

pub use collector::collector;
pub use power_cuts::power_cuts;
pub use recovery_notices::recovery_notices;
pub use shared_log::{forged_shared_log, shared_log};
pub use store::store;
pub use wire_header::wire_header;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// All bodies by name, which also names the corpus and the cargo-fuzz target.
pub const BODIES: [(&str, Body); 8] = [
    ("wire_header", wire_header),
    ("ack_windows", ack_windows),
    ("collector", collector),
    ("shared_log", shared_log),
    ("forged_shared_log", forged_shared_log),
    ("store", store),
    ("power_cuts", power_cuts),
    ("recovery_notices", recovery_notices),
];

/// Tests one end of a channel: the receiving end if the first byte is even, the sending end if it is odd.
pub fn ack_windows(data: &[u8]) {
    match data {
        [first, steps @ ..] if first % 2 == 0 => recv_window::recv_window(steps),
        [_, steps @ ..] => send_window::send_window(steps),
        [] => {}
    }
}

//! Tests of windows, wire header and acknowledgements, in one program, which links faster than several.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test, and its helpers, fail by panicking")]

mod channel;
mod figure_5;
mod header;
mod received_set;
mod states;
mod windows;

//! The log engine's interface in C: `include/counterfoil.h`.
//!
//! | module | contents |
//! |---|---|
//! | `result` | numbers of what failed, and their sentences |
//! | `boundary` | what every function does: checks pointers, catches panics, notes the failure |
//! | `options` | limits and choices of a log |
//! | `log` | a rank's log: claims, acknowledgements, checkpoints, collection |
//! | `cursor` | records of a channel in order |
//! | `version` | version of the library |
//!
//! # Safety
//! The functions are `unsafe`: their documentation, also in the header, states the pointers' requirements. Null is
//! refused, unless a function says otherwise. A returned object is valid until it is freed; it is used by one thread at
//! a time.
//!
//! A panic doesn't leave a function. Its log is not used again.

#![allow(non_camel_case_types, reason = "the names of C")]
#![allow(unreachable_pub, reason = "exported")]

mod boundary;
mod cursor;
mod log;
mod options;
mod result;
mod version;

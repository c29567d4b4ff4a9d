//! Fault-tolerance protocols as state machines: no I/O, no threads, no clock.
//!
//! [`frame`] is what all of them share: the events that a driver reports, the effects that it carries out. It is derived
//! from a table of what five papers need, in `docs/protocols.md`. [`sender_based`] is the plain rule of sender-based
//! message logging.

#![forbid(unsafe_code)]

pub mod frame;
pub mod sender_based;

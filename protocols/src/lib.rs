//! Fault-tolerance protocols as state machines: no I/O, no threads, no clock.
//!
//! [`frame`] is what all of them share: the events that a driver reports, the effects that it carries out. It is derived
//! from a table of what five papers need, in `docs/protocols.md`. [`sender_based`] is the plain rule of sender-based
//! message logging; [`pessimistic`] adds the receive order to it, recorded before each delivery. [`cluster`] says which ranks share an epoch where a protocol logs only between epochs, and what is logged then. [`send_deterministic`] is the first
//! paper's rule.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod frame;
pub mod pessimistic;
pub mod send_deterministic;
pub mod sender_based;

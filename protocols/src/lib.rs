//! Fault-tolerance protocols as state machines: no I/O, no threads, no clock.
//!
//! [`api`] is the shared interface: the events reported and the effects carried out by a driver, with the reasons in
//! `docs/book/src/explanation/rules.md`. [`sender_based`] is plain sender-based message logging; [`pessimistic`] adds
//! the receive order, recorded before each delivery; [`send_deterministic`] follows Guermouche 2011, [`user_level`] Liu
//! 2014, [`coordinated`] C3; [`event_logging`] and [`message_tagging`] follow Zhao 2005, on [`chandy_lamport`];
//! [`on_failure`], from Bland 2013, saves nothing until a rank is lost; [`unlogged`] keeps nothing, as a baseline for
//! measurements. [`cluster`] groups ranks into shared epochs, for protocols logging only between epochs, and computes
//! the logged share. [`RULES`] lists the rules, with all that drivers and commands know about each.

#![forbid(unsafe_code)]

mod agreement;
pub mod api;
pub mod chandy_lamport;
pub mod cluster;
pub mod coordinated;
mod encoding;
pub mod event_logging;
/// Sample of `docs/book/src/guides/write-a-rule.md`.
#[cfg(test)]
#[expect(unreachable_pub, reason = "a rule in the list is public")]
mod keep_all;
mod link;
pub mod message_tagging;
pub mod on_failure;
pub mod pessimistic;
pub mod rules;
pub mod send_deterministic;
pub mod sender_based;
pub mod unlogged;
pub mod user_level;

pub use rules::RULES;

/// Types in the signatures of [`api::Protocol`], for [`forward_protocol!`].
#[doc(hidden)]
pub mod nouns {
    pub use counterfoil_ack_piggyback::WireHeader;
    pub use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Rank};
}

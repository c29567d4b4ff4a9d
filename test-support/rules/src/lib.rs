//! Programs with native collectives and checkpoints that can be taken while they wait, and [one](older_line) that goes
//! back to a line older than its newest checkpoint: they show that a driver follows the protocols' interface.
#![forbid(unsafe_code)]

pub mod older_line;
pub mod program;

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::{Incarnation, Rank};
use counterfoil_protocols::api::{Bits, Rule};
use counterfoil_protocols::sender_based::Config;
use counterfoil_protocols::user_level::{self, UserLevel};
use counterfoil_protocols::{coordinated, event_logging, message_tagging};
use serde::{Deserialize, Serialize};

/// The program run by a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Calls of all kinds.
    Calls(program::Program),
    /// A checkpoint on rank 0, durable before rank 1 begins its own.
    OlderLine(older_line::OlderLine),
}

/// The [`user_level`] rule, with few messages between acknowledgements.
pub const USER_LEVEL: Rule = Rule {
    make_rank: &|rank, incarnation, settings| Ok(Box::new(UserLevel::new(config(rank, settings.ranks, incarnation))?)),
    ..user_level::RULE
};

/// The [`coordinated`] rule with the bits of a call on its data.
pub const PIGGYBACKED: Rule = coordinated::RULE.with_bits(Bits::Piggybacked);

/// The rules whose collectives, or whose checkpoints while a program waits, need
/// the program here.
pub const RULES: [Rule; 5] = [USER_LEVEL, coordinated::RULE, PIGGYBACKED, event_logging::RULE, message_tagging::RULE];

/// Returns the plain rule's configuration, with few messages between acknowledgements.
pub(crate) fn config(rank: Rank, ranks: u32, incarnation: Incarnation) -> Config {
    let policy = AckPolicy { unacked_records_max: 4, ..AckPolicy::default() };
    Config { rank, ranks, incarnation, policy }
}

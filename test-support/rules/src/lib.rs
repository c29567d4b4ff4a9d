//! Small rules, one for each part of the protocols' interface that the published rules use differently or not at all. Each adds to the plain
//! rule, as a paper's rule would, and is no use to a program: it shows that a driver does what the interface says.
//!
//! | rule | shows | from |
//! |---|---|---|
//! | [`exit`] | survivors that save their state when something fails, exit, and are loaded again | CoF, Algorithm 1 |
//!
//! [`SmallRule::Coordinated`] isn't small: it is the coordinated rule, with a program whose checkpoints can be taken while it waits, and with
//! [one](older_line) that goes back to a line older than its newest checkpoint.
#![forbid(unsafe_code)]

pub mod exit;
pub mod older_line;
pub mod program;

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::{Incarnation, Rank};
use counterfoil_protocols::api::{Coordinator, Protocol, ProtocolError};
use counterfoil_protocols::sender_based::Config;
use counterfoil_protocols::user_level::UserLevel;
use counterfoil_runtime::{MakeRule, Rule};
use serde::{Deserialize, Serialize};

/// What a rank runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Calls of all kinds.
    Calls(program::Program),
    /// A checkpoint of rank 0 that is durable before rank 1 begins its own.
    OlderLine(older_line::OlderLine),
}

/// The rules here, for jobs of processes, and the one whose collectives need the program here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallRule {
    /// The published [`user_level`](counterfoil_protocols::user_level) rule.
    UserLevel,
    /// [`exit`].
    OnFailure,
    /// [`coordinated`](mod@counterfoil_protocols::coordinated).
    Coordinated {
        /// Bits of a call on its data.
        piggybacked: bool,
    },
    /// [`event_logging`](mod@counterfoil_protocols::event_logging), which takes checkpoints while a program waits, too.
    EventLogging,
    /// [`message_tagging`](mod@counterfoil_protocols::message_tagging), likewise.
    MessageTagging,
}

impl SmallRule {
    /// All of them.
    pub const ALL: [SmallRule; 6] = [
        SmallRule::UserLevel,
        SmallRule::OnFailure,
        SmallRule::Coordinated { piggybacked: false },
        SmallRule::Coordinated { piggybacked: true },
        SmallRule::EventLogging,
        SmallRule::MessageTagging,
    ];
}

impl MakeRule for SmallRule {
    fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        let config = config(Rank(rank), ranks, Incarnation(incarnation));
        Ok(match self {
            SmallRule::UserLevel => Box::new(UserLevel::new(config)?),
            SmallRule::OnFailure => Box::new(exit::OnFailure::new(config)?),
            SmallRule::Coordinated { piggybacked } => {
                return Rule::Coordinated { piggybacked: *piggybacked }.protocol(rank, ranks, incarnation);
            }
            SmallRule::EventLogging => return Rule::EventLogging.protocol(rank, ranks, incarnation),
            SmallRule::MessageTagging => return Rule::MessageTagging.protocol(rank, ranks, incarnation),
        })
    }

    fn coordinator(&self, ranks: u32) -> Option<Box<dyn Coordinator>> {
        match self {
            SmallRule::Coordinated { piggybacked } => {
                Rule::Coordinated { piggybacked: *piggybacked }.coordinator(ranks, 0)
            }
            SmallRule::EventLogging => Rule::EventLogging.coordinator(ranks, 0),
            SmallRule::MessageTagging => Rule::MessageTagging.coordinator(ranks, 0),
            SmallRule::UserLevel | SmallRule::OnFailure => None,
        }
    }
}

/// Returns the plain rule's configuration, with few messages between acknowledgements.
pub(crate) fn config(rank: Rank, ranks: u32, incarnation: Incarnation) -> Config {
    let policy = AckPolicy { unacked_records_max: 4, ..AckPolicy::default() };
    Config { rank, ranks, incarnation, policy }
}

//! Small rules, one for each part of the protocols' interface that the published rules use differently or not at all. Each adds to the plain
//! rule, as a paper's rule would, and is no use to a program: it shows that a driver does what the interface says.
//!
//! | rule | shows | from |
//! |---|---|---|
//! | [`exit`] | survivors that save their state when something fails, exit, and are loaded again | CoF, Algorithm 1 |
//! | [`line`](mod@line) | calls that run again at a restart, with dummy arguments; a checkpoint that is asked for while the program waits; a committed line older than the newest checkpoint | C3, sections 3 and 5.3 |
#![forbid(unsafe_code)]

pub mod exit;
pub mod line;
pub mod program;

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::{Incarnation, Rank};
use counterfoil_protocols::api::{Coordinator, Protocol, ProtocolError};
use counterfoil_protocols::sender_based::Config;
use counterfoil_protocols::user_level::{self, UserLevel};
use counterfoil_runtime::MakeRule;

/// Calls between two checkpoints of the job, under [`line`](mod@line) between processes.
const CALLS_BETWEEN_CHECKPOINTS: u64 = 5;

/// The rules here, for jobs of processes, and the one whose collectives need the program here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallRule {
    /// The published [`user_level`] rule.
    UserLevel,
    /// [`line`](mod@line).
    Line,
    /// [`exit`].
    OnFailure,
}

impl SmallRule {
    /// All of them.
    pub const ALL: [SmallRule; 3] = [SmallRule::UserLevel, SmallRule::Line, SmallRule::OnFailure];
}

impl MakeRule for SmallRule {
    fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        let config = config(Rank(rank), ranks, Incarnation(incarnation));
        Ok(match self {
            SmallRule::UserLevel => Box::new(UserLevel::new(user_level::Config { core: config, canary: None })?),
            SmallRule::Line => Box::new(line::Line::<{ line::Mistake::NONE }>::new(config, CALLS_BETWEEN_CHECKPOINTS)?),
            SmallRule::OnFailure => Box::new(exit::OnFailure::new(config)?),
        })
    }

    fn coordinator(&self, ranks: u32) -> Option<Box<dyn Coordinator>> {
        match self {
            SmallRule::Line => Some(Box::new(line::Initiator::<{ line::Mistake::NONE }>::new(ranks, 0))),
            SmallRule::UserLevel | SmallRule::OnFailure => None,
        }
    }
}

/// Returns the plain rule's configuration, with few messages between acknowledgements.
pub(crate) fn config(rank: Rank, ranks: u32, incarnation: Incarnation) -> Config {
    let policy = AckPolicy { unacked_records_max: 4, ..AckPolicy::default() };
    Config { rank, ranks, incarnation, policy }
}

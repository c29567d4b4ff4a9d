//! Small rules, one for each part of the protocols' interface that the published rules use differently or not at all. Each adds to the plain
//! rule, as a paper's rule would, and is no use to a program: it shows that a driver does what the interface says.
//!
//! | rule | shows | from |
//! |---|---|---|
//! | [`served`] | a collective's result, kept whole, that a survivor sends to those who lack it | ULML, section 2.2 |
//! | [`exit`] | survivors that save their state when something fails, exit, and are loaded again | CoF, Algorithm 1 |
//! | [`line`](mod@line) | calls that run again at a restart, with dummy arguments; a checkpoint that is asked for while the program waits; a committed line older than the newest checkpoint | C3, sections 3 and 5.3 |
#![forbid(unsafe_code)]

pub mod exit;
pub mod line;
pub mod program;
pub mod served;

use counterfoil_log_core::{Incarnation, Rank};
use counterfoil_protocols::api::{Coordinator, Protocol, ProtocolError};
use counterfoil_protocols::event_logging::{self, EventLogging, LineCoordinator};
use counterfoil_runtime::MakeRule;

/// Calls between two checkpoints of the job, under [`line`](mod@line) between processes.
const CALLS_BETWEEN_CHECKPOINTS: u64 = 5;

/// The rules here, for jobs of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallRule {
    /// [`served`].
    Served,
    /// [`line`](mod@line).
    Line,
    /// [`exit`].
    OnFailure,
    /// The published rule of event logging, which takes checkpoints while a program waits, too.
    EventLogging,
}

impl SmallRule {
    /// All of them.
    pub const ALL: [SmallRule; 4] = [SmallRule::Served, SmallRule::Line, SmallRule::OnFailure, SmallRule::EventLogging];
}

impl MakeRule for SmallRule {
    fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        let config = served::config(Rank(rank), ranks, Incarnation(incarnation));
        Ok(match self {
            SmallRule::Served => Box::new(served::Served::<{ served::Mistake::NONE }>::new(config)?),
            SmallRule::Line => Box::new(line::Line::<{ line::Mistake::NONE }>::new(config, CALLS_BETWEEN_CHECKPOINTS)?),
            SmallRule::OnFailure => Box::new(exit::OnFailure::new(config)?),
            SmallRule::EventLogging => {
                let config = event_logging::Config::new(Rank(rank), ranks, Incarnation(incarnation));
                Box::new(EventLogging::new(config)?)
            }
        })
    }

    fn coordinator(&self, ranks: u32) -> Option<Box<dyn Coordinator>> {
        match self {
            SmallRule::Line => Some(Box::new(line::Initiator::<{ line::Mistake::NONE }>::new(ranks, 0))),
            SmallRule::EventLogging => Some(Box::new(LineCoordinator::new(ranks, 0))),
            SmallRule::Served | SmallRule::OnFailure => None,
        }
    }
}

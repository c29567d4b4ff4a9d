//! Rules under the simulator: which state machines a run has, and what the oracles read of them beyond their interface.
//!
//! The simulator owns everything outside the rule: programs, lanes, checkpoints, connections, failures, time. It reports events to the
//! [`Protocol`] of each rank and to the [`Coordinator`], and carries out their effects, in order, before the next event.
//!
//! # Connections
//!
//! - Frames of one connection arrive in order. A Hello comes first. The death of a peer is reported once, at the latest before its successor
//!   is connected.
//! - Under a rule that rolls back ranks that are alive, connections are as `counterfoil_protocols::api` demands: nothing goes to a rank on a new
//!   connection before its Hello was handled there, and then nothing of an older one arrives any more. A rollback drops messages that are held
//!   or under way to the rank, and reconnects it with all others. A lane that survives its process is cut to its end in the restored
//!   checkpoint.
//! - Under the others, frames that a dead incarnation has left under way may also arrive between or after those of its successor.
//! - Messages between a rank and the coordinator wait while they aren't connected. Those that wait when either dies are lost.

mod papers;

use std::convert::Infallible;

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_canaries::Rule;
use counterfoil_log_core::{Incarnation, Rank};
use counterfoil_protocols::api::{Coordinator, CoordinatorError, Properties, Protocol};
use counterfoil_protocols::event_logging::EventLogs;
use counterfoil_protocols::message_tagging::Tags;
use counterfoil_protocols::sender_based;

use super::program::Pattern;
use super::schedule::Canary;
pub use rules::{Coordinated, LineRule, Lines, Pessimistic, SendDet, UserLevel};

mod rules {
    super::papers::rules!(counterfoil_protocols);
}

/// The same rules, with the mistakes that can be planted in them.
pub(crate) mod planted {
    super::papers::rules!(counterfoil_canaries);
}

/// The [event logging rule](mod@counterfoil_protocols::event_logging).
pub type EventLog = Lines<EventLogs>;

/// The [message tagging rule](mod@counterfoil_protocols::message_tagging).
pub type Tagging = Lines<Tags>;

/// Asks for acknowledgements often, so that small programs reach them.
const POLICY: AckPolicy =
    AckPolicy { small_message_limit: 1024, unacked_records_max: 4, unacked_bytes_max: 4 << 20, exceptions_max: 64 };
/// Distance in epochs between clusters: small, so that their checkpoints meet in small programs.
const CLUSTER_GAP: u32 = 3;

/// Settings of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSettings {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of times that the process was replaced.
    pub incarnation: Incarnation,
    /// Number of clusters of the ranks (Guermouche 2011, section V.E.3); 0 is no division. Rules without clusters
    /// ignore it.
    pub clusters: u32,
}

/// Refusal of an event by a rule, in its own words. In a simulation all parties keep the rules, so it is always a
/// violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal(error.to_string())
    }
}

/// Sizes of a rank's tables about one peer, for rules that have them (Guermouche 2011, Figure 3, lines 3 to 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSizes {
    /// Rows of SPE: the epochs of this rank in which it sent to the peer.
    pub spe: u64,
    /// Messages in NonAck: not known to be received, and not known to be logged.
    pub unacknowledged: u64,
    /// Rows of RPP: receipts of the peer's messages.
    pub rpp: u64,
    /// Runs of the peer's messages that were received in one epoch, as far as the acknowledgements know them.
    pub receive_epochs: u64,
}

/// Rule under the simulator.
pub trait SimRule: Sized {
    /// State machine of a rank.
    type Rank: Protocol;
    /// State machine of the process apart from the ranks. It has no program, no lanes and no checkpoints, and can die like any other.
    type Coordinator: Coordinator;
    /// The same rule for schedules with one of its mistakes: a build in which those can be planted. A rule without mistakes is its own.
    type Planted: SimRule;

    /// The rule among those that have mistakes.
    const RULE: Option<Rule> = None;

    /// Properties of the rule.
    const PROPERTIES: Properties;

    /// `true` if the coordinator acts when it is asked to: it collects, or begins a line of checkpoints.
    const COLLECTS: bool = Self::PROPERTIES.has_coordinator;

    /// `true` if messages may be presented out of order ([`Schedule::overtaking`](super::Schedule::overtaking)).
    const OVERTAKING: bool = false;

    /// `true` if frames of an older connection may arrive after a newer one is made ([`Schedule::late`](super::Schedule::late)), which
    /// the interface rules out.
    const LATE: bool = false;

    /// `true` if it is told of checkpoints that are due by clocks, and of those that can't be taken in a call ([`Schedule::clocks`](super::Schedule::clocks)).
    const CLOCKS: bool = false;

    /// Returns the patterns of its campaigns. Half of those of a rule that runs collectives natively are [`Pattern::Calls`].
    fn patterns() -> Vec<Pattern> {
        Pattern::ALL.to_vec()
    }

    /// Returns `true` if this mistake can change anything in a run of this rule. Of the mistakes of rules, only its own
    /// can.
    fn is_affected_by(canary: Canary) -> bool {
        canary.can_be_of(Self::RULE)
    }

    /// Creates a rank that has done nothing.
    ///
    /// # Errors
    /// [`Refusal`].
    fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal>;

    /// Creates the coordinator. Called if the rule has one.
    ///
    /// # Errors
    /// [`Refusal`].
    fn coordinator(settings: &ProcessSettings) -> Result<Self::Coordinator, Refusal> {
        let _ = settings;
        Err(Refusal("this rule has no coordinator".into()))
    }

    /// Returns the sizes of the tables about a peer; `None` if the rule has none that the oracles know, or none about
    /// this peer.
    fn table_sizes(rank: &Self::Rank, peer: Rank) -> Option<TableSizes> {
        let _ = (rank, peer);
        None
    }

    /// Returns how far the rank is in a checkpoint of the whole job, as a phase from 1 to 4; 0 for rules without, and while none is under way.
    fn phase_of_line(rank: &Self::Rank) -> u32 {
        let _ = rank;
        0
    }

    /// Returns why a coordinator at rest waits for ever; `None` if it waits for nothing, or may.
    fn waits_for(coordinator: &Self::Coordinator) -> Option<String> {
        let _ = coordinator;
        None
    }

    /// Returns the number of the last recovery line for which the rank has sent its table.
    fn reported_round(rank: &Self::Rank) -> Option<u64> {
        let _ = rank;
        None
    }
}

/// Coordinator of a rule that has none: there is no value of it.
#[derive(Clone, Copy, Debug)]
pub struct NoCoordinator(Infallible);

impl Coordinator for NoCoordinator {
    fn handle_control(&mut self, _: Rank, _: &[u8]) -> Result<(), CoordinatorError> {
        match self.0 {}
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        match self.0 {}
    }
}

/// The [plain rule](sender_based).
#[derive(Debug)]
pub struct Plain;

impl SimRule for Plain {
    type Rank = sender_based::SenderBased;
    type Coordinator = NoCoordinator;
    type Planted = Plain;

    const PROPERTIES: Properties = sender_based::SenderBased::PROPERTIES;

    fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal> {
        let ProcessSettings { ranks, incarnation, .. } = *settings;
        Ok(sender_based::SenderBased::new(sender_based::Config { rank, ranks, incarnation, policy: POLICY })?)
    }
}

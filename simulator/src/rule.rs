//! Rules under the simulator: the settings for a run's state machines.
//!
//! The simulator owns everything outside the rule: programs, lanes, checkpoints, connections, failures, time. It
//! reports events to each rank's [`Protocol`] and to the [`Coordinator`], and carries out their effects, in order,
//! before the next event.
//!
//! # Connections
//!
//! - Frames on one connection arrive in order. A Hello comes first. A peer's death is reported once, at the latest
//!   before its successor is connected.
//! - Under a rule rolling back living ranks, connections are as `counterfoil_protocols::api` demands: nothing goes to a
//!   rank on a new connection before its Hello was handled there, and then nothing arrives from an older one any more.
//!   A rollback drops messages held or under way to the rank, and reconnects it with all others. A lane surviving its
//!   process is cut to its end in the restored checkpoint.
//! - Under the others, frames left under way by a dead incarnation may also arrive between or after its successor's.
//! - Messages between a rank and the coordinator wait while they aren't connected. Waiting messages are lost when
//!   either dies.

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_protocols::api::{NativeCollectives, Rule, RuleOptions, RuleSettings};

use super::program::Pattern;
use super::schedule::Schedule;

/// Asks for acknowledgements often, so that small programs reach them.
const POLICY: AckPolicy =
    AckPolicy { small_message_limit: 1024, unacked_records_max: 4, unacked_bytes_max: 4 << 20, exceptions_max: 64 };
/// Distance in epochs between clusters: small, so their checkpoints meet in small programs.
const CLUSTER_GAP: u32 = 3;

/// Returns the settings for a run's state machines.
pub(crate) fn settings(rule: &Rule, schedule: &Schedule, ranks: u32) -> RuleSettings {
    let options = RuleOptions { clusters: schedule.clusters, ..rule.options };
    RuleSettings { ranks, policy: POLICY, cluster_gap: CLUSTER_GAP, options }
}

/// Refusal of an event by a rule, in its own words.
///
/// In a simulation all parties keep the rules, so it is always a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal(error.to_string())
    }
}

impl Pattern {
    /// Returns the patterns for a rule's campaigns.
    ///
    /// For a rule with plans for the calls in [`Pattern::Calls`], half of them are this pattern.
    pub fn of(rule: &Rule) -> Vec<Pattern> {
        let messages = Pattern::ALL.into_iter();
        match rule.properties.native_collectives {
            NativeCollectives::None => messages.collect(),
            NativeCollectives::Uniform => messages.chain(Pattern::ALL.map(|_| Pattern::Calls)).collect(),
            NativeCollectives::All => messages.chain(Pattern::OF_CALLS).collect(),
        }
    }
}

/// Returns a rule's build for planting its mistakes; a rule without mistakes is its own.
#[cfg(feature = "planted")]
pub(crate) fn planted(rule: &Rule) -> Rule {
    let planted = counterfoil_canaries::rules::RULES.into_iter().find(|planted| planted.name == rule.name);
    planted.map_or(*rule, |planted| Rule { options: rule.options, ..planted })
}

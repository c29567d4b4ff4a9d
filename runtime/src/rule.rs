//! The rules that a job can follow: the one place that knows each by name.

use std::fmt;

use counterfoil::{Incarnation, Rank};
use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_protocols::api::{Coordinator, Properties, Protocol, ProtocolError};
use counterfoil_protocols::chandy_lamport::{self, LineCoordinator};
use counterfoil_protocols::coordinated::{self, Bits, Coordinated, Initiator, Moment};
use counterfoil_protocols::event_logging::EventLogging;
use counterfoil_protocols::message_tagging::MessageTagging;
use counterfoil_protocols::pessimistic::Pessimistic;
use counterfoil_protocols::send_deterministic::{self, Clusters, RecoveryProcess, SendDeterministic};
use counterfoil_protocols::sender_based::{self, SenderBased};
use counterfoil_protocols::unlogged::Unlogged;
use counterfoil_protocols::user_level::UserLevel;
use serde::{Deserialize, Serialize};

/// Distance in epochs between clusters: a cluster may be this many checkpoints ahead of the next.
const CLUSTER_GAP: u32 = 8;

/// Rule of recovery that the ranks follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// Plain sender-based logging: every message is logged until the receiver's checkpoint covers it, and only killed
    /// ranks roll back.
    #[default]
    SenderBased,
    /// Like [`Rule::SenderBased`], and each rank records its receive order, message by message, before delivery.
    /// Wildcard receives need no record of their own.
    Pessimistic,
    /// Guermouche 2011: only messages from the past to the future are logged, and the senders of others roll back, too. For
    /// send-deterministic programs: the order of receives doesn't change what they send.
    SendDeterministic {
        /// Number of clusters of neighbouring ranks, of nearly equal sizes; at least 1. Messages from one cluster to a higher one are logged.
        clusters: u32,
    },
    /// Liu 2014: like [`Rule::SenderBased`], but barriers, bcasts, allreduces and allgathers run outside the log, and each rank keeps their results
    /// whole for ranks that lack them after a failure.
    UserLevel,
    /// Bronevetsky et al. (C3): checkpoints of the whole job, which all ranks go back to when one dies; only what crosses such a
    /// checkpoint is logged.
    Coordinated {
        /// The two bits of a collective call travel with its data, not in an exchange before it.
        piggybacked: bool,
    },
    /// Zhao 2005 (libELC): envelopes are logged, and the messages that cross a checkpoint. When a rank fails, all go back to the last
    /// checkpoint that all have finished.
    EventLogging,
    /// Zhao 2005 (libELC), the other method: like [`Rule::EventLogging`], but no envelopes are logged. Each message carries the number of
    /// its sender's last checkpoint.
    MessageTagging,
    /// Nothing is kept, and no rank is replaced: what the other rules are measured against.
    Unlogged,
}

impl Rule {
    /// Returns the name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Rule::SenderBased => "sender-based",
            Rule::Pessimistic => "pessimistic",
            Rule::SendDeterministic { .. } => "send-deterministic",
            Rule::UserLevel => "user-level",
            Rule::Coordinated { .. } => "coordinated",
            Rule::EventLogging => "event-logging",
            Rule::MessageTagging => "message-tagging",
            Rule::Unlogged => "unlogged",
        }
    }

    /// Returns the properties by which drivers distinguish rules.
    pub fn properties(self) -> Properties {
        match self {
            Rule::SenderBased => SenderBased::PROPERTIES,
            Rule::Pessimistic => Pessimistic::PROPERTIES,
            Rule::SendDeterministic { .. } => SendDeterministic::PROPERTIES,
            Rule::UserLevel => UserLevel::PROPERTIES,
            Rule::Coordinated { .. } => Coordinated::PROPERTIES,
            Rule::EventLogging => EventLogging::PROPERTIES,
            Rule::MessageTagging => MessageTagging::PROPERTIES,
            Rule::Unlogged => Unlogged::PROPERTIES,
        }
    }

    /// Makes the state machine of a rank in a job of `ranks` ranks. `incarnation`: number of times that it was replaced.
    ///
    /// # Errors
    /// [`ProtocolError`] for settings that the rule refuses.
    pub fn protocol(self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        let (rank, incarnation, policy) = (Rank(rank), Incarnation(incarnation), AckPolicy::default());
        let core = sender_based::Config { rank, ranks, incarnation, policy };
        Ok(match self {
            Rule::SenderBased => Box::new(SenderBased::new(core)?),
            Rule::Pessimistic => Box::new(Pessimistic::new(core)?),
            Rule::SendDeterministic { clusters } => {
                let config = send_deterministic::Config::new(rank, ranks);
                let (first_epoch, ceiling) = divide(ranks, clusters)
                    .map_or((config.first_epoch, config.ceiling), |clusters| clusters.epochs_of(rank));
                let config = send_deterministic::Config { incarnation, first_epoch, ceiling, ..config };
                Box::new(SendDeterministic::new(config)?)
            }
            Rule::UserLevel => Box::new(UserLevel::new(core)?),
            Rule::Coordinated { piggybacked } => {
                let bits = if piggybacked { Bits::Piggybacked } else { Bits::Exchanged };
                let moment = Moment::AnyTime;
                let config = coordinated::Config { rank, ranks, incarnation, moment, bits };
                Box::new(Coordinated::new(config)?)
            }
            Rule::EventLogging => Box::new(EventLogging::new(chandy_lamport::Config::new(rank, ranks, incarnation))?),
            Rule::MessageTagging => {
                Box::new(MessageTagging::new(chandy_lamport::Config::new(rank, ranks, incarnation))?)
            }
            Rule::Unlogged => Box::new(Unlogged::new(rank, ranks, incarnation)?),
        })
    }

    /// Makes the process apart from the ranks; `None` if the rule has none. `replaced`: number of earlier ones, which were lost.
    pub fn coordinator(self, ranks: u32, replaced: u32) -> Option<Box<dyn Coordinator>> {
        match self {
            Rule::SenderBased | Rule::Pessimistic | Rule::UserLevel | Rule::Unlogged => None,
            Rule::SendDeterministic { clusters } => {
                let clusters = divide(ranks, clusters);
                Some(Box::new(match replaced {
                    0 => RecoveryProcess::new(ranks, clusters),
                    _ => RecoveryProcess::replacement(ranks, clusters, replaced),
                }))
            }
            Rule::Coordinated { .. } => Some(Box::new(Initiator::new(ranks, replaced))),
            Rule::EventLogging | Rule::MessageTagging => Some(Box::new(LineCoordinator::new(ranks, replaced))),
        }
    }
}

/// Source of the state machines of a job: one of the rules here, or a rule of the program's own.
pub trait MakeRule: fmt::Debug + Sync {
    /// Makes the state machine of a rank. `incarnation`: number of times that it was replaced.
    ///
    /// # Errors
    /// [`ProtocolError`] for settings that the rule refuses.
    fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError>;

    /// Makes the process apart from the ranks, at the start of a job; `None` if the rule has none.
    fn coordinator(&self, ranks: u32) -> Option<Box<dyn Coordinator>>;

    /// Makes its replacement, which knows nothing of the `replaced` earlier ones; `None` if the rule has none, or doesn't outlive its loss.
    fn next_coordinator(&self, ranks: u32, replaced: u32) -> Option<Box<dyn Coordinator>> {
        let _ = (ranks, replaced);
        None
    }
}

impl MakeRule for Rule {
    fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        (*self).protocol(rank, ranks, incarnation)
    }

    fn coordinator(&self, ranks: u32) -> Option<Box<dyn Coordinator>> {
        (*self).coordinator(ranks, 0)
    }

    fn next_coordinator(&self, ranks: u32, replaced: u32) -> Option<Box<dyn Coordinator>> {
        (*self).coordinator(ranks, replaced)
    }
}

/// Divides the ranks into clusters of neighbours.
fn divide(ranks: u32, clusters: u32) -> Option<Clusters> {
    // At most 1,024 clusters, 8 epochs apart: always valid.
    Clusters::contiguous(ranks, clusters, CLUSTER_GAP).ok()
}

//! The rules that a job can follow: the one place that knows each by name.

use std::fmt;

use counterfoil::{Incarnation, Rank};
use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_protocols::api::{Coordinator, Properties, Protocol, ProtocolError};
use counterfoil_protocols::event_logging::{self, EventLogging, LineCoordinator};
use counterfoil_protocols::pessimistic::{self, Pessimistic};
use counterfoil_protocols::send_deterministic::{self, Clusters, RecoveryProcess, SendDeterministic};
use counterfoil_protocols::sender_based::{self, SenderBased};
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
    /// Zhao 2005 (libELC): envelopes are logged, and the messages that cross a checkpoint. When a rank fails, all go back to the last
    /// checkpoint that all have finished.
    EventLogging,
}

impl Rule {
    /// Returns the properties by which drivers distinguish rules.
    pub fn properties(self) -> Properties {
        match self {
            Rule::SenderBased => SenderBased::PROPERTIES,
            Rule::Pessimistic => Pessimistic::PROPERTIES,
            Rule::SendDeterministic { .. } => SendDeterministic::PROPERTIES,
            Rule::EventLogging => EventLogging::PROPERTIES,
        }
    }

    /// Makes the state machine of a rank in a job of `ranks` ranks. `incarnation`: number of times that it was replaced.
    ///
    /// # Errors
    /// [`ProtocolError`] for settings that the rule refuses.
    pub fn protocol(self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        let (rank, incarnation, policy) = (Rank(rank), Incarnation(incarnation), AckPolicy::default());
        Ok(match self {
            Rule::SenderBased => Box::new(SenderBased::new(sender_based::Config { rank, ranks, incarnation, policy })?),
            Rule::Pessimistic => {
                Box::new(Pessimistic::new(pessimistic::Config::new(rank, ranks, incarnation, policy))?)
            }
            Rule::SendDeterministic { clusters } => {
                let config = send_deterministic::Config::new(rank, ranks);
                let (first_epoch, ceiling) = divide(ranks, clusters)
                    .map_or((config.first_epoch, config.ceiling), |clusters| clusters.epochs_of(rank));
                let config = send_deterministic::Config { incarnation, first_epoch, ceiling, ..config };
                Box::new(SendDeterministic::new(config)?)
            }
            Rule::EventLogging => Box::new(EventLogging::new(event_logging::Config::new(rank, ranks, incarnation))?),
        })
    }

    /// Makes the process apart from the ranks, at the start of a job; `None` if the rule has none.
    pub fn coordinator(self, ranks: u32) -> Option<Box<dyn Coordinator>> {
        match self {
            Rule::SenderBased | Rule::Pessimistic => None,
            Rule::SendDeterministic { clusters } => {
                Some(Box::new(RecoveryProcess::new(ranks, divide(ranks, clusters))))
            }
            Rule::EventLogging => Some(Box::new(LineCoordinator::new(ranks, 0))),
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
}

impl MakeRule for Rule {
    fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        (*self).protocol(rank, ranks, incarnation)
    }

    fn coordinator(&self, ranks: u32) -> Option<Box<dyn Coordinator>> {
        (*self).coordinator(ranks)
    }
}

/// Divides the ranks into clusters of neighbours.
fn divide(ranks: u32, clusters: u32) -> Option<Clusters> {
    // At most 1,024 clusters, 8 epochs apart: always valid.
    Clusters::contiguous(ranks, clusters, CLUSTER_GAP).ok()
}

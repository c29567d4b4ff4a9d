//! Uncoordinated checkpoints without domino effect, for send-deterministic programs (Guermouche et al. 2011).
//!
//! A rank logs only messages from the past to the future (sent in a lower epoch than received in). When a rank fails,
//! the senders of the unlogged messages it lacks roll back with it, to checkpoints found by [`recovery_line`]; all
//! others only pause. Receivers of messages yet to be sent again (*orphans*) don't roll back: a send-deterministic
//! program sends the same again. *Phases* hold back everything dependent on an orphan until it was sent again.
//!
//! [`SendDeterministic`] is the state machine of a rank (Figure 3), [`RecoveryProcess`] that of the separate process
//! (Figure 4). The figures don't work as printed: `docs/lab/errata.md` says for each line what is done instead and why,
//! and names the test.
//!
//! # Further duties of a driver
//!
//! - Channels are FIFO (section II.A), and messages are presented when they arrive, in that order.
//! - [`SendDeterministic::start`] is the checkpoint of the first epoch and is kept like any other. A replacement is
//!   always restored from the newest checkpoint.
//! - [`Effect::RollBack`] means: drop everything received, held or being written, restore image and lanes, call
//!   [`Protocol::restore`](crate::api::Protocol::restore), and connect to every peer anew, as a replacement would.
//!   Frames under way on the old connections are lost.
//! - The program runs only while [`is_running`](crate::api::Protocol::is_running); a message sent nevertheless is held.
//! - A replay sends the records still in the lane; a missing one was released, and its sender is about to roll back.

mod channel;
mod clusters;
mod events;
#[cfg(test)]
mod harness;
mod inspect;
mod line;
mod notice;
mod phases;
mod received;
mod recovery;
mod round;
mod sent;
mod tables;

use std::collections::{BTreeMap, VecDeque};

use counterfoil_ack_piggyback::{AckPolicy, Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use crate::api::{
    Effect, Kept, Misbehaviour, Party, Properties, ProtocolError, Repetition, Rule, RuleOption, RuleOptions,
    RuleSettings, Snapshot, report_effect,
};
use channel::Channel;
pub use clusters::{Clusters, ClustersError};
pub use line::{RankTable, SentInEpoch, SentTo, StaleReceipt, floor_by_line, floor_by_smallest_epoch, recovery_line};
use notice::Report;
use phases::PhaseOrder;
pub use recovery::RecoveryProcess;
use round::Round;
use sent::AcknowledgedRun;
use tables::Tables;

/// Maximum number of rollbacks between two replacements of a rank.
const ROLLBACKS_MAX: u32 = 1 << 16;

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "send-deterministic",
    paper: "Guermouche 2011",
    summary: "Log only messages from the past to the future; ranks that sent other messages to a killed rank roll back with it. For programs whose sends don't depend on the receive order",
    properties: SendDeterministic::PROPERTIES,
    takes: &[RuleOption::Clusters],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| {
        let config = Config { incarnation, policy: settings.policy, ..Config::new(rank, settings.ranks) };
        let epochs = divide(settings).map_or((config.first_epoch, config.ceiling), |clusters| clusters.epochs_of(rank));
        let (first_epoch, ceiling) = epochs;
        Ok(Box::new(SendDeterministic::new(Config { first_epoch, ceiling, ..config })?))
    },
    make_coordinator: Some(&|replaced, settings| {
        let clusters = divide(settings);
        Box::new(match replaced {
            0 => RecoveryProcess::new(settings.ranks, clusters),
            _ => RecoveryProcess::replacement(settings.ranks, clusters, replaced),
        })
    }),
};

/// Divides the ranks into clusters of neighbours; `None` where none are asked for, or can be.
fn divide(settings: &RuleSettings) -> Option<Clusters> {
    let RuleSettings { ranks, cluster_gap, options: RuleOptions { clusters, .. }, .. } = *settings;
    if clusters == 0 { None } else { Clusters::contiguous(ranks, clusters, cluster_gap).ok() }
}

/// Rank identity and options.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// Job size in ranks.
    pub ranks: u32,
    /// Number of process replacements at this rank, at most 65,535.
    pub incarnation: Incarnation,
    /// Acknowledgement policy, the same for all ranks in a job; `exceptions_max` is taken as 0, because channels are
    /// FIFO.
    pub policy: AckPolicy,
    /// First epoch of the rank: [`Epoch::FIRST`], or from [`Clusters::epochs_of`].
    pub first_epoch: Epoch,
    /// Exclusive limit of the rank's epochs until raised by a collection: [`Epoch::MAX`], or from
    /// [`Clusters::epochs_of`].
    pub ceiling: Epoch,
}

impl Config {
    /// Returns the configuration for a rank's first incarnation, with the default policy and without clusters.
    #[must_use]
    pub fn new(rank: Rank, ranks: u32) -> Config {
        let (incarnation, policy) = (Incarnation(0), AckPolicy::default());
        let (first_epoch, ceiling) = (Epoch::FIRST, Epoch::MAX);
        Config { rank, ranks, incarnation, policy, first_epoch, ceiling }
    }
}

/// State of one rank under the rule.
///
/// Memory: nothing for ranks without message traffic to this one, a few hundred bytes for each peer, and 48 for each
/// epoch, phase and peer since the last collection.
#[derive(Debug)]
pub struct SendDeterministic {
    config: Config,
    incarnation: Incarnation,
    epoch: Epoch,
    phase: Phase,
    /// Phase order since the last recovery.
    phases: PhaseOrder,
    /// Epoch begun by the newest durable checkpoint.
    durable: Epoch,
    /// Checkpoint in progress, with its tables.
    pending: Option<RankTable>,
    /// Epochs, ascending, with checkpoints replaced by later ones before they were durable: this rank can't be restored
    /// to these.
    abandoned: Vec<u32>,
    /// Tables of the newest durable checkpoint. Collections use these: a replacement knows no more.
    checkpointed: RankTable,
    /// Epoch below which no recovery goes.
    floor: Epoch,
    /// Lower bound for epochs in the next cluster.
    ceiling: Epoch,
    round: Round,
    /// Rank incarnations in the last recovery line obeyed by all, like [`notice::Line::living`].
    living: Vec<(u32, u32)>,
    choices: u64,
    /// Created when a peer is first heard of.
    channels: BTreeMap<Rank, Box<Channel>>,
    effects: VecDeque<Effect>,
}

impl SendDeterministic {
    /// Rule properties.
    pub const PROPERTIES: Properties = Properties {
        repeats: Repetition::Nothing,
        keeps: Kept::Logged,
        rolls_back_survivors: true,
        has_coordinator: true,
        collects: true,
        needs_send_determinism: true,
        allows_late_frames: true,
        ..Properties::LOGGED_BY_SENDERS
    };

    /// Creates a rank in its initial state.
    ///
    /// # Errors
    /// Rank outside the job, a contradictory policy, or too many replacements ([`ProtocolError::EpochsExhausted`]).
    pub fn new(mut config: Config) -> Result<SendDeterministic, ProtocolError> {
        config.policy.exceptions_max = 0;
        let Config { rank, ranks, incarnation, policy, first_epoch, ceiling, .. } = config;
        policy.validate()?;
        ProtocolError::check_rank(rank, ranks)?;
        // Leave room for rollbacks between two replacements: a replacement doesn't know how often its predecessor was,
        // or was to be, rolled back, and must be above all of them.
        let incarnation = incarnation.0.checked_mul(ROLLBACKS_MAX).map(Incarnation);
        let incarnation = incarnation.ok_or(ProtocolError::EpochsExhausted)?;
        let epoch = first_epoch.clamp(Epoch::FIRST, Epoch::MAX);
        let checkpointed = RankTable { incarnation: incarnation.0, epoch: epoch.0, ..RankTable::default() };
        Ok(SendDeterministic {
            config,
            checkpointed,
            incarnation,
            epoch,
            phase: Phase(1),
            phases: PhaseOrder::default(),
            durable: epoch,
            pending: None,
            abandoned: Vec::new(),
            floor: epoch,
            ceiling,
            round: Round::default(),
            living: Vec::new(),
            choices: 0,
            channels: BTreeMap::new(),
            effects: VecDeque::new(),
        })
    }

    /// Returns the checkpoint of the first epoch.
    ///
    /// Call it before anything else.
    pub fn start(&self) -> Snapshot {
        Snapshot { epoch: self.epoch, tables: self.tables().encode() }
    }

    /// Returns the current phase (section III.A.3).
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the last SSN assigned to a message to `peer`.
    #[must_use]
    pub fn sent(&self, peer: Rank) -> Ssn {
        self.channels.get(&peer).map_or(Ssn::ZERO, |channel| channel.last_sent())
    }

    /// Returns this rank's table for the recovery process: SPE with message numbers.
    #[must_use]
    pub fn table(&self) -> RankTable {
        self.table_at(self.durable)
    }

    /// Returns the same table as if `durable`'s were the newest durable checkpoint.
    fn table_at(&self, durable: Epoch) -> RankTable {
        let used = self.channels.values().filter(|channel| channel.last_sent() > Ssn::ZERO);
        let channels = used.map(|channel| {
            let (sent, restart) = (&channel.sent, |epoch| self.restart_epoch(epoch, durable));
            SentTo { peer: channel.peer().0, sent: channel.last_sent().0, epochs: sent.table(restart) }
        });
        RankTable {
            incarnation: self.incarnation.0,
            epoch: durable.0,
            restored: self.round.restored().map(|epoch| epoch.0),
            executed: self.round.executed(),
            channels: channels.collect(),
            peers: self.channels.keys().map(|peer| peer.0).collect(),
        }
    }

    /// Returns the epoch of the checkpoint from which this rank would repeat the messages from `epoch`, if `durable`'s
    /// is its newest.
    fn restart_epoch(&self, epoch: u32, durable: Epoch) -> u32 {
        let mut restart = epoch.min(durable.0);
        while self.abandoned.binary_search(&restart).is_ok() {
            restart -= 1;
        }
        restart
    }

    /// Returns the channel with a peer, creating it if it is new.
    fn channel(&mut self, peer: Rank) -> Result<&mut Channel, ProtocolError> {
        let Config { rank, ranks, policy, .. } = self.config;
        ProtocolError::check_peer(peer, rank, ranks)?;
        let SendDeterministic { epoch, round, living, channels, .. } = self;
        Ok(channels.entry(peer).or_insert_with(|| {
            let mut channel = Channel::new(peer, policy, *epoch, round.restored().is_some());
            channel.refuse_earlier_than(notice::incarnation_in(living, peer));
            if let Some(incarnation) = round.line_incarnation(peer) {
                channel.set_line(Some((incarnation, Ssn::ZERO)));
            }
            Box::new(channel)
        }))
    }

    fn channels(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.channels.values_mut().map(Box::as_mut)
    }

    /// Returns all known peers.
    fn peers(&self) -> Vec<Rank> {
        self.channels.keys().copied().collect()
    }

    fn origin(&self) -> Origin {
        Origin { incarnation: self.incarnation, epoch: self.epoch, phase: self.phase }
    }

    fn tables(&self) -> Tables {
        Tables {
            rank: self.config.rank.0,
            ranks: self.config.ranks,
            incarnation: self.incarnation.0,
            epoch: self.epoch.0,
            phase: self.phase.0,
            phases: self.phases.clone(),
            choices: self.choices,
            floor: self.floor.0,
            abandoned: self.abandoned.clone(),
            channels: self.channels.values().map(|channel| channel.snapshot()).collect(),
        }
    }

    fn malformed(peer: Rank, header: &WireHeader, body: &[u8]) -> ProtocolError {
        ProtocolError::PeerMisbehaved {
            peer,
            how: Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() },
        }
    }

    /// Reports acknowledged records to the log.
    fn report_acknowledged(&mut self, peer: Rank, runs: Vec<AcknowledgedRun>) {
        let acknowledged =
            |AcknowledgedRun { ack, phase, logged }| Effect::Acknowledged { peer, ack, phase, keep: logged };
        self.effects.extend(runs.into_iter().map(acknowledged));
    }

    fn apply_pending(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        let runs = self.channel(peer)?.apply_pending();
        self.report_acknowledged(peer, runs);
        self.collect(peer)
    }

    fn apply_all_pending(&mut self) -> Result<(), ProtocolError> {
        self.peers().into_iter().try_for_each(|peer| self.apply_pending(peer))
    }

    /// Collects the records no longer needed by `peer`.
    fn collect(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        let floor = self.floor;
        if let Some((epoch, upto)) = self.channel(peer)?.collect(floor) {
            self.effects.push_back(Effect::Covered { peer, epoch, upto });
        }
        Ok(())
    }

    /// Sends the acknowledgements that can't wait for a message to `peer`.
    fn send_due_acks(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        let (rank, origin) = (self.config.rank, self.origin());
        while let Some(ack) = self.channel(peer)?.link.recv.poll_ack() {
            let header = WireHeader::ack_only(rank, peer, origin, ack);
            self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body: Vec::new() });
        }
        Ok(())
    }

    /// Sends a report to the recovery process.
    fn report(&mut self, report: &Report) {
        self.effects.push_back(report_effect(self.config.rank, self.origin(), notice::encode(report)));
    }
}

//! Uncoordinated checkpoints without domino effect, for send-deterministic programs (Guermouche et al. 2011).
//!
//! A rank logs only the messages that go from the past to the future (sent in a lower epoch than received in). When a rank fails, those
//! whose unlogged messages it would miss go back with it, to checkpoints that [`recovery_line`] finds; the others stand still
//! and go on. Receivers of messages that their senders have yet to send again (*orphans*) don't go back: a send-deterministic program
//! sends the same again. *Phases* keep what depends on an orphan away from whoever has to send it.
//!
//! [`SendDeterministic`] is the state machine of a rank (Figure 3), [`RecoveryProcess`] that of the process apart (Figure 4).
//! The figures don't work as printed: `docs/send-deterministic.md` says for each line what is done instead, why, and which test
//! shows it.
//!
//! # What a driver does beyond the frame's contract
//!
//! - Channels are FIFO (section II.A) and messages are presented in the order in which they arrive, when they arrive.
//! - [`SendDeterministic::start`] is the checkpoint of the first epoch: it is kept like any other. A replacement is restored from
//!   the newest checkpoint in any case.
//! - [`Effect::RollBack`] means: drop whatever arrived, is held or is being written, put back image and lanes, call
//!   [`Protocol::restore`](crate::frame::Protocol::restore), and connect to every peer anew, as a replacement would. What was under way on the old connections
//!   is lost.
//! - The program runs only while [`is_running`](crate::frame::Protocol::is_running); a message that it sends nevertheless is held.
//! - A replay sends the records that the lane still has; one that is missing was released, and its sender is about to roll back.

mod canary;
mod channel;
mod clusters;
mod events;
mod line;
mod notice;
mod phases;
mod received;
mod recovery;
mod round;
mod sent;
mod sizes;
mod tables;

use std::collections::{BTreeMap, VecDeque};

use counterfoil_ack_piggyback::{AckPolicy, Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use crate::frame::{Effect, Misbehaviour, Party, ProtocolError, Snapshot};
pub use canary::Canary;
use channel::Channel;
pub use clusters::{Clusters, ClustersError};
pub use line::{Forgotten, RankTable, SentInEpoch, SentTo, floor_by_line, floor_by_smallest_epoch, recovery_line};
use notice::Report;
use phases::PhaseOrder;
pub use recovery::{Floor, RecoveryError, RecoveryProcess};
use round::Round;
use sent::Settled;
pub use sizes::Sizes;
use tables::Tables;

/// The header of what the recovery process says to `rank`, for a driver that carries only bodies between them.
#[must_use]
pub fn order_header(rank: Rank, body: &[u8]) -> WireHeader {
    WireHeader::control(rank, rank, Origin::default(), notice::RECOVERY, body.len() as u64, None)
}

/// How often a rank can be rolled back between two replacements.
const ROLLBACKS_MAX: u32 = 1 << 16;

/// Who a rank is, and how it follows the rule.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The rank.
    pub rank: Rank,
    /// How many there are.
    pub ranks: u32,
    /// How often the rank's process was replaced, at most 65,535.
    pub incarnation: Incarnation,
    /// When to ask for acknowledgements. The same for all ranks of a job; `exceptions_max` is taken as 0, because channels are
    /// FIFO.
    pub policy: AckPolicy,
    /// The epoch that the rank begins in: [`Epoch::FIRST`], or [`Clusters::epochs_of`].
    pub first_epoch: Epoch,
    /// The epoch that the rank stays below until a collection says otherwise: [`Epoch::MAX`], or [`Clusters::epochs_of`].
    pub ceiling: Epoch,
    /// The epoch that the oldest checkpoint began that is still there: what is older was given up for good. A replacement may know
    /// less from its tables than its predecessor knew. [`Epoch::FIRST`] where the driver can't say: then records may be kept longer.
    pub oldest: Epoch,
    /// A planted mistake, for tests and simulators. `None` for everyone else.
    pub canary: Option<Canary>,
}

impl Config {
    /// The first incarnation of a rank, with the default policy and without clusters.
    #[must_use]
    pub fn new(rank: Rank, ranks: u32) -> Config {
        let (incarnation, policy) = (Incarnation(0), AckPolicy::default());
        let (first_epoch, ceiling, oldest) = (Epoch::FIRST, Epoch::MAX, Epoch::FIRST);
        Config { rank, ranks, incarnation, policy, first_epoch, ceiling, oldest, canary: None }
    }
}

/// One rank's state under the rule.
///
/// Memory: nothing for ranks that it doesn't exchange messages with, a few hundred bytes for each peer, and 48 for each epoch, phase
/// and peer since the last collection.
#[derive(Debug)]
pub struct SendDeterministic {
    config: Config,
    incarnation: Incarnation,
    epoch: Epoch,
    phase: Phase,
    /// The order of phases since the last recovery.
    phases: PhaseOrder,
    /// The epoch that the newest durable checkpoint began.
    durable: Epoch,
    /// The checkpoint that is being taken, with what its tables know.
    pending: Option<RankTable>,
    /// What the tables of the newest durable checkpoint know. A collection goes by this: a replacement knows no more.
    checkpointed: RankTable,
    /// No recovery goes below.
    floor: Epoch,
    /// The cluster above is at least here.
    ceiling: Epoch,
    round: Round,
    choices: u64,
    /// Made when a peer is first heard of.
    channels: BTreeMap<Rank, Box<Channel>>,
    effects: VecDeque<Effect>,
}

impl SendDeterministic {
    /// A rank that has done nothing yet.
    ///
    /// # Errors
    /// A rank that isn't of the job, a policy that contradicts itself, or too many replacements ([`ProtocolError::EpochsExhausted`]).
    pub fn new(mut config: Config) -> Result<SendDeterministic, ProtocolError> {
        config.policy.exceptions_max = 0;
        let Config { rank, ranks, incarnation, policy, first_epoch, ceiling, .. } = config;
        policy.validate()?;
        if rank.0 >= ranks || rank > Rank::MAX {
            return Err(ProtocolError::UnknownRank { rank, ranks });
        }
        // Room for rollbacks between two replacements: a replacement doesn't know how often its predecessor was, or was
        // to be, rolled back, and must be above all of that.
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
            floor: epoch.max(config.oldest),
            ceiling,
            round: Round::default(),
            choices: 0,
            channels: BTreeMap::new(),
            effects: VecDeque::new(),
        })
    }

    /// The checkpoint of the first epoch. To be asked for before anything else.
    pub fn start(&self) -> Snapshot {
        Snapshot { epoch: self.epoch, tables: self.tables().encode() }
    }

    /// Counts replacements and rollbacks of this rank: 65,536 for each replacement, and one for each rollback since.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The phase that it is in (section III.A.3).
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The round in which this rank has told the recovery process its table, where that is the present one: what it hears of receipts
    /// from then on waits for the recovery line.
    #[must_use]
    pub fn told_in(&self) -> Option<u64> {
        self.round.told_in()
    }

    /// Whether a recovery is under way, as far as this rank knows.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        !self.round.is_over()
    }

    /// The last number given to a message to `peer`.
    #[must_use]
    pub fn sent(&self, peer: Rank) -> Ssn {
        self.channels.get(&peer).map_or(Ssn::ZERO, |channel| channel.last_sent())
    }

    /// What this rank would tell the recovery process: SPE with message numbers.
    #[must_use]
    pub fn table(&self) -> RankTable {
        self.table_at(self.durable)
    }

    /// The same, if the newest durable checkpoint were that of `durable`.
    fn table_at(&self, durable: Epoch) -> RankTable {
        let by_acks_only = self.has(Canary::DuplicateUnacknowledged);
        let used = self.channels.values().filter(|channel| channel.last_sent() > Ssn::ZERO);
        let channels = used.map(|channel| {
            let sent = &channel.sent;
            let epochs = if by_acks_only { sent.table_by_acks_only(durable) } else { sent.table(durable) };
            SentTo { peer: channel.peer().0, sent: channel.last_sent().0, epochs }
        });
        RankTable {
            incarnation: self.incarnation.0,
            epoch: durable.0,
            restored: self.round.restored().map(|epoch| epoch.0),
            ran: self.round.ran(),
            channels: channels.collect(),
            met: self.channels.keys().map(|peer| peer.0).collect(),
        }
    }

    fn has(&self, canary: Canary) -> bool {
        self.config.canary == Some(canary)
    }

    /// The channel with a peer, made if it is new.
    fn channel(&mut self, peer: Rank) -> Result<&mut Channel, ProtocolError> {
        let Config { rank, ranks, policy, .. } = self.config;
        if peer == rank {
            return Err(ProtocolError::Misdirected { source_rank: rank, destination: rank, rank });
        }
        let (epoch, restored) = (self.epoch, self.round.restored().is_some());
        if peer.0 >= ranks {
            return Err(ProtocolError::UnknownRank { rank: peer, ranks });
        }
        Ok(self.channels.entry(peer).or_insert_with(|| Box::new(Channel::new(peer, policy, epoch, restored))))
    }

    fn channels(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.channels.values_mut().map(Box::as_mut)
    }

    /// All peers that were heard of.
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
            channels: self.channels.values().map(|channel| channel.snapshot()).collect(),
        }
    }

    fn malformed(peer: Rank, header: &WireHeader, body: &[u8]) -> ProtocolError {
        ProtocolError::PeerMisbehaved {
            peer,
            how: Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() },
        }
    }

    /// Tells the log what became of records to `peer`.
    fn settle(&mut self, peer: Rank, settled: Vec<Settled>) {
        let acknowledged = |Settled { ack, phase, logged }| Effect::Acknowledged { peer, ack, phase, keep: logged };
        self.effects.extend(settled.into_iter().map(acknowledged));
    }

    fn catch_up(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        let settled = self.channel(peer)?.catch_up();
        self.settle(peer, settled);
        self.collect(peer)
    }

    /// Lets go what `peer` won't ask for.
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
        while let Some(ack) = self.channel(peer)?.recv.poll_ack() {
            let header = WireHeader::ack_only(rank, peer, origin, ack);
            self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body: Vec::new() });
        }
        Ok(())
    }

    /// Tells the recovery process something.
    fn report(&mut self, report: &Report) {
        let rank = self.config.rank;
        let body = notice::encode(report);
        let header = WireHeader::control(rank, rank, self.origin(), notice::RECOVERY, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Coordinator, header, body });
    }
}

//! Plain sender-based message logging.
//!
//! The sender keeps every message until a durable checkpoint at the receiver covers it. A dead rank is replaced alone:
//! the replacement restarts from the newest durable checkpoint or from the start, its peers retransmit the messages it
//! lacks, it sends its own again, and receivers drop duplicates by SSN. Non-deterministic outcomes are recorded before
//! they take effect and forced when the execution is repeated.
//!
//! `docs/book/src/explanation/logging.md` has invariants, message sequences, and why several failures at once are
//! covered. The rule is the common core of Johnson and Zwaenepoel's sender-based logging and ULML (Liu 2014, section
//! 3.1), with piggybacked acknowledgements as in Guermouche 2011, section V.A. Where those texts don't work as written:
//! `docs/lab/errata.md`.
//!
//! ```
//! use counterfoil_ack_piggyback::AckPolicy;
//! use counterfoil_log_core::{Envelope, Incarnation, Rank};
//! use counterfoil_protocols::api::{Incoming, Protocol};
//! use counterfoil_protocols::sender_based::{Config, SenderBased};
//!
//! let config = |rank| Config { rank, ranks: 2, incarnation: Incarnation(0), policy: AckPolicy::default() };
//! let mut sender = SenderBased::new(config(Rank(0)))?;
//! let mut receiver = SenderBased::new(config(Rank(1)))?;
//!
//! let envelope = Envelope { source: Rank(0), destination: Rank(1), tag: 7, comm: 0, len: 5 };
//! let mut header = sender.handle_send(&envelope)?.header; // goes into the log with the payload
//! sender.handle_transmit(&mut header)?; // and from there on the wire
//! assert_eq!(receiver.handle_message(&header)?, Incoming::Deliver { keep: None });
//! assert!(matches!(receiver.handle_message(&header)?, Incoming::Discard(_)));
//! # Ok::<(), counterfoil_protocols::api::ProtocolError>(())
//! ```

mod channel;
pub(crate) mod choices;
mod events;
mod notice;
mod tables;

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{Ack, AckPolicy, Kind, Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use crate::api::{Effect, Misbehaviour, Party, Properties, ProtocolError, Rule, RuleOptions, RuleSettings};
use channel::Channel;
pub(crate) use choices::{Choices, check as check_choice};
use notice::Covered;

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "sender-based",
    paper: "Johnson and Zwaenepoel 1987",
    summary: "Log every message until a checkpoint of its receiver covers it, and the outcomes of wildcard receives; only killed ranks roll back",
    properties: SenderBased::PROPERTIES,
    takes: &[],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| Ok(Box::new(SenderBased::new(Config::of(rank, incarnation, settings))?)),
    make_coordinator: None,
};

/// Rank identity and acknowledgement policy.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// Job size in ranks.
    pub ranks: u32,
    /// Number of replacements of this rank.
    pub incarnation: Incarnation,
    /// Acknowledgement policy, the same for all ranks in a job.
    pub policy: AckPolicy,
}

impl Config {
    pub(crate) fn of(rank: Rank, incarnation: Incarnation, settings: &RuleSettings) -> Config {
        let RuleSettings { ranks, policy, .. } = *settings;
        Config { rank, ranks, incarnation, policy }
    }
}

/// State of one rank under the rule.
///
/// Memory: 8 bytes for each rank in the job, and a few hundred for each peer with message traffic to this one.
#[derive(Debug)]
pub struct SenderBased {
    config: Config,
    epoch: Epoch,
    /// Epoch begun by the newest durable checkpoint.
    durable: Epoch,
    /// Checkpoint in progress.
    pending: Option<Pending>,
    choices: Choices,
    /// Indexed by peer; created when a peer is first heard of.
    channels: Vec<Option<Box<Channel>>>,
    effects: VecDeque<Effect>,
}

/// Checkpoint not yet durable.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Its new epoch.
    epoch: Epoch,
    /// Number of covered choices.
    choices: u64,
}

impl SenderBased {
    /// Rule properties.
    pub const PROPERTIES: Properties = Properties::LOGGED_BY_SENDERS;

    /// Creates a rank in its initial state.
    ///
    /// # Errors
    /// Rank outside the job, or a contradictory policy.
    pub fn new(config: Config) -> Result<SenderBased, ProtocolError> {
        let Config { rank, ranks, policy, .. } = config;
        policy.validate()?;
        ProtocolError::check_rank(rank, ranks)?;
        let mut fresh = SenderBased {
            config,
            epoch: Epoch::FIRST,
            durable: Epoch::FIRST,
            pending: None,
            choices: Choices::default(),
            channels: (0..ranks).map(|_| None).collect(),
            effects: VecDeque::new(),
        };
        fresh.channel(rank)?.set_own_incarnation(config.incarnation);
        Ok(fresh)
    }

    /// Returns rank, job size, incarnation and policy.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the last SSN assigned to a message to `peer`.
    pub fn sent(&self, peer: Rank) -> Ssn {
        self.known(peer).map_or(Ssn::ZERO, Channel::sent)
    }

    /// Returns the SSN up to which all messages from `peer` were received.
    pub fn received_upto(&self, peer: Rank) -> Ssn {
        self.known(peer).map_or(Ssn::ZERO, Channel::received_upto)
    }

    /// Returns `true` for a message deliverable now: for this rank, from the sender's living incarnation, and not
    /// received before.
    pub(crate) fn would_deliver(&self, header: &WireHeader) -> bool {
        let (peer, ssn) = (header.source(), header.ssn());
        let is_received = |channel: &Channel| channel.has_received(ssn);
        header.kind() == Kind::Message
            && (Ssn::FIRST..=Ssn::MAX).contains(&ssn)
            && ProtocolError::check_arrival(header, self.config.rank, self.config.ranks).is_ok()
            && header.incarnation() == self.incarnation_of(peer)
            && !self.known(peer).is_some_and(is_received)
    }

    /// Returns `peer`'s newest incarnation with a received Hello.
    pub fn incarnation_of(&self, peer: Rank) -> Incarnation {
        self.known(peer).map_or(Incarnation(0), Channel::incarnation)
    }

    /// Returns the count of non-deterministic calls.
    pub fn choices(&self) -> u64 {
        self.choices.counted()
    }

    fn known(&self, peer: Rank) -> Option<&Channel> {
        self.channels.get(peer.index())?.as_deref()
    }

    /// Returns the channel with a peer, creating it if it is new.
    fn channel(&mut self, peer: Rank) -> Result<&mut Channel, ProtocolError> {
        let Config { ranks, policy, .. } = self.config;
        let epoch = self.epoch;
        let slot = self.channels.get_mut(peer.index()).ok_or(ProtocolError::UnknownRank { rank: peer, ranks })?;
        Ok(slot.get_or_insert_with(|| Box::new(Channel::new(peer, policy, epoch))))
    }

    fn channels(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.channels.iter_mut().flatten().map(Box::as_mut)
    }

    fn origin(&self) -> Origin {
        Origin { incarnation: self.config.incarnation, epoch: self.epoch, phase: Phase(0) }
    }

    /// Returns `true` if this execution may repeat one of an earlier incarnation.
    fn reexecuting(&self) -> bool {
        self.config.incarnation > Incarnation(0)
    }

    /// Checks that `peer` is another rank of the job.
    fn check_peer(&self, peer: Rank) -> Result<(), ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_peer(peer, rank, ranks)
    }

    /// Handles an acknowledgement from `peer`'s living incarnation.
    fn handle_ack(&mut self, peer: Rank, ack: Ack) -> Result<(), ProtocolError> {
        let reexecuting = self.reexecuting();
        if let Some(ack) = self.channel(peer)?.acknowledge(ack, reexecuting)? {
            self.effects.push_back(Effect::Acknowledged { peer, ack, phase: Phase(0), keep: true });
        }
        Ok(())
    }

    /// Sends the acknowledgements that can't wait for a message to `peer`.
    fn send_due_acks(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        let (rank, origin) = (self.config.rank, self.origin());
        if peer == rank {
            while let Some(ack) = self.channel(peer)?.piggyback_ack() {
                self.handle_ack(peer, ack)?;
            }
            return Ok(());
        }
        while let Some(ack) = self.channel(peer)?.poll_ack() {
            let header = WireHeader::ack_only(rank, peer, origin, ack);
            self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body: Vec::new() });
        }
        Ok(())
    }

    /// Notes that `peer`'s durable checkpoint covers the messages to it up to `upto`.
    fn handle_covered(&mut self, peer: Rank, epoch: Epoch, upto: Ssn) -> Result<(), ProtocolError> {
        let reexecuting = self.reexecuting();
        let channel = self.channel(peer)?;
        let sent = channel.sent();
        if upto > sent && !reexecuting {
            let how = Misbehaviour::ReceivedMoreThanSent { claimed: upto, sent };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        channel.note_covered(epoch, upto);
        self.apply_early(peer)
    }

    /// Reports acknowledgements and coverage received ahead of this execution, as far as it has now sent the messages
    /// again.
    ///
    /// Called when the record of the last SSN has been committed, so the log never hears of a record it doesn't have.
    fn apply_early(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        let channel = self.channel(peer)?;
        let covered = channel.poll_covered();
        if let Some(ack) = channel.poll_early_ack() {
            self.handle_ack(peer, ack)?;
        }
        if let Some((epoch, upto)) = covered {
            self.effects.push_back(Effect::Covered { peer, epoch, upto });
        }
        Ok(())
    }

    /// Notifies `peer`, which may be this rank itself, of the coverage by the newest durable checkpoint.
    fn send_covered(&mut self, peer: Rank, covered: Covered) -> Result<(), ProtocolError> {
        let rank = self.config.rank;
        if peer == rank {
            return self.handle_covered(peer, covered.epoch, covered.upto);
        }
        let body = covered.encode().to_vec();
        let header = WireHeader::control(rank, peer, self.origin(), notice::COVERED, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_ack_piggyback::{Flags, Stamp};
    use counterfoil_log_core::Envelope;

    use super::*;
    use crate::api::Protocol;

    #[test]
    fn a_message_would_be_delivered_if_it_is_new_and_of_the_living_incarnation() {
        let config = |rank| Config { rank, ranks: 3, incarnation: Incarnation(0), policy: AckPolicy::default() };
        let (own, peer) = (Rank(1), Rank(0));
        let mut rank = SenderBased::new(config(own)).unwrap();
        let header = |to, ssn, incarnation| {
            let envelope = Envelope { source: peer, destination: to, tag: 0, comm: 0, len: 8 };
            let origin = Origin { incarnation: Incarnation(incarnation), ..Origin::default() };
            WireHeader::message(&envelope, Stamp { ssn: Ssn(ssn), flags: Flags::NONE }, origin, None)
        };
        assert!(rank.would_deliver(&header(own, 1, 0)));
        assert!(rank.would_deliver(&header(own, Ssn::MAX.0, 0)));
        let control = WireHeader::control(peer, own, Origin::default(), 1, 0, None);
        assert!(!rank.would_deliver(&control), "no message");
        assert!(!rank.would_deliver(&header(own, 0, 0)) && !rank.would_deliver(&header(own, Ssn::MAX.0 + 1, 0)));
        assert!(!rank.would_deliver(&header(Rank(2), 1, 0)), "for another rank");
        assert!(!rank.would_deliver(&header(own, 1, 1)), "of an unknown incarnation");
        let _ = rank.handle_message(&header(own, 1, 0)).unwrap();
        assert!(!rank.would_deliver(&header(own, 1, 0)) && rank.would_deliver(&header(own, 2, 0)));
    }
}

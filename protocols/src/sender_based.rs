//! The plain rule of sender-based message logging.
//!
//! Every message is kept by its sender until a durable checkpoint of its receiver covers it. A rank that dies is replaced
//! alone: the replacement restarts from the newest durable checkpoint or from the start, its peers transmit again what
//! it lacks, it sends again what they may have, and everyone drops what they have by number. Outcomes that the program
//! doesn't determine are recorded before they take effect and forced when the execution is repeated.
//!
//! Invariants, message sequences, and why several failures at once are covered: `docs/protocols.md`. The rule is the common
//! core of Johnson and Zwaenepoel's sender-based logging and of ULML (Liu 2014, section 3.1), with piggybacked
//! acknowledgements as in Guermouche 2011, section V.A. Where those texts don't work as written: `docs/errata.md`.
//!
//! ```
//! use counterfoil_ack_piggyback::AckPolicy;
//! use counterfoil_log_core::{Envelope, Incarnation, Rank};
//! use counterfoil_protocols::frame::{Incoming, Protocol};
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
//! # Ok::<(), counterfoil_protocols::frame::ProtocolError>(())
//! ```

mod channel;
mod choices;
mod events;
mod notice;
mod tables;

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{Ack, AckPolicy, Kind, Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use crate::frame::{Effect, Misbehaviour, Party, ProtocolError};
use channel::Channel;
use choices::Choices;
use notice::Covered;

/// Who a rank is, and its acknowledgement policy.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The rank.
    pub rank: Rank,
    /// How many there are.
    pub ranks: u32,
    /// How often this rank has been replaced.
    pub incarnation: Incarnation,
    /// When to ask for acknowledgements. The same for all ranks of a job.
    pub policy: AckPolicy,
}

/// One rank's state under the rule.
///
/// Memory: 8 bytes for each rank of the job, and a few hundred for each peer that it exchanges messages with.
#[derive(Debug)]
pub struct SenderBased {
    config: Config,
    epoch: Epoch,
    /// The epoch that the newest durable checkpoint began.
    durable: Epoch,
    /// The checkpoint that is being taken.
    pending: Option<Pending>,
    choices: Choices,
    /// Indexed by peer; made when a peer is first heard of.
    channels: Vec<Option<Box<Channel>>>,
    effects: VecDeque<Effect>,
}

/// A checkpoint that isn't durable yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The epoch that it begins.
    epoch: Epoch,
    /// How many choices it covers.
    choices: u64,
}

impl SenderBased {
    /// A rank that has done nothing yet.
    ///
    /// # Errors
    /// A rank that isn't of the job, or a policy that contradicts itself.
    pub fn new(config: Config) -> Result<SenderBased, ProtocolError> {
        let Config { rank, ranks, policy, .. } = config;
        policy.validate()?;
        if rank.0 >= ranks || rank > Rank::MAX {
            return Err(ProtocolError::UnknownRank { rank, ranks });
        }
        let mut fresh = SenderBased {
            config,
            epoch: Epoch::FIRST,
            durable: Epoch::FIRST,
            pending: None,
            choices: Choices::default(),
            channels: (0..ranks).map(|_| None).collect(),
            effects: VecDeque::new(),
        };
        fresh.channel(rank)?.meet_self(config.incarnation);
        Ok(fresh)
    }

    /// Which rank this is, of how many, in which incarnation.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The last number given to a message to `peer`.
    pub fn sent(&self, peer: Rank) -> Ssn {
        self.known(peer).map_or(Ssn::ZERO, Channel::sent)
    }

    /// All messages from `peer` up to here were received.
    pub fn received_upto(&self, peer: Rank) -> Ssn {
        self.known(peer).map_or(Ssn::ZERO, Channel::received_upto)
    }

    /// Whether this is a message that would be delivered now: for this rank, of the living incarnation of its sender, and not
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

    /// The newest incarnation of `peer` that has said Hello.
    pub fn incarnation_of(&self, peer: Rank) -> Incarnation {
        self.known(peer).map_or(Incarnation(0), Channel::incarnation)
    }

    /// How many non-deterministic calls were counted.
    pub fn choices(&self) -> u64 {
        self.choices.counted()
    }

    fn known(&self, peer: Rank) -> Option<&Channel> {
        self.channels.get(peer.index())?.as_deref()
    }

    /// The channel with a peer, made if it is new.
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

    /// Whether this execution may repeat what an earlier incarnation did.
    fn repeating(&self) -> bool {
        self.config.incarnation > Incarnation(0)
    }

    /// The rank at the other end, which must be another one.
    fn check_peer(&self, peer: Rank) -> Result<(), ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        if peer.0 >= ranks {
            return Err(ProtocolError::UnknownRank { rank: peer, ranks });
        }
        if peer == rank {
            return Err(ProtocolError::Misdirected { source_rank: rank, destination: rank, rank });
        }
        Ok(())
    }

    /// Takes an acknowledgement of `peer`'s living incarnation into account.
    fn take_ack(&mut self, peer: Rank, ack: Ack) -> Result<(), ProtocolError> {
        let repeating = self.repeating();
        if let Some(ack) = self.channel(peer)?.acknowledge(ack, repeating)? {
            self.effects.push_back(Effect::Acknowledged { peer, ack, phase: Phase(0), keep: true });
        }
        Ok(())
    }

    /// Sends the acknowledgements that can't wait for a message to `peer`.
    fn send_due_acks(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        let (rank, origin) = (self.config.rank, self.origin());
        if peer == rank {
            while let Some(ack) = self.channel(peer)?.take_ack() {
                self.take_ack(peer, ack)?;
            }
            return Ok(());
        }
        while let Some(ack) = self.channel(peer)?.poll_ack() {
            let header = WireHeader::ack_only(rank, peer, origin, ack);
            self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body: Vec::new() });
        }
        Ok(())
    }

    /// `peer`'s durable checkpoint covers what was sent to it up to `upto`.
    fn take_covered(&mut self, peer: Rank, epoch: Epoch, upto: Ssn) -> Result<(), ProtocolError> {
        let repeating = self.repeating();
        let channel = self.channel(peer)?;
        let sent = channel.sent();
        if upto > sent && !repeating {
            let how = Misbehaviour::ReceivedMoreThanSent { claimed: upto, sent };
            return Err(ProtocolError::PeerMisbehaved { peer, how });
        }
        channel.note_covered(epoch, upto);
        self.catch_up(peer)
    }

    /// Reports what a peer has acknowledged or covered ahead of this execution, as far as it has sent that again now. Called when
    /// the record that was numbered last has been committed, so that the log never hears of a record that it doesn't have.
    fn catch_up(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        let channel = self.channel(peer)?;
        let covered = channel.poll_covered();
        if let Some(ack) = channel.poll_ahead() {
            self.take_ack(peer, ack)?;
        }
        if let Some((epoch, upto)) = covered {
            self.effects.push_back(Effect::Covered { peer, epoch, upto });
        }
        Ok(())
    }

    /// Tells `peer`, which may be this rank itself, what the newest durable checkpoint covers.
    fn tell_covered(&mut self, peer: Rank, covered: Covered) -> Result<(), ProtocolError> {
        let rank = self.config.rank;
        if peer == rank {
            return self.take_covered(peer, covered.epoch, covered.upto);
        }
        let body = covered.encode().to_vec();
        let header = WireHeader::control(rank, peer, self.origin(), notice::COVERED, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body });
        Ok(())
    }
}

//! Coordinated checkpoints after Chandy and Lamport, as used by libELC (Zhao 2005): the frame shared by
//! [`event_logging`](crate::event_logging) and [`message_tagging`](crate::message_tagging) (section 5.7).
//!
//! Checkpoints with one number form a *line*. A rank taking one sends each other rank a request to take its own.
//! Messages in transit over the line are copied into the receiver's local log; a line is committed when all ranks have
//! their whole part on stable storage. A failure takes all ranks back to the committed line: copies are presented
//! again, and orphans discarded when they are sent again. The rule finds the messages crossing a line:
//! [`Identification`].

mod channel;
mod coordinator;
mod events;
mod identification;
mod line;
mod message;
mod tables;

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use crate::agreement::Member;
use crate::api::{Effect, EntryKey, EntryKind, MakeCoordinator, Party, Properties, ProtocolError, report_effect};
use crate::sender_based::choices::Choices;
use channel::Channel;
pub use coordinator::LineCoordinator;
pub use identification::{Identification, Key, Matched, Message};
use line::Line;
use message::{Finished, REQUEST, Request};

/// Bit in a collective's word: a checkpoint is due by this rank's clock.
///
/// The lower half is the interval number.
const DUE: u64 = 1 << 32;
/// Maximum number of lines after the committed one that a rank begins by itself.
const LINES_MAX: u32 = 8;

/// Rank identity.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// Job size in ranks.
    pub ranks: u32,
    /// Number of times that this rank was replaced.
    pub incarnation: Incarnation,
}

impl Config {
    /// Returns the configuration for `rank` in a job of `ranks`.
    pub fn new(rank: Rank, ranks: u32, incarnation: Incarnation) -> Config {
        Config { rank, ranks, incarnation }
    }
}

/// Makes the line coordinator.
pub(crate) const MAKE_COORDINATOR: Option<&MakeCoordinator> =
    Some(&|replaced, settings| Box::new(LineCoordinator::new(settings.ranks, replaced)));

/// State of one rank.
///
/// Memory: for each peer some hundred bytes and its [`Identification`].
#[derive(Debug)]
pub struct ChandyLamport<I: Identification> {
    config: Config,
    /// Present interval.
    epoch: Epoch,
    member: Member,
    /// Rollbacks in this process.
    rollbacks: u32,
    choices: Choices,
    /// By rank, and for this one unused.
    channels: Vec<Channel<I>>,
    /// By rank: newest incarnation with a received Hello.
    met: Vec<Incarnation>,
    /// Number of the next message copy, and the first after the restored line.
    copies: u64,
    copies_restored: u64,
    /// Lines after the committed one, ascending.
    lines: VecDeque<Line>,
    /// Highest requested line.
    requested: Epoch,
    /// The newest checkpoint was requested, and the program has offered none since.
    was_requested: bool,
    call: Option<Call>,
    /// A checkpoint is due by this rank's clock; the others learn this in the next collective.
    announces: bool,
    /// A collective was made since the newest checkpoint, or since the last one was due.
    has_called: bool,
    /// Lines up to this one may be bisected by a collective.
    bisected: Epoch,
    effects: VecDeque<Effect>,
}

/// Collective in progress, from the comparison of interval numbers on.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Interval of the call at all participants.
    interval: Epoch,
    /// The program can't be checkpointed here.
    is_refused: bool,
    /// A checkpoint is due by some rank's clock: all take one after the call.
    is_due: bool,
}

impl<I: Identification> ChandyLamport<I> {
    /// Rule properties.
    pub const PROPERTIES: Properties = Properties { knows_due_checkpoints: true, ..Properties::LINES_OF_ALL };

    /// Creates a rank in its initial state.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownRank`] for a rank outside the job.
    pub fn new(config: Config) -> Result<ChandyLamport<I>, ProtocolError> {
        let Config { rank, ranks, .. } = config;
        ProtocolError::check_rank(rank, ranks)?;
        Ok(ChandyLamport {
            config,
            epoch: Epoch::FIRST,
            member: Member::new(),
            rollbacks: 0,
            choices: Choices::default(),
            channels: (0..ranks).map(|_| Channel::new(Epoch::FIRST, Ssn::ZERO, Ssn::ZERO)).collect(),
            met: vec![Incarnation(0); ranks as usize],
            copies: 0,
            copies_restored: 0,
            lines: VecDeque::new(),
            requested: Epoch::FIRST,
            was_requested: false,
            call: None,
            announces: false,
            has_called: false,
            bisected: Epoch::FIRST,
            effects: VecDeque::new(),
        })
    }

    /// Returns the newest line known here to be committed.
    pub fn committed(&self) -> Epoch {
        self.member.committed
    }

    fn peers(&self) -> impl Iterator<Item = Rank> + use<I> {
        let own = self.config.rank;
        (0..self.config.ranks).map(Rank).filter(move |rank| *rank != own)
    }

    /// Returns the channels to and from another rank.
    fn channel(&mut self, peer: Rank) -> Result<&mut Channel<I>, ProtocolError> {
        self.check_peer(peer)?;
        Ok(&mut self.channels[peer.index()])
    }

    fn check_peer(&self, peer: Rank) -> Result<(), ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_peer(peer, rank, ranks)
    }

    fn number(&self) -> Incarnation {
        Incarnation(self.config.incarnation.0 << 16 | self.rollbacks)
    }

    /// Returns the origin of a frame.
    ///
    /// Its phase is the attempt, which identifies frames from an undone one.
    fn origin(&self) -> Origin {
        Origin { incarnation: self.number(), epoch: self.epoch, phase: Phase(self.member.attempt) }
    }

    /// Sends the status to the coordinator.
    fn report(&mut self) {
        let finished: Finished = self.lines.iter().filter(|line| line.is_finished).map(|line| line.epoch.0).collect();
        let status = self.member.status(self.epoch, finished);
        self.effects.push_back(report_effect(self.config.rank, self.origin(), status.encode()));
    }

    fn send_request(&mut self, to: Rank, line: Epoch, before: I::Request) {
        let body = message::encode(&Request::new(line, self.member.committed, before));
        let header = WireHeader::control(self.config.rank, to, self.origin(), REQUEST, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Rank(to), header, body });
    }

    /// Asks for a checkpoint if a line was requested without this rank having taken part; in a collective, only for one
    /// that must precede it.
    fn ask_checkpoint(&mut self) {
        let wanted = self.call.map_or(self.requested, |call| call.interval);
        if self.epoch < wanted {
            self.effects.push_back(Effect::TakeCheckpoint);
        }
    }

    /// Returns `true` while a collective waits for a checkpoint.
    fn call_waits(&self) -> bool {
        self.call.is_some_and(|call| self.epoch < call.interval && !call.is_refused)
    }

    fn keep_note(&mut self, line: Epoch, part: u64, bytes: Vec<u8>) {
        let entry = EntryKey { kind: EntryKind::Note, number: note(line) | part };
        self.effects.push_back(Effect::KeepEntry { entry, bytes });
    }

    fn discard(&mut self, kind: EntryKind, numbers: std::ops::Range<u64>) {
        if !numbers.is_empty() {
            self.effects.push_back(Effect::DiscardEntries { kind, first: numbers.start, last: numbers.end - 1 });
        }
    }
}

/// Returns the number of the first note about a line, its commit.
///
/// The next ones are, by rank, the messages crossing it.
fn note(line: Epoch) -> u64 {
    u64::from(line.0) << 32
}

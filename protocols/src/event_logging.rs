//! Event Logging, the rule of libELC (Zhao 2005).
//!
//! Every rank logs the *envelopes* of the messages that it sends and receives, and no contents. Checkpoints of one number form a *line*. A
//! rank that takes one sends each other rank a request with its send log; the receiver takes its own checkpoint of that number, and matches
//! the send log with its receive log. That identifies the messages *in transit* over the line (sent before it and received after: their
//! receiver copies them into its local log) and the *orphans* (received before it and sent after). A failure takes all ranks back to the last
//! line that all have finished: messages in transit are presented again, and orphans are discarded when they are sent again.
//!
//! | paper | here |
//! |---|---|
//! | 3.3.1, send and receive logs of an interval | `log::EventLog`, in `channel::Channel` |
//! | 3.3.2, 4.3.2, message identification in three steps | `matching::Crossing::match_interval` |
//! | 3.3.4, no limit on the intervals that a message takes | `matching::Crossing` keeps what has no counterpart; `channel::Channel` has a queue of intervals |
//! | 3.4.2, counted rows; matching in less than quadratic time | `log::EventLog`, `log::Counts` |
//! | 4.3.1, `ELC_DoCKPT`: checkpoint, request to all | `handle_checkpoint`, `message::Request` |
//! | 4.3.1, a request forces a checkpoint | `handle_control`, `ask_checkpoint` |
//! | 4.3.1, "mark the local checkpoint finished" | `finish_lines`, then `coordinator::LineCoordinator` (the paper has no agreement) |
//! | 4.3.3, logging of messages in transit, second form | `channel::Channel::receive`, `Incoming::Deliver { keep }` |
//! | 4.4.1, pending message queue | `channel::Channel::present`; then the driver's matching |
//! | 4.4.2, orphan message queue | `channel::Channel::receive` |
//! | 4.5.1, collectives | `handle_collective`, `handle_collective_words` |
//! | 4.5.2, non-blocking receives | messages are copied when they arrive, whatever receive is open |
//! | 4.5.3, `ANY_TAG` | messages of one source are presented in their order |
//! | 4.5.3, `ANY_SOURCE`, receive numbers | `next_choice`, `handle_choice` |
//! | 5.8, optimal interval | [`optimal_interval`] |
//!
//! `docs/event-logging.md` has the invariants, and why nothing is lost. Where the paper doesn't work as written: `docs/errata.md`.
//!
//! ```
//! use counterfoil_log_core::{Incarnation, Rank};
//! use counterfoil_protocols::api::Protocol;
//! use counterfoil_protocols::event_logging::{Config, EventLogging};
//!
//! let mut rank = EventLogging::new(Config::new(Rank(0), 2, Incarnation(0)))?;
//! assert!(!rank.is_running()); // before the coordinator's order
//! let first = rank.first_checkpoint().expect("every rank can go back to the start");
//! rank.restore(&first.tables, first.epoch)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod canary;
mod channel;
mod coordinator;
mod events;
mod interval;
mod line;
mod log;
mod matching;
mod message;
mod tables;

use std::collections::VecDeque;

use counterfoil_ack_piggyback::{Origin, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use crate::api::{Effect, EntryKey, EntryKind, Kept, Party, Properties, ProtocolError, Repetition};
use crate::sender_based::choices::Choices;
pub use canary::Canary;
use channel::Channel;
pub use coordinator::LineCoordinator;
pub use interval::optimal_interval;
use line::Line;
use log::EventLog;
use message::{REQUEST, Report, Request};

/// Lines after the committed one that a rank begins of its own accord.
const LINES_MAX: u32 = 8;

/// Identity of a rank, and a planted mistake.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// Number of ranks in the job.
    pub ranks: u32,
    /// Number of times that this rank was replaced.
    pub incarnation: Incarnation,
    /// Mistake planted by a test; `None` otherwise.
    pub canary: Option<Canary>,
}

impl Config {
    /// Returns the configuration of `rank` in a job of `ranks`, without a planted mistake.
    pub fn new(rank: Rank, ranks: u32, incarnation: Incarnation) -> Config {
        Config { rank, ranks, incarnation, canary: None }
    }
}

/// State of one rank under the rule.
///
/// Memory: for each peer some hundred bytes, a row for each run of equal envelopes since the last committed line, and 32 bytes for each
/// copied message.
#[derive(Debug)]
pub struct EventLogging {
    config: Config,
    /// Present interval.
    epoch: Epoch,
    /// Newest line known to be committed.
    committed: Epoch,
    /// Number of the attempt to run the job from a line; 0 before any.
    attempt: u32,
    running: bool,
    /// Nothing has happened since it was restored.
    is_fresh: bool,
    /// A rollback was requested.
    rolls_back: bool,
    /// Number of rollbacks of this process.
    rollbacks: u32,
    choices: Choices,
    /// By rank, and for this one unused.
    channels: Vec<Channel>,
    /// By rank: newest incarnation that has sent a Hello.
    met: Vec<Incarnation>,
    /// Number of the next copy of a message, and the first that is after the restored line.
    copies: u64,
    copies_restored: u64,
    /// Lines after the committed one, ascending.
    lines: VecDeque<Line>,
    /// Highest line that was requested.
    requested: Epoch,
    call: Option<Call>,
    /// Lines up to this one may be bisected by a collective.
    bisected: Epoch,
    effects: VecDeque<Effect>,
}

/// Collective in progress, from the comparison of the interval numbers on.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Interval in which all participants make the call.
    interval: Epoch,
    /// The program can't be checkpointed here.
    is_refused: bool,
}

impl EventLogging {
    /// Properties of the rule.
    pub const PROPERTIES: Properties = Properties {
        repeats: Repetition::Nothing,
        keeps: Kept::Nothing,
        rolls_back_survivors: true,
        has_coordinator: true,
    };

    /// Creates a rank that has done nothing yet.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownRank`] for a rank outside the job.
    pub fn new(config: Config) -> Result<EventLogging, ProtocolError> {
        let Config { rank, ranks, .. } = config;
        if rank.0 >= ranks || rank > Rank::MAX {
            return Err(ProtocolError::UnknownRank { rank, ranks });
        }
        Ok(EventLogging {
            config,
            epoch: Epoch::FIRST,
            committed: Epoch::FIRST,
            attempt: 0,
            running: false,
            is_fresh: true,
            rolls_back: false,
            rollbacks: 0,
            choices: Choices::default(),
            channels: (0..ranks).map(|_| Channel::new(Epoch::FIRST, Ssn::ZERO, Ssn::ZERO)).collect(),
            met: vec![Incarnation(0); ranks as usize],
            copies: 0,
            copies_restored: 0,
            lines: VecDeque::new(),
            requested: Epoch::FIRST,
            call: None,
            bisected: Epoch::FIRST,
            effects: VecDeque::new(),
        })
    }

    /// Returns the newest line that this rank knows to be committed.
    pub fn committed(&self) -> Epoch {
        self.committed
    }

    fn peers(&self) -> impl Iterator<Item = Rank> + use<> {
        let own = self.config.rank;
        (0..self.config.ranks).map(Rank).filter(move |rank| *rank != own)
    }

    /// Returns the channels with another rank of the job.
    fn channel(&mut self, peer: Rank) -> Result<&mut Channel, ProtocolError> {
        self.check_peer(peer)?;
        Ok(&mut self.channels[peer.index()])
    }

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

    fn number(&self) -> Incarnation {
        Incarnation(self.config.incarnation.0 << 16 | self.rollbacks)
    }

    /// Returns the origin of a frame. Its phase is the attempt, by which frames of an undone one are recognised.
    fn origin(&self) -> Origin {
        Origin { incarnation: self.number(), epoch: self.epoch, phase: Phase(self.attempt) }
    }

    fn report(&mut self, report: Report) {
        let (rank, body) = (self.config.rank, message::encode(&report));
        let header = WireHeader::control(rank, rank, self.origin(), 0, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Coordinator, header, body });
    }

    fn send_request(&mut self, to: Rank, line: Epoch, log: &EventLog) {
        let body = message::encode(&Request::new(line, self.committed, log));
        let header = WireHeader::control(self.config.rank, to, self.origin(), REQUEST, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Rank(to), header, body });
    }

    /// Asks for a checkpoint if a line was requested that this rank isn't part of; in a collective, only for one that has to precede it.
    fn ask_checkpoint(&mut self) {
        let wanted = self.call.map_or(self.requested, |call| self.interval_of(call));
        if self.epoch < wanted {
            self.effects.push_back(Effect::TakeCheckpoint);
        }
    }

    /// Returns `true` while a collective waits for a checkpoint.
    fn call_waits(&self) -> bool {
        self.call.is_some_and(|call| self.epoch < self.interval_of(call) && !call.is_refused)
    }

    /// Returns the interval in which this rank makes a collective.
    fn interval_of(&self, call: Call) -> Epoch {
        match self.config.canary {
            Some(Canary::CheckpointInCall) => call.interval.max(self.requested),
            _ => call.interval,
        }
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

/// Returns the number of the first note about a line: that it is committed. The next ones are, by rank, what crosses it.
fn note(line: Epoch) -> u64 {
    u64::from(line.0) << 32
}

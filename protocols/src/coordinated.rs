//! Coordinated, non-blocking checkpoints of the whole job, and collectives straddling them (Bronevetsky et al., *C3*).
//!
//! An initiator asks for a checkpoint. Each rank takes its own at its next opportunity, and goes on. Messages crossing
//! the *recovery line* between the checkpoints are logged by their receivers (*late* ones), or not sent again (*early*
//! ones); outcomes on which the line may depend are recorded until every rank is beyond it. When all logs are on stable
//! storage, the line is committed. When a process dies, the whole job goes back to the last committed line. Nothing
//! else is kept: no sender has a log.
//!
//! [`Coordinated`] is the state machine of a rank, [`Initiator`] that of the separate process. The paper doesn't work
//! as printed: `docs/lab/errata.md` says where, `docs/book/src/explanation/coordinated.md` why this does.
//!
//! - 3.1 phase 1: *pleaseCheckpoint*: `Initiator::open_next`, `handle_order`
//! - 3.1 phase 2, Fig. 3 `potentialCheckpoint`: [`Protocol::wants_checkpoint`](crate::api::Protocol::wants_checkpoint),
//!   `handle_checkpoint`
//! - 3.1 phase 3: *stopLogging*: `Initiator::advance`
//! - 3.1 phase 4, Fig. 3 `finalizeLog`: `finalize_log`, `handle_log_sealed`; the commit in `Initiator::advance`,
//!   `commit`
//! - 3.3, Fig. 3 message send: `handle_send`
//! - Definition 1, Fig. 3 message receive: `Class::of`, `receive`
//! - 3.4, Fig. 3 *mySendCount*, `receivedAll?`: `Channel::begin_epoch`, `announce`, `check_received_all`
//! - 2.3 recovery log, suppress log: `Incoming::Deliver { keep }`, `Log`; `Channel::is_early_at_peer`
//! - 4, 5 bits of a call: `Word`, `handle_collective`, [`Bits`]
//! - 5.1-5.3, Fig. 6-8 after the call: `Calls::judge`, `Calls::conclude`
//! - 5.1-5.3, Fig. 6-8 before the call: `handle_collective`, `Calls::logged`, `must_suppress`
//! - 5.3 re-exec log: `Calls::repeated`, [`Effect::RunCollective`]
//! - 4, barrier: as all to all: Claim 2 for a call without data
//! - nothing on the initiator's loss: `agreement::Agreement`

mod calls;
mod channel;
mod events;
mod initiator;
mod message;
mod tables;

use std::collections::{BTreeMap, VecDeque};

use counterfoil_ack_piggyback::{Flags, Origin, WireHeader};
use counterfoil_log_core::{Determinant, Epoch, Incarnation, Phase, Rank};

use crate::agreement::{Command, Duty, Member};
use crate::api::{
    Bits, DiscardReason, Effect, EntryKind, Incoming, Inspect, Misbehaviour, Moment, Party, Properties, ProtocolError,
    Rule, RuleOption, RuleOptions, report_effect,
};
use crate::sender_based::Choices;
use calls::Calls;
use channel::{Channel, Class};
pub use initiator::Initiator;
use message::{Counts, Progress};
use tables::{COMMITTED, Log, SEALED, entry};

/// Maximum number of rollbacks per process.
const ROLLBACKS_MAX: u32 = 1 << 16;

/// Row in [`RULES`](crate::RULES).
pub const RULE: Rule = Rule {
    name: "coordinated",
    paper: "Bronevetsky et al., C3",
    summary: "Keep no messages but those that cross a checkpoint of the whole job: all ranks go back to the last one. For jobs whose memory is scarce, whose failures are rare, and whose checkpoints are cheap",
    properties: Coordinated::PROPERTIES,
    takes: &[RuleOption::Bits, RuleOption::Moment],
    options: RuleOptions::DEFAULT,
    make_rank: &|rank, incarnation, settings| {
        let RuleOptions { bits, moment, .. } = settings.options;
        Ok(Box::new(Coordinated::new(Config { rank, ranks: settings.ranks, incarnation, moment, bits })?))
    },
    make_coordinator: Some(&|replaced, settings| Box::new(Initiator::new(settings.ranks, replaced))),
};

/// Rank identity, and options, which are the same for all ranks in a job.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// Job size in ranks.
    pub ranks: u32,
    /// Number of process replacements at this rank, at most 65,535.
    pub incarnation: Incarnation,
    /// Checkpoint timing.
    pub moment: Moment,
    /// Transport for the two bits of a collective call.
    pub bits: Bits,
}

/// State of one rank under the rule.
///
/// Memory: some 200 bytes for each peer; while it logs, 20 for each outcome and 16 for each call straddling the line.
#[derive(Debug)]
pub struct Coordinated {
    config: Config,
    incarnation: Incarnation,
    member: Member,
    epoch: Epoch,
    progress: Progress,
    /// *checkpointRequested*, and whether the driver was asked for it.
    requested: bool,
    asked: bool,
    /// The newest checkpoint is on stable storage.
    durable: bool,
    /// Log of the newest checkpoint; empty unless the rank is logging.
    log: Log,
    choices: Choices,
    /// Choices and calls counted by the newest checkpoint.
    choices_saved: u64,
    calls_saved: BTreeMap<u32, u64>,
    calls: Calls,
    /// By peer: calls made before its checkpoint.
    calls_of_peers: BTreeMap<Rank, BTreeMap<u32, u64>>,
    channels: BTreeMap<Rank, Channel>,
    effects: VecDeque<Effect>,
}

impl Coordinated {
    /// Rule properties.
    pub const PROPERTIES: Properties =
        Properties { collects: true, allows_overtaking: true, ..Properties::LINES_OF_ALL };

    /// Creates a rank in its initial state.
    ///
    /// # Errors
    /// Rank outside the job, or too many replacements ([`ProtocolError::EpochsExhausted`]).
    pub fn new(config: Config) -> Result<Coordinated, ProtocolError> {
        let Config { rank, ranks, incarnation, .. } = config;
        ProtocolError::check_rank(rank, ranks)?;
        let incarnation = incarnation.0.checked_mul(ROLLBACKS_MAX).map(Incarnation);
        let peers = (0..ranks).map(Rank).filter(|&peer| peer != rank);
        Ok(Coordinated {
            config,
            incarnation: incarnation.ok_or(ProtocolError::EpochsExhausted)?,
            member: Member::new(),
            epoch: Epoch::FIRST,
            progress: Progress::Behind,
            requested: false,
            asked: false,
            durable: true,
            log: Log::default(),
            choices: Choices::default(),
            choices_saved: 0,
            calls_saved: BTreeMap::new(),
            calls: Calls::default(),
            calls_of_peers: BTreeMap::new(),
            channels: peers.map(|peer| (peer, Channel::default())).collect(),
            effects: VecDeque::new(),
        })
    }

    /// Returns the newest line known here to be committed: the job goes back to it, or to a newer one.
    pub fn committed(&self) -> Epoch {
        self.member.committed
    }

    /// *amLogging*.
    fn am_logging(&self) -> bool {
        matches!(self.progress, Progress::Logging | Progress::Ready)
    }

    fn origin(&self) -> Origin {
        Origin { incarnation: self.incarnation, epoch: self.epoch, phase: Phase(self.member.attempt) }
    }

    fn channel(&mut self, peer: Rank) -> Result<&mut Channel, ProtocolError> {
        let Config { rank, ranks, .. } = self.config;
        ProtocolError::check_peer(peer, rank, ranks)?;
        self.channels.get_mut(&peer).ok_or(ProtocolError::UnknownRank { rank: peer, ranks })
    }

    /// Sends the status to the initiator.
    fn report(&mut self) {
        let status = self.member.status(self.epoch, self.progress);
        self.effects.push_back(report_effect(self.config.rank, self.origin(), status.encode()));
    }

    fn handle_order(&mut self, command: Command) {
        match self.member.obey(command) {
            Duty::Nothing => {}
            Duty::Report => self.report(),
            Duty::Stop => {
                // Counts from the previous attempt: this rank may not have run in it, and stays where it is.
                self.calls_of_peers.clear();
                self.channels.values_mut().for_each(|channel| channel.total_sent = None);
                self.report();
            }
            Duty::GoBack(line) => self.go_back(line),
            Duty::Run => self.effects.push_back(Effect::Resume),
            Duty::Commit(line) => self.commit(line),
            Duty::TakeCheckpoint(epoch) => {
                if epoch > self.epoch {
                    self.requested = true;
                    self.ask_for_checkpoint();
                }
            }
            Duty::StopLogging(epoch) => {
                if epoch == self.epoch {
                    self.finalize_log();
                }
            }
        }
    }

    /// Goes back to a line.
    ///
    /// What is undone is dropped first: a process dying after the rollback must not find it.
    fn go_back(&mut self, line: Epoch) {
        let is_there = self.member.is_fresh && line == self.epoch;
        self.note_committed(line, line);
        for kind in [EntryKind::Message, EntryKind::Collective, EntryKind::Note] {
            let first = entry(kind, Epoch(line.0 + 1), 0).number;
            self.effects.push_back(Effect::DiscardEntries { kind, first, last: u64::MAX });
        }
        self.member.go_to(is_there);
        if is_there {
            self.check_prepared();
        } else {
            self.effects.push_back(Effect::RollBack { epoch: line });
        }
    }

    /// Reports the rank as being at the line and knowing its peers' counts there.
    fn check_prepared(&mut self) {
        let epoch = self.epoch;
        let is_known = |channel: &Channel| channel.restored.as_ref().is_some_and(|peer| peer.epoch == epoch);
        if self.channels.values().all(is_known) && self.member.prepare() {
            self.report();
        }
    }

    /// Notes durably the commit of `epoch`'s line, and keeps the checkpoints from there to `last`.
    fn note_committed(&mut self, epoch: Epoch, last: Epoch) {
        self.member.committed = epoch;
        self.effects
            .push_back(Effect::KeepEntry { entry: entry(EntryKind::Note, epoch, COMMITTED), bytes: Vec::new() });
        self.effects.push_back(Effect::KeepCheckpoints { first: epoch, last });
    }

    /// Commits a line: the previous one's log is obsolete.
    fn commit(&mut self, epoch: Epoch) {
        self.note_committed(epoch, self.epoch);
        for kind in [EntryKind::Message, EntryKind::Collective, EntryKind::Note] {
            let last = entry(kind, epoch, 0).number - 1;
            self.effects.push_back(Effect::DiscardEntries { kind, first: 0, last });
        }
        self.effects.push_back(Effect::DiscardChoices { before: self.choices_saved, epoch: self.epoch });
    }

    /// Returns `true` if nothing is left of this execution's initial log: outcomes, results, calls and messages to
    /// suppress.
    ///
    /// Until then no checkpoint is taken, or the next line would need the rest of the log.
    fn has_repeated_log(&self) -> bool {
        let is_repeated = |channel: &Channel| {
            let calls = channel.restored.iter().flat_map(|peer| &peer.suppressed);
            channel.is_suppressed() && calls.into_iter().all(|call| self.calls.is_made(*call))
        };
        self.choices.are_repeated() && self.calls.are_repeated() && self.channels.values().all(is_repeated)
    }

    /// Asks the driver for the requested checkpoint, if it may be taken at any time.
    fn ask_for_checkpoint(&mut self) {
        let may = self.config.moment == Moment::AnyTime && self.requested && !self.asked;
        if may && self.has_repeated_log() {
            self.asked = true;
            self.effects.push_back(Effect::TakeCheckpoint);
        }
    }

    /// Sends *mySendCount* to a peer.
    fn announce(&mut self, peer: Rank) {
        let messages = self.channels.get(&peer).map_or(0, |channel| channel.announced);
        let (attempt, epoch, calls) = (self.member.attempt, self.epoch.0, self.calls_saved.clone());
        let body = message::encode(&Counts { attempt, epoch, messages, calls });
        let header =
            WireHeader::control(self.config.rank, peer, self.origin(), message::COUNTS, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body });
    }

    /// *receivedAll?*, for messages and calls.
    fn check_received_all(&mut self) {
        if self.progress == Progress::Logging
            && self.durable
            && self.channels.values().all(|channel| channel.has_all_late(self.epoch))
            && self.calls_of_peers.values().all(|made| self.calls.has_made(made))
        {
            self.progress = Progress::Ready;
            self.report();
        }
    }

    /// *finalizeLog*.
    ///
    /// Two ways lead here, the order and a stopped peer; the second to come changes nothing.
    fn finalize_log(&mut self) {
        if self.am_logging() {
            self.progress = Progress::Stopping;
            let (epoch, log) = (self.epoch, std::mem::take(&mut self.log));
            let entry = entry(EntryKind::Note, epoch, SEALED);
            self.effects.push_back(Effect::KeepEntry { entry, bytes: message::encode(&log) });
            self.effects.push_back(Effect::SealLog { epoch });
        }
    }

    /// Counts a message (Figure 3, message receive), and finds out whether to log it.
    fn receive(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        let (peer, ssn, epoch) = (header.source(), header.ssn(), self.epoch);
        let misbehaved = |how| ProtocolError::PeerMisbehaved { peer, how };
        let out_of_line = misbehaved(Misbehaviour::OutOfLine { sent_in: header.epoch(), received_in: epoch });
        let class = Class::of(header.epoch(), epoch).ok_or(out_of_line.clone())?;
        let is_possible = match class {
            Class::Late => self.am_logging(),
            Class::IntraEpoch => true,
            Class::Early => !self.am_logging(),
        };
        if !is_possible {
            return Err(out_of_line);
        }
        if !self.channel(peer)?.receive(peer, ssn, class)? {
            return Ok(Incoming::Discard(DiscardReason::Duplicate { receive_epoch: epoch }));
        }
        match class {
            Class::IntraEpoch if !header.flags().contains(Flags::AM_LOGGING) => self.finalize_log(),
            Class::Late => {
                let entry = entry(EntryKind::Message, epoch, self.log.messages);
                self.log.messages += 1;
                self.check_received_all();
                return Ok(Incoming::Deliver { keep: Some(entry) });
            }
            Class::IntraEpoch | Class::Early => {}
        }
        Ok(Incoming::Deliver { keep: None })
    }

    /// Takes up the sealed log of the restored line.
    fn recover_log(&mut self, log: &Log) {
        self.calls.recover(log, self.epoch);
        for &(sequence, source, ssn) in &log.outcomes {
            let outcome = Determinant { sequence, source: Rank(source), ssn: counterfoil_log_core::Ssn(ssn) };
            // The note is this rank's own, and has each call once; if it is read twice, nothing changes.
            let _ = self.choices.recover(outcome);
        }
    }
}

impl Inspect for Coordinated {
    /// Phases from section 3.1: 0 when no line is asked for, 1 when the rank has yet to take its checkpoint, 2 while it
    /// waits for late messages, 3 when it is ready to stop logging, 4 until the line is committed.
    fn phase_of_line(&self) -> u32 {
        match self.progress {
            Progress::Logging => 2,
            Progress::Ready => 3,
            Progress::Stopping | Progress::Stopped if self.member.committed < self.epoch => 4,
            _ => u32::from(self.requested),
        }
    }
}

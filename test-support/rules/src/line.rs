//! Coordinated checkpoints of the whole job, and collectives that straddle them (after C3, sections 3 and 5). When any process dies, all
//! ranks roll back to the last committed line, which may be older than their newest checkpoints.
//!
//! The coordinator asks for a checkpoint, which each rank takes at once, even while the program waits. A line is committed when all ranks
//! have made their checkpoints durable, and have passed every call that some rank had completed before its own. Messages need nothing but
//! the plain rule: a late one is in its sender's checkpoint, an early one is suppressed when it is sent again. Calls exchange epochs:
//!
//! | straddles | a rank beyond the line | a rank behind it |
//! |---|---|---|
//! | all to all, barrier | keeps the result, and has it from there after a restart | - |
//! | from a root that is behind | the same | - |
//! | from a root that is beyond | repeats it | takes part again at a restart, with dummy arguments |
//!
//! For programs whose sends don't depend on the order of their receives, and without calls to a root.

mod initiator;
mod message;

use std::collections::{BTreeMap, VecDeque};

use counterfoil_ack_piggyback::{Origin, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Epoch, Incarnation, Phase, Rank, Ssn};
use counterfoil_protocols::api::{
    ChoiceError, ChoiceRecord, CollectiveCall, CollectiveClass, CollectivePlan, Effect, EntryKey, EntryKind, Hello,
    Incoming, Kept, NextChoice, Outgoing, Party, Properties, Protocol, ProtocolError, Repetition, RestoreError, Scope,
    Snapshot, Transmission,
};
use counterfoil_protocols::forward_protocol;
use counterfoil_protocols::sender_based::{Config, SenderBased};
use counterfoil_simulator::{ProcessSettings, Refusal, SimRule};

use crate::config;
use message::What;

pub use initiator::Initiator;

/// Planted mistakes.
#[derive(Debug)]
pub struct Mistake;

impl Mistake {
    /// None.
    pub const NONE: u8 = 0;
    /// Results of calls that straddle the line aren't kept.
    pub const NOT_KEPT: u8 = 1;
    /// Ranks behind the line don't take part again.
    pub const NO_DUMMIES: u8 = 2;
    /// A line is committed before every rank has passed the calls that straddle it.
    pub const COMMITTED_EARLY: u8 = 3;
    /// A checkpoint covers messages before its line is committed.
    pub const COVERED_EARLY: u8 = 4;
    /// Results that were kept in an undone timeline stay.
    pub const STALE: u8 = 5;
    /// All roll back to their newest checkpoints.
    pub const NEWEST: u8 = 6;
    /// A call that may yet fail counts as complete.
    pub const LEARNT_EARLY: u8 = 7;
    /// Sends are suppressed by what a peer says at any time, not when it was restored.
    pub const SUPPRESSED_LATE: u8 = 8;
}

/// Consequences of a call's words.
#[derive(Clone, Copy, Debug, Default)]
struct Learnt {
    keep: Option<EntryKey>,
    is_early: bool,
}

/// State machine of a rank.
#[derive(Debug)]
pub struct Line<const MISTAKE: u8> {
    core: SenderBased,
    /// Number of the attempt to run the job from a line; 0 before any.
    attempt: u32,
    running: bool,
    /// It has done nothing since it was restored.
    restored: bool,
    rolls_back: bool,
    /// Epoch of the line that all ranks began with in this attempt.
    line: Epoch,
    /// Epoch of the newest line that it knows to be committed.
    committed: Epoch,
    /// Rank 0 asks for a checkpoint of the job after each this many calls; nobody does if 0.
    every: u64,
    /// Number of calls completed.
    calls: u64,
    /// Entries of the results that were kept, by the number of the call.
    kept: BTreeMap<u64, EntryKey>,
    /// What follows from the words of the present call, once it is complete.
    learnt: Learnt,
    /// Last message that each peer had when it was restored, and from which epoch.
    received: BTreeMap<Rank, (Epoch, Ssn)>,
    /// Calls whose root was beyond the next line.
    early: Vec<CollectiveCall>,
    /// Checkpoint in progress, and the number of calls before it.
    pending: Option<(Epoch, u64)>,
    /// Number of calls before the newest checkpoint.
    calls_saved: u64,
    /// Number of calls to pass before a line can be committed.
    to_pass: Option<u64>,
    effects: VecDeque<Effect>,
}

/// Returns the key of the note that a line is committed.
fn note(epoch: Epoch) -> EntryKey {
    EntryKey { kind: EntryKind::Note, number: epoch.0.into() }
}

/// Bits of a call's number in the key of an entry; the epoch is above.
const CALL_BITS: u32 = 32;

fn key(epoch: Epoch, number: u64) -> EntryKey {
    EntryKey { kind: EntryKind::Collective, number: u64::from(epoch.0) << CALL_BITS | number }
}

impl<const MISTAKE: u8> Line<MISTAKE> {
    /// Properties of the rule.
    pub const PROPERTIES: Properties = Properties {
        repeats: Repetition::Nothing,
        keeps: Kept::UntilCovered,
        rolls_back_survivors: true,
        has_coordinator: true,
    };

    /// Creates a rank that has done nothing. `every`: rank 0 asks for a checkpoint of the job after each this many calls; nobody does if 0.
    ///
    /// # Errors
    /// Those of the plain rule.
    pub fn new(config: Config, every: u64) -> Result<Self, ProtocolError> {
        let incarnation = Incarnation(config.incarnation.0 << 16);
        Ok(Line {
            core: SenderBased::new(Config { incarnation, ..config })?,
            attempt: 0,
            running: false,
            restored: true,
            rolls_back: false,
            line: Epoch::FIRST,
            committed: Epoch::FIRST,
            every,
            calls: 0,
            kept: BTreeMap::new(),
            learnt: Learnt::default(),
            received: BTreeMap::new(),
            early: Vec::new(),
            pending: None,
            calls_saved: 0,
            to_pass: None,
            effects: VecDeque::new(),
        })
    }

    fn say(&mut self, what: What, epoch: Epoch, calls: u64) {
        let (rank, body) = (self.core.config().rank, what.encode(self.attempt, epoch, calls));
        let origin = Origin { incarnation: self.incarnation(), epoch: self.epoch(), phase: Phase(0) };
        let header = WireHeader::control(rank, rank, origin, 0, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Coordinator, header, body });
    }

    fn pass(&mut self, number: u64) {
        self.calls = self.calls.max(number + 1);
        self.check_passed();
    }

    fn learn(&mut self, call: &CollectiveCall) {
        let Learnt { keep, is_early } = std::mem::take(&mut self.learnt);
        if let Some(entry) = keep {
            self.kept.insert(call.number, entry);
        }
        if is_early {
            self.early.push(*call);
        }
    }

    fn check_passed(&mut self) {
        if self.to_pass.take_if(|calls| *calls <= self.calls).is_some() {
            self.effects.push_back(Effect::SealLog { epoch: self.epoch() });
        }
    }

    /// Notes that the line of `epoch` is committed, and keeps the checkpoints from there to `last`. The oldest that is left would not say it in
    /// a job that still has its start, which is no checkpoint.
    fn note_committed(&mut self, epoch: Epoch, last: Epoch) {
        self.committed = epoch;
        self.effects.push_back(Effect::KeepEntry { entry: note(epoch), bytes: Vec::new() });
        let before = u64::from(epoch.0) - 1;
        self.effects.push_back(Effect::DiscardEntries { kind: EntryKind::Note, first: 0, last: before });
        self.effects.push_back(Effect::KeepCheckpoints { first: epoch, last });
    }

    fn commit(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        self.note_committed(epoch, self.epoch());
        // A restart from here is beyond these calls.
        let later = self.kept.split_off(&self.calls_saved);
        for entry in std::mem::replace(&mut self.kept, later).into_values() {
            self.discard(entry.number, entry.number);
        }
        if MISTAKE == Mistake::COVERED_EARLY { Ok(()) } else { self.core.handle_checkpoint_durable(epoch) }
    }

    fn discard(&mut self, first: u64, last: u64) {
        self.effects.push_back(Effect::DiscardEntries { kind: EntryKind::Collective, first, last });
    }

    fn handle_order(&mut self, what: What, attempt: u32, epoch: Epoch, calls: u64) -> Result<(), ProtocolError> {
        match what {
            What::Collect if attempt > self.attempt => {
                (self.attempt, self.running) = (attempt, false);
                let newest = if MISTAKE == Mistake::NEWEST { self.epoch() } else { self.committed };
                self.say(What::Committed, newest, 0);
            }
            What::Line if attempt == self.attempt => {
                self.line = epoch;
                // In its Hellos, a rank that knew less has covered nothing yet.
                let stays = self.restored && epoch == self.epoch() && epoch == self.committed;
                // A process that dies after the rollback must not find what is undone.
                self.note_committed(epoch, epoch);
                if MISTAKE != Mistake::STALE {
                    let first = key(Epoch(epoch.0 + 1), 0).number;
                    self.kept.retain(|_, entry| entry.number < first);
                    self.discard(first, u64::MAX);
                }
                if stays {
                    self.say(What::Ready, epoch, 0);
                } else {
                    self.rolls_back = true;
                    self.effects.push_back(Effect::RollBack { epoch });
                }
            }
            What::Go if attempt == self.attempt && !self.running => {
                (self.running, self.restored) = (true, false);
                self.effects.push_back(Effect::Resume);
            }
            What::Please if attempt == self.attempt && self.running => self.effects.push_back(Effect::TakeCheckpoint),
            What::Pass if attempt == self.attempt && self.running => {
                self.to_pass = Some(calls);
                self.check_passed();
            }
            What::Commit if attempt == self.attempt && self.running => self.commit(epoch)?,
            _ => {}
        }
        Ok(())
    }
}

impl<const MISTAKE: u8> Protocol for Line<MISTAKE> {
    forward_protocol!(core: epoch, incarnation, handle_transmit, handle_peer_lost);

    fn properties(&self) -> Properties {
        Self::PROPERTIES
    }

    /// Suppresses an early message, which the receiver's part of the line has (C3, section 2.3).
    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        let outgoing = self.core.handle_send(envelope)?;
        let has = self.received.get(&envelope.destination);
        let early = has.is_some_and(|(line, upto)| {
            (*line == self.line || MISTAKE == Mistake::SUPPRESSED_LATE) && outgoing.header.ssn() <= *upto
        });
        let transmission = if early { Transmission::Suppress } else { outgoing.transmission };
        Ok(Outgoing { transmission, ..outgoing })
    }

    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        if self.running { self.core.handle_message(header) } else { Ok(Incoming::Hold) }
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        match (from, What::decode(body)) {
            (Party::Coordinator, Some((what, attempt, epoch, calls))) => self.handle_order(what, attempt, epoch, calls),
            (Party::Coordinator, None) => Err(ProtocolError::NoCoordinator),
            (Party::Rank(_), _) => self.core.handle_control(from, header, body),
        }
    }

    fn next_choice(&mut self) -> NextChoice {
        NextChoice { sequence: 0, forced: None }
    }

    fn handle_choice(&mut self, _: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        Ok(None)
    }

    fn handle_recovered_choice(&mut self, _: &[u8]) -> Result<(), ChoiceError> {
        Ok(())
    }

    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        if let Some(&entry) = self.kept.get(&call.number) {
            return Ok(CollectivePlan::Recorded(entry));
        }
        Ok(CollectivePlan::Exchange { word: self.epoch().0.into(), scope: Scope::AlongData })
    }

    fn handle_collective_words(
        &mut self,
        call: &CollectiveCall,
        words: &[(Rank, u64)],
    ) -> Result<Option<EntryKey>, ProtocolError> {
        let own = u64::from(self.epoch().0);
        let of_root = |root| words.iter().filter(move |(rank, _)| *rank == root);
        let (lowest, highest) = match call.class {
            CollectiveClass::FromRoot(root) => {
                let word = of_root(root).map(|(_, word)| *word).next().unwrap_or(own);
                (word, word)
            }
            _ => (words.iter().map(|(_, word)| *word).min().unwrap_or(own), own),
        };
        let straddles = lowest < own && MISTAKE != Mistake::NOT_KEPT;
        let keep = straddles.then(|| key(self.epoch(), call.number));
        self.learnt = Learnt { keep, is_early: highest > own };
        if MISTAKE == Mistake::LEARNT_EARLY {
            self.learn(call);
        }
        Ok(keep)
    }

    fn handle_collective_completed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        self.learn(call);
        self.pass(call.number);
        if self.core.config().rank == Rank(0) && self.every > 0 && self.calls.is_multiple_of(self.every) {
            self.say(What::Ask, self.epoch(), self.calls);
        }
        Ok(())
    }

    fn handle_recovered_entry(&mut self, entry: EntryKey, _: &[u8]) -> Result<bool, ProtocolError> {
        if entry.kind == EntryKind::Note {
            // The process may have died before it dropped older checkpoints.
            let (first, last) = (Epoch(entry.number as u32), self.epoch());
            self.committed = self.committed.max(first);
            self.effects.push_back(Effect::KeepCheckpoints { first, last });
        } else {
            // Of several epochs, the first.
            self.kept.entry(entry.number & ((1 << CALL_BITS) - 1)).or_insert(entry);
        }
        Ok(false)
    }

    fn is_running(&self) -> bool {
        self.running
    }

    fn first_checkpoint(&self) -> Option<Snapshot> {
        Some(Snapshot { epoch: Epoch::FIRST, tables: Vec::new() })
    }

    fn wants_checkpoint(&self) -> bool {
        false
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        let Snapshot { epoch, tables: core } = self.core.handle_checkpoint()?;
        self.pending = Some((epoch, self.calls));
        self.calls_saved = self.calls;
        let mut tables = self.calls.to_le_bytes().to_vec();
        tables.extend((self.early.len() as u32).to_le_bytes());
        for CollectiveCall { class, comm, number, .. } in self.early.drain(..) {
            let CollectiveClass::FromRoot(root) = class else { continue };
            tables.extend([root.0.to_le_bytes(), comm.to_le_bytes()].concat());
            tables.extend(number.to_le_bytes());
        }
        tables.extend(core);
        Ok(Snapshot { epoch, tables })
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        if MISTAKE == Mistake::COVERED_EARLY {
            self.core.handle_checkpoint_durable(epoch)?;
        }
        if let Some((_, calls)) = self.pending.take_if(|(pending, _)| *pending == epoch) {
            self.say(What::Durable, epoch, calls);
        }
        Ok(())
    }

    fn handle_log_sealed(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        self.say(What::Passed, epoch, 0);
        Ok(())
    }

    /// Restores the newest checkpoint, after a rollback that of the line. Either way the rank joins, and waits for the line.
    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        let mut config = *self.core.config();
        config.incarnation.0 += u32::from(std::mem::replace(&mut self.rolls_back, false));
        let fresh = |_| RestoreError::NotFresh;
        self.core = SenderBased::new(config).map_err(fresh)?;
        (self.calls, self.calls_saved, self.pending, self.to_pass) = (0, 0, None, None);
        self.kept.clear();
        self.early.clear();
        self.learnt = Learnt::default();
        self.received.clear();
        if !tables.is_empty() {
            let malformed = || RestoreError::Malformed { len: tables.len() };
            let (calls, rest) = tables.split_first_chunk().ok_or_else(malformed)?;
            let (count, mut rest) = rest.split_first_chunk().ok_or_else(malformed)?;
            self.calls = u64::from_le_bytes(*calls);
            self.calls_saved = self.calls;
            for _ in 0..u32::from_le_bytes(*count) {
                let (root, after) = rest.split_first_chunk().ok_or_else(malformed)?;
                let (comm, after) = after.split_first_chunk().ok_or_else(malformed)?;
                let (number, after) = after.split_first_chunk().ok_or_else(malformed)?;
                let class = CollectiveClass::FromRoot(Rank(u32::from_le_bytes(*root)));
                let call = CollectiveCall {
                    class,
                    comm: u32::from_le_bytes(*comm),
                    number: u64::from_le_bytes(*number),
                    uniform: true,
                };
                rest = after;
                if MISTAKE != Mistake::NO_DUMMIES {
                    self.effects.push_back(Effect::RunCollective { call });
                }
            }
            self.core.restore(rest, oldest)?;
        }
        (self.running, self.restored) = (false, true);
        self.committed = oldest.max(self.committed);
        self.say(What::Join, oldest, 0);
        Ok(())
    }

    /// A rank that waits for the line covers nothing: it may have to go back further.
    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        let hello = self.core.hello(peer)?;
        let covered = if hello.epoch == self.committed { hello.covered } else { (Epoch::FIRST, Ssn::ZERO) };
        Ok(Hello { covered, opaque: vec![u8::from(self.restored)], ..hello })
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        self.core.handle_hello(peer, hello)?;
        self.received.remove(&peer);
        if hello.opaque == [1] || MISTAKE == Mistake::SUPPRESSED_LATE {
            self.received.insert(peer, (hello.epoch, hello.received.upto()));
        }
        Ok(())
    }

    /// Returns its own effects first: older checkpoints are dropped before peers hear what a checkpoint covers.
    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front().or_else(|| self.core.poll_effect())
    }
}

/// The rule under the simulator.
#[derive(Debug)]
pub struct SimLine<const MISTAKE: u8>;

impl<const MISTAKE: u8> SimRule for SimLine<MISTAKE> {
    type Rank = Line<MISTAKE>;
    type Coordinator = Initiator<MISTAKE>;

    const PROPERTIES: Properties = Line::<MISTAKE>::PROPERTIES;

    fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal> {
        Ok(Line::new(config(rank, settings.ranks, settings.incarnation), 0)?)
    }

    fn coordinator(settings: &ProcessSettings) -> Result<Self::Coordinator, Refusal> {
        Ok(Initiator::new(settings.ranks, settings.incarnation.0))
    }
}

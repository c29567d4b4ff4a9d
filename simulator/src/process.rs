//! One process: state lost at its death, and surviving storage.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_log_core::{Epoch, Incarnation, Ssn};
use counterfoil_protocols::api::{
    ChoiceRecord, CollectiveCall, CollectiveClass, Coordinator, Effect, EntryKey, NextChoice, Protocol,
};

use super::application::{Application, NextOp, Payload};
use super::call::Calls;
use super::network::Record;
use super::program::Program;
use super::rule::Refusal;

/// Record in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    Kept(Record),
    /// Freed once it is transmitted.
    Passing(Record),
    Freed,
    /// Lost by a canary.
    Lost,
}

/// One destination's part of the log: records in SSN order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    /// Last freed record.
    freed: u64,
    slots: VecDeque<Slot>,
}

impl Lane {
    pub(crate) fn last(&self) -> Ssn {
        Ssn(self.freed + self.slots.len() as u64)
    }

    /// Returns the last freed record.
    pub(crate) fn freed(&self) -> Ssn {
        Ssn(self.freed)
    }

    pub(crate) fn append(&mut self, slot: Slot) {
        self.slots.push_back(slot);
    }

    pub(crate) fn get(&self, ssn: Ssn) -> Option<&Slot> {
        let place = ssn.0.checked_sub(self.freed + 1)?;
        self.slots.get(usize::try_from(place).ok()?)
    }

    pub(crate) fn free(&mut self, first: Ssn, last: Ssn) {
        for (ssn, slot) in (self.freed + 1..).zip(&mut self.slots) {
            if (first.0..=last.0).contains(&ssn) {
                *slot = Slot::Freed;
            }
        }
        while matches!(self.slots.front(), Some(Slot::Freed)) {
            self.slots.pop_front();
            self.freed += 1;
        }
    }

    /// Removes the records after `last` as never sent.
    pub(crate) fn truncate(&mut self, last: Ssn) {
        self.freed = self.freed.min(last.0);
        let kept = last.0 - self.freed;
        self.slots.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    /// Loses a record but keeps its number.
    pub(crate) fn lose(&mut self, ssn: Ssn) {
        let place = ssn.0.checked_sub(self.freed + 1).and_then(|place| usize::try_from(place).ok());
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place)) {
            *slot = Slot::Lost;
        }
    }

    /// Loses all records.
    pub(crate) fn lose_all(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = Slot::Lost);
    }

    pub(crate) fn retained(&self) -> u64 {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Kept(_) | Slot::Passing(_))).count() as u64
    }
}

/// Checkpoint contents, apart from the protocol's tables.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) application: Application,
    /// Received, untaken messages.
    pub(crate) pending: Vec<Record>,
    pub(crate) lanes: Vec<Lane>,
}

impl Image {
    pub(crate) fn new(program: &Program, rank: u32) -> Image {
        Image {
            application: Application::new(program, rank),
            pending: Vec::new(),
            lanes: vec![Lane::default(); program.ranks() as usize],
        }
    }
}

/// A rank's checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) epoch: Epoch,
    pub(crate) tables: Vec<u8>,
    pub(crate) image: Image,
}

/// A rank's state surviving its process.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Durable checkpoints, ascending by epoch.
    pub(crate) checkpoints: Vec<Checkpoint>,
    pub(crate) choices: BTreeMap<u64, ChoiceRecord>,
    pub(crate) deliveries: BTreeMap<u64, ChoiceRecord>,
    /// Other local log entries.
    pub(crate) entries: BTreeMap<EntryKey, Entry>,
    /// Lanes of the dead process, where the tier keeps them.
    pub(crate) lanes: Option<Vec<Lane>>,
}

/// Content of a local log entry.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Bytes(Vec<u8>),
    Message(Record),
}

impl Payload {
    /// Encodes a collective call's result for the local log.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.content, self.history].map(u64::to_le_bytes).concat()
    }

    /// Decodes a result; `None` for invalid bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Payload> {
        let (content, history) = bytes.split_first_chunk::<8>()?;
        let history = u64::from_le_bytes(history.try_into().ok()?);
        Some(Payload { content: u64::from_le_bytes(*content), history })
    }
}

/// State of a process in a collective call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InCall {
    /// In none, or awaiting a plan request to the rule.
    #[default]
    Not,
    /// Held by the rule.
    Held,
    /// Runs natively.
    ///
    /// `keep`: entry for the result. `exchanges`: words are yet to be reported, and name the entry; first, or with the
    /// data.
    Native { keep: Option<EntryKey>, exchanges: bool, piggybacks: bool },
    /// Answered without running: its result is this entry, or it has none.
    Answered(Option<EntryKey>),
}

/// Transmit position of a lane, its receiver's incarnation, and its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransmitCursor {
    pub(crate) incarnation: Incarnation,
    pub(crate) next: Ssn,
    pub(crate) upto: Ssn,
}

/// A process's state machine.
#[derive(Debug)]
pub(crate) enum Machine {
    Rank(Box<dyn Protocol>),
    Coordinator(Box<dyn Coordinator>),
}

/// A node's process.
///
/// The coordinator's has an image without lanes, and never uses it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) machine: Machine,
    pub(crate) image: Image,
    /// Pending effects.
    pub(crate) effects: VecDeque<Effect>,
    /// By peer: last message acknowledged by it since its Hello.
    pub(crate) acked: Vec<Ssn>,
    /// Between a rank and the coordinator, by node: messages queued until it is connected; `None` once it is.
    pub(crate) waiting: Vec<Option<Vec<Vec<u8>>>>,
    /// Likewise by node: newest incarnation with a received Hello.
    pub(crate) met: Vec<u32>,
    /// Last recovery line with a table sent by the rank, or computed by the coordinator.
    pub(crate) round: Option<u64>,
    /// By peer; `None` until a replay sets the position.
    pub(crate) cursors: Vec<Option<TransmitCursor>>,
    /// Messages held by the protocol, by sender.
    pub(crate) held: Vec<VecDeque<Record>>,
    /// By peer: records from here on wait for `Effect::Resume`.
    pub(crate) held_from: Vec<Option<Ssn>>,
    /// Checkpoint not yet durable.
    pub(crate) writing: Option<Checkpoint>,
    /// `true` if the rule has requested a checkpoint.
    pub(crate) checkpoint_asked: bool,
    /// Calls already passed by the restored application, to be run once more before it goes on.
    pub(crate) again: VecDeque<CollectiveCall>,
    pub(crate) in_call: InCall,
    /// `true` if the current call has failed before.
    pub(crate) call_failed: bool,
    /// The protocol's last known answer about a recovery under way.
    pub(crate) recovering: bool,
    /// `true` if the current receive from several sources was begun.
    asked: bool,
    /// Its number and forced outcome.
    pub(crate) choice: Option<NextChoice>,
}

/// Transitions a process could make by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready {
    /// Peers with a record ready for transmission, a bit each.
    pub(crate) cursors: u64,
    pub(crate) step: bool,
    pub(crate) durable: bool,
}

impl Process {
    pub(crate) fn new(machine: Machine, image: Image, nodes: u32) -> Process {
        let nodes = nodes as usize;
        Process {
            machine,
            image,
            effects: VecDeque::new(),
            acked: vec![Ssn::ZERO; nodes],
            waiting: vec![Some(Vec::new()); nodes],
            met: vec![0; nodes],
            round: None,
            cursors: vec![None; nodes],
            held: vec![VecDeque::new(); nodes],
            held_from: vec![None; nodes],
            writing: None,
            checkpoint_asked: false,
            again: VecDeque::new(),
            in_call: InCall::Not,
            call_failed: false,
            recovering: false,
            asked: false,
            choice: None,
        }
    }

    /// Reports an event to a rank's state machine, and takes its effects.
    ///
    /// # Errors
    /// [`Refusal`] by the rule, or for an event reserved for ranks.
    pub(crate) fn ask<T, E: std::error::Error>(
        &mut self,
        event: impl FnOnce(&mut dyn Protocol) -> Result<T, E>,
    ) -> Result<T, Refusal> {
        let Machine::Rank(rank) = &mut self.machine else { return Err(Refusal("an event of a rank".into())) };
        let answer = event(rank.as_mut());
        self.effects.extend(std::iter::from_fn(|| rank.poll_effect()));
        Ok(answer?)
    }

    /// Returns a rank's state machine.
    pub(crate) fn rank(&self) -> Option<&dyn Protocol> {
        match &self.machine {
            Machine::Rank(rank) => Some(rank.as_ref()),
            Machine::Coordinator(_) => None,
        }
    }

    pub(crate) fn is_recovering(&self) -> bool {
        match &self.machine {
            Machine::Rank(rank) => !rank.is_running() || rank.is_recovering(),
            Machine::Coordinator(coordinator) => coordinator.is_recovering(),
        }
    }

    /// Returns the incarnation in the process's frames.
    ///
    /// `process`: number of replacements.
    pub(crate) fn incarnation(&self, process: Incarnation) -> Incarnation {
        self.rank().map_or(process, Protocol::incarnation)
    }

    /// Begins the application's current receive, if its outcome is a choice.
    pub(crate) fn begin_choice(&mut self, program: &Program, rank: u32) {
        if let Machine::Rank(machine) = &mut self.machine
            && !self.asked
            && matches!(self.image.application.next_op(program, rank), NextOp::Any(_))
        {
            self.choice = Some(machine.next_choice());
            self.asked = true;
        }
    }

    /// Ends the current receive, decided or abandoned.
    pub(crate) fn end_choice(&mut self) -> Option<NextChoice> {
        self.asked = false;
        self.choice.take()
    }

    pub(crate) fn is_finished(&self, program: &Program, rank: u32) -> bool {
        self.writing.is_none()
            && self.again.is_empty()
            && matches!(self.image.application.next_op(program, rank), NextOp::Nothing)
    }

    /// Returns the process's current or next collective call.
    pub(crate) fn call(&self, program: &Program, rank: u32) -> Option<CollectiveCall> {
        let next = || match self.image.application.next_op(program, rank) {
            NextOp::Call(number) => {
                let class = program.calls[number as usize];
                let uniform = !matches!(class, CollectiveClass::ToRoot(_));
                Some(CollectiveCall { class, comm: 0, number, uniform })
            }
            _ => None,
        };
        self.again.front().copied().or_else(next)
    }

    /// Returns `true` if the rule has requested a checkpoint and it can be taken.
    ///
    /// It can't be taken while dummy calls are to run, nor in a call with data already sent, which a restored
    /// application would begin again. `clocks`: it can be taken only where one is offered, and refused in a held call.
    pub(crate) fn may_checkpoint(&self, clocks: bool) -> bool {
        let is_in_call = matches!(self.in_call, InCall::Native { .. });
        let may = self.checkpoint_asked && self.again.is_empty() && !is_in_call;
        may && (!clocks || self.in_call == InCall::Held)
    }

    /// Returns `true` if the process can go on in its collective call.
    fn may_call(&self, call: CollectiveCall, rank: u32, calls: &Calls) -> bool {
        match self.in_call {
            InCall::Not | InCall::Answered(_) => true,
            InCall::Held => false,
            InCall::Native { .. } => calls.outcome(call.class, call.number, rank).is_some(),
        }
    }

    /// `background`: the application goes on while a checkpoint is written; `clocks`: see
    /// [`may_checkpoint`](Self::may_checkpoint).
    pub(crate) fn ready(
        &self,
        program: &Program,
        rank: u32,
        (background, clocks): (bool, bool),
        calls: &Calls,
    ) -> Ready {
        let mut ready = Ready { durable: self.writing.is_some(), ..Ready::default() };
        for (peer, lane) in self.image.lanes.iter().enumerate() {
            let Some(TransmitCursor { next, upto, .. }) = self.cursors[peer] else { continue };
            let may = self.held_from[peer].is_none_or(|from| next < from);
            ready.cursors |= u64::from(may && next <= upto.min(lane.last())) << peer;
        }
        ready.step = (background || !ready.durable)
            && self.rank().is_some_and(Protocol::is_running)
            && match self.image.application.next_op(program, rank) {
                _ if self.may_checkpoint(clocks) => true,
                _ if let Some(call) = self.call(program, rank) => self.may_call(call, rank, calls),
                NextOp::Nothing | NextOp::Call(_) => false,
                NextOp::Send { .. } | NextOp::Checkpoint => true,
                NextOp::Receive { .. } | NextOp::Any(_) => self.find(program, rank).is_some(),
            };
        ready
    }

    /// Returns the index of the next message for the application.
    pub(crate) fn find(&self, program: &Program, rank: u32) -> Option<usize> {
        let (one, several);
        let wanted = match self.image.application.next_op(program, rank) {
            NextOp::Receive { source, tag } => {
                one = [(source, tag)];
                &one[..]
            }
            NextOp::Any(wanted) => {
                several = wanted;
                several
            }
            NextOp::Send { .. } | NextOp::Call(_) | NextOp::Checkpoint | NextOp::Nothing => return None,
        };
        let forced = self.choice.and_then(|choice| choice.forced);
        self.image.pending.iter().position(|Record { header, .. }| match forced {
            Some(forced) => (header.source(), header.ssn()) == (forced.source, forced.ssn),
            None => wanted.contains(&(header.source().0, header.tag())),
        })
    }
}

//! One process: everything of a node that is lost when it dies, and the storage that isn't.

use std::collections::{BTreeMap, VecDeque};

use counterfoil::{Epoch, Incarnation, Ssn};
use counterfoil_protocols::frame::{ChoiceRecord, NextChoice};

use super::application::{Application, Need};
use super::network::Record;
use super::program::Program;
use super::protocol::SimProtocol;

/// One record of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    Kept(Record),
    Freed,
    /// A canary has lost it.
    Lost,
}

/// One destination's part of the log: records in SSN order.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// All up to here was freed.
    freed: u64,
    slots: VecDeque<Slot>,
}

impl Lane {
    pub(super) fn last(&self) -> Ssn {
        Ssn(self.freed + self.slots.len() as u64)
    }

    /// All up to this was freed.
    pub(super) fn freed(&self) -> Ssn {
        Ssn(self.freed)
    }

    pub(super) fn append(&mut self, slot: Slot) {
        self.slots.push_back(slot);
    }

    pub(super) fn get(&self, ssn: Ssn) -> Option<&Slot> {
        let place = ssn.0.checked_sub(self.freed + 1)?;
        self.slots.get(usize::try_from(place).ok()?)
    }

    pub(super) fn free(&mut self, first: Ssn, last: Ssn) {
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

    /// What comes after `last` was never sent.
    pub(super) fn truncate(&mut self, last: Ssn) {
        self.freed = self.freed.min(last.0);
        let kept = last.0 - self.freed;
        self.slots.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
    }

    /// A record is lost, its number is not.
    pub(super) fn lose(&mut self, ssn: Ssn) {
        let place = ssn.0.checked_sub(self.freed + 1).and_then(|place| usize::try_from(place).ok());
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place)) {
            *slot = Slot::Lost;
        }
    }

    /// All records are.
    pub(super) fn lose_all(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = Slot::Lost);
    }

    pub(super) fn retained(&self) -> u64 {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Kept(_))).count() as u64
    }
}

/// What a checkpoint has, apart from the protocol's tables.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) application: Application,
    /// Received, not taken.
    pub(super) pending: Vec<Record>,
    pub(super) lanes: Vec<Lane>,
}

impl Image {
    pub(super) fn new(program: &Program, rank: u32) -> Image {
        Image {
            application: Application::new(program, rank),
            pending: Vec::new(),
            lanes: vec![Lane::default(); program.ranks() as usize],
        }
    }
}

/// A checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    pub(super) epoch: Epoch,
    pub(super) tables: Vec<u8>,
    pub(super) image: Image,
}

/// What of a rank survives its process.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Durable ones, ascending by epoch.
    pub(super) checkpoints: Vec<Saved>,
    pub(super) choices: BTreeMap<u64, ChoiceRecord>,
    pub(super) deliveries: BTreeMap<u64, ChoiceRecord>,
    /// The lanes of the process that died, where the tier keeps them.
    pub(super) lanes: Option<Vec<Lane>>,
}

/// Up to where a lane was transmitted, to whom, and how far it may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlet {
    pub(super) incarnation: Incarnation,
    pub(super) next: Ssn,
    pub(super) upto: Ssn,
}

/// A process of a node. The coordinator's has an image without lanes, and never uses it.
#[derive(Debug)]
pub(super) struct Process<P> {
    pub(super) protocol: P,
    pub(super) image: Image,
    /// By peer; `None` until a replay says from where.
    pub(super) outlets: Vec<Option<Outlet>>,
    /// Messages that the protocol doesn't want yet, by sender.
    pub(super) held: Vec<VecDeque<Record>>,
    /// By peer: records from here on wait for [`Action::Resume`](super::Action::Resume).
    pub(super) held_from: Vec<Option<Ssn>>,
    /// A checkpoint that isn't durable yet.
    pub(super) writing: Option<Saved>,
    /// A recovery was under way, as far as it knew, when it was last asked.
    pub(super) recovering: bool,
    /// The present receive from several was begun.
    asked: bool,
    /// Its number, and what it is forced to.
    pub(super) choice: Option<NextChoice>,
}

/// What a process could do by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    /// Peers to whom a record can be transmitted, a bit each.
    pub(super) outlets: u64,
    pub(super) step: bool,
    pub(super) durable: bool,
}

impl<P: SimProtocol> Process<P> {
    pub(super) fn new(protocol: P, image: Image, nodes: u32) -> Process<P> {
        let nodes = nodes as usize;
        Process {
            protocol,
            image,
            outlets: vec![None; nodes],
            held: vec![VecDeque::new(); nodes],
            held_from: vec![None; nodes],
            writing: None,
            recovering: false,
            asked: false,
            choice: None,
        }
    }

    /// Begins the receive that the application is at, if the application names it and the protocol wants to know.
    pub(super) fn begin_choice(&mut self, program: &Program, rank: u32) {
        if !self.asked && matches!(self.image.application.need(program, rank), Need::Any(_)) {
            self.choice = self.protocol.on_choice();
            self.asked = true;
        }
    }

    /// It is decided, or given up.
    pub(super) fn end_choice(&mut self) -> Option<NextChoice> {
        self.asked = false;
        self.choice.take()
    }

    pub(super) fn is_finished(&self, program: &Program, rank: u32) -> bool {
        self.writing.is_none() && matches!(self.image.application.need(program, rank), Need::Nothing)
    }

    pub(super) fn ready(&self, program: &Program, rank: u32) -> Ready {
        let mut ready = Ready { durable: self.writing.is_some(), ..Ready::default() };
        for (peer, lane) in self.image.lanes.iter().enumerate() {
            let Some(Outlet { next, upto, .. }) = self.outlets[peer] else { continue };
            let may = self.held_from[peer].is_none_or(|from| next < from);
            ready.outlets |= u64::from(may && next <= upto.min(lane.last())) << peer;
        }
        ready.step = !ready.durable
            && self.protocol.is_running()
            && match self.image.application.need(program, rank) {
                Need::Nothing => false,
                Need::Send { .. } | Need::Checkpoint => true,
                Need::Receive { .. } | Need::Any(_) => self.find(program, rank).is_some(),
            };
        ready
    }

    /// The position of the message that the application would take now.
    pub(super) fn find(&self, program: &Program, rank: u32) -> Option<usize> {
        let (one, several);
        let wanted = match self.image.application.need(program, rank) {
            Need::Receive { source, tag } => {
                one = [(source, tag)];
                &one[..]
            }
            Need::Any(wanted) => {
                several = wanted;
                several
            }
            Need::Send { .. } | Need::Checkpoint | Need::Nothing => return None,
        };
        let forced = self.choice.and_then(|choice| choice.forced);
        self.image.pending.iter().position(|Record { header, .. }| match forced {
            Some(forced) => (header.source(), header.ssn()) == (forced.source, forced.ssn),
            None => wanted.contains(&(header.source().0, header.tag())),
        })
    }
}

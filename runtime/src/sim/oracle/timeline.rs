//! What of a rank's past counts: what no restart and no rollback has undone.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil::{Epoch, Ssn};

use crate::sim::application::Payload;
use crate::sim::violation::Wrong;

/// One operation of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// In `epoch`. `marked`: its header says that it is logged.
    Sent {
        to: u32,
        ssn: Ssn,
        payload: Payload,
        marked: bool,
        epoch: Epoch,
    },
    /// In `epoch`. `marked`: its header says that it is logged. `logged`: its sender has to keep it, until it is covered.
    Accepted {
        from: u32,
        ssn: Ssn,
        marked: bool,
        logged: bool,
        epoch: Epoch,
    },
    Taken {
        from: u32,
        tag: i32,
        ssn: Ssn,
        payload: Payload,
    },
}

/// A checkpoint: how many operations are in it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    epoch: Epoch,
    operations: usize,
    durable: bool,
}

/// The operations of one rank, and where its checkpoints are among them.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) operations: Vec<Operation>,
    /// Ascending by epoch.
    marks: Vec<Mark>,
    /// How often it was begun, anew or from a checkpoint.
    begun: u64,
    /// Whether the start was discarded.
    start_discarded: bool,
    sent: BTreeMap<u32, u64>,
    accepted: BTreeSet<(u32, Ssn)>,
    /// By sender and tag.
    taken: BTreeMap<(u32, i32), usize>,
}

impl Timeline {
    /// Adds an operation. `false`: it is a message that was received before.
    pub(super) fn push(&mut self, operation: Operation) -> bool {
        self.operations.push(operation);
        self.count(operation)
    }

    fn count(&mut self, operation: Operation) -> bool {
        match operation {
            Operation::Sent { to, .. } => *self.sent.entry(to).or_default() += 1,
            Operation::Accepted { from, ssn, .. } => return self.accepted.insert((from, ssn)),
            Operation::Taken { from, tag, .. } => *self.taken.entry((from, tag)).or_default() += 1,
        }
        true
    }

    /// How many messages were sent to a rank.
    pub(super) fn sent(&self, to: u32) -> u64 {
        self.sent.get(&to).copied().unwrap_or(0)
    }

    /// How many were received from a rank.
    pub(super) fn accepted(&self, from: u32) -> u64 {
        self.accepted.range((from, Ssn::ZERO)..=(from, Ssn::MAX)).count() as u64
    }

    /// How many were taken from a rank, whatever their tags.
    pub(super) fn taken(&self, from: u32) -> u64 {
        self.taken.range((from, i32::MIN)..=(from, i32::MAX)).map(|(_, &count)| count as u64).sum()
    }

    /// How many of a stream were taken.
    pub(super) fn taken_of(&self, from: u32, tag: i32) -> usize {
        self.taken.get(&(from, tag)).copied().unwrap_or(0)
    }

    /// The epoch that it is in.
    pub(super) fn epoch(&self) -> Epoch {
        self.marks.last().map_or(Epoch::FIRST, |mark| mark.epoch)
    }

    /// How many messages of a rank after `covered` its sender has to keep: those that are logged, and those after `known`, of
    /// which it doesn't know whether they are.
    pub(super) fn to_keep(&self, from: u32, covered: Ssn, known: Ssn) -> u64 {
        let kept = |operation: &&Operation| match **operation {
            Operation::Accepted { from: source, ssn, logged, .. } => {
                source == from && ssn > covered && (logged || ssn > known)
            }
            _ => false,
        };
        self.operations.iter().filter(kept).count() as u64
    }

    /// The epochs that the messages to a rank were sent in, in order.
    pub(super) fn sent_in(&self, rank: u32) -> Vec<Epoch> {
        self.sendings(rank).into_iter().map(|(epoch, _)| epoch).collect()
    }

    /// The same, and whether they were marked as logged.
    pub(super) fn sendings(&self, rank: u32) -> Vec<(Epoch, bool)> {
        let sent = |operation: &Operation| match *operation {
            Operation::Sent { to, epoch, marked, .. } => Some((epoch, marked)).filter(|_| to == rank),
            _ => None,
        };
        self.operations.iter().filter_map(sent).collect()
    }

    /// Of each epoch of a sender the first message that went from there to the future without a mark: neither of what was received,
    /// nor of what the sender has sent since, if it had to repeat it. `sendings`: as [`Timeline::sendings`] of the sender says.
    pub(super) fn first_of_past(&self, sender: u32, sendings: &[(Epoch, bool)]) -> BTreeMap<Epoch, Ssn> {
        let mut first = BTreeMap::new();
        for operation in &self.operations {
            if let Operation::Accepted { from, ssn, marked: false, epoch, .. } = *operation
                && let Some(&(sent_in, false)) = sendings.get(ssn.0.saturating_sub(1) as usize)
                && from == sender
                && sent_in < epoch
            {
                first.entry(sent_in).or_insert(ssn);
            }
        }
        first
    }

    /// All operations, each with the epoch that it is of. What is before the oldest checkpoint that is kept counts as of the
    /// first epoch.
    pub(super) fn by_epoch(&self) -> impl Iterator<Item = (Operation, Epoch)> {
        let mut marks = self.marks.iter().peekable();
        let mut epoch = Epoch::FIRST;
        self.operations.iter().enumerate().map(move |(place, &operation)| {
            while let Some(mark) = marks.next_if(|mark| mark.operations <= place) {
                epoch = mark.epoch;
            }
            (operation, epoch)
        })
    }

    /// Whether nothing was done since this checkpoint.
    pub(super) fn stands_at(&self, epoch: Epoch) -> bool {
        self.upto(Some(epoch)).len() == self.operations.len()
    }

    /// The operations before a checkpoint, or all.
    fn upto(&self, epoch: Option<Epoch>) -> &[Operation] {
        let mark = epoch.map(|epoch| self.marks.iter().find(|mark| mark.epoch == epoch));
        let end = mark.map_or(self.operations.len(), |mark| mark.map_or(0, |mark| mark.operations));
        &self.operations[..end]
    }

    /// The last message that was sent to a rank before a checkpoint, or at all.
    pub(super) fn sent_at(&self, epoch: Option<Epoch>, rank: u32) -> Ssn {
        let sent = |operation: &Operation| match *operation {
            Operation::Sent { to, ssn, .. } => Some(ssn).filter(|_| to == rank),
            _ => None,
        };
        self.upto(epoch).iter().rev().find_map(sent).unwrap_or(Ssn::ZERO)
    }

    /// The last message that was received from a rank before a checkpoint, or at all. Only where channels are FIFO.
    pub(super) fn accepted_at(&self, epoch: Option<Epoch>, rank: u32) -> Ssn {
        let accepted = |operation: &Operation| match *operation {
            Operation::Accepted { from, ssn, .. } => Some(ssn).filter(|_| from == rank),
            _ => None,
        };
        self.upto(epoch).iter().rev().find_map(accepted).unwrap_or(Ssn::ZERO)
    }

    pub(super) fn checkpoint(&mut self, epoch: Epoch) {
        self.marks.retain(|mark| mark.epoch < epoch);
        self.marks.push(Mark { epoch, operations: self.operations.len(), durable: false });
    }

    /// `false` if there is no such checkpoint.
    pub(super) fn durable(&mut self, epoch: Epoch) -> bool {
        let mark = self.marks.iter_mut().find(|mark| mark.epoch == epoch);
        mark.map(|mark| mark.durable = true).is_some()
    }

    pub(super) fn keep(&mut self, first: Epoch, last: Epoch) {
        self.start_discarded |= first > Epoch::FIRST;
        self.marks.retain(|mark| !mark.durable || (first..=last).contains(&mark.epoch));
    }

    /// How often the rank went back, to a checkpoint or to the start.
    pub(super) fn restores(&self) -> u64 {
        self.begun.saturating_sub(1)
    }

    /// Everything after a checkpoint (or after the start) is undone: returns what that is.
    pub(super) fn restore(&mut self, rank: u32, epoch: Epoch) -> Result<Vec<Operation>, Wrong> {
        let gone = Wrong::NoCheckpoint { rank, epoch: epoch.0 };
        // The start may have a checkpoint of its own, and a planted mistake another one of that name.
        let operations = match self.marks.iter().find(|mark| mark.epoch == epoch && mark.durable) {
            Some(mark) => mark.operations,
            None if epoch == Epoch::FIRST && !self.start_discarded => 0,
            None => return Err(gone),
        };
        self.begun += 1;
        self.marks.retain(|mark| mark.durable && mark.epoch <= epoch);
        let undone = self.operations.split_off(operations);
        self.sent.clear();
        self.accepted.clear();
        self.taken.clear();
        for place in 0..self.operations.len() {
            self.count(self.operations[place]);
        }
        Ok(undone)
    }

    /// The last message to a rank that was sent before every checkpoint that can still be restored: it is never sent again.
    pub(super) fn settled(&self, to: u32) -> Ssn {
        let oldest = self.marks.iter().find(|mark| mark.durable).filter(|_| self.start_discarded);
        oldest.map_or(Ssn::ZERO, |mark| self.sent_at(Some(mark.epoch), to))
    }

    /// The last message of a rank such that it and all before it are in every checkpoint that can still be restored.
    pub(super) fn covered(&self, from: u32) -> Ssn {
        let oldest = self.marks.iter().find(|mark| mark.durable).filter(|_| self.start_discarded);
        let operations = &self.operations[..oldest.map_or(0, |mark| mark.operations)];
        let of_it = operations.iter().filter_map(|operation| match *operation {
            Operation::Accepted { from: source, ssn, .. } if source == from => Some(ssn),
            _ => None,
        });
        let received: BTreeSet<Ssn> = of_it.collect();
        let mut covered = Ssn::ZERO;
        for ssn in received {
            if ssn != covered.next() {
                break;
            }
            covered = ssn;
        }
        covered
    }
}

//! Timelines: a rank's operations not undone by a restart or rollback.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_log_core::{Epoch, Ssn};

use crate::application::Payload;
use crate::violation::ViolationKind;

/// A rank's operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// Sent in `epoch`.
    ///
    /// `marked`: its header has the logged mark.
    Sent {
        to: u32,
        ssn: Ssn,
        payload: Payload,
        marked: bool,
        epoch: Epoch,
    },
    /// Received in `epoch`.
    ///
    /// `marked`: its header has the logged mark. `logged`: its sender has to keep it until it is
    /// covered.
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
    /// Completed a collective call.
    Completed {
        number: u64,
        result: Payload,
    },
}

/// Checkpoint, and its number of operations.
#[derive(Clone, Copy, Debug)]
struct Mark {
    epoch: Epoch,
    operations: usize,
    durable: bool,
}

/// One rank's operations, and the places of its checkpoints among them.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) operations: Vec<Operation>,
    /// Ascending by epoch.
    marks: Vec<Mark>,
    /// Number of starts, anew or from a checkpoint.
    starts: u64,
    /// `true` if the start was discarded.
    start_discarded: bool,
    sent: BTreeMap<u32, u64>,
    accepted: BTreeSet<(u32, Ssn)>,
    /// By sender and tag.
    taken: BTreeMap<(u32, i32), usize>,
    /// Number of completed collective calls.
    completed: u64,
}

impl Timeline {
    /// Adds an operation; returns `false` for a message already received.
    pub(super) fn push(&mut self, operation: Operation) -> bool {
        self.operations.push(operation);
        self.count(operation)
    }

    fn count(&mut self, operation: Operation) -> bool {
        match operation {
            Operation::Sent { to, .. } => *self.sent.entry(to).or_default() += 1,
            Operation::Accepted { from, ssn, .. } => return self.accepted.insert((from, ssn)),
            Operation::Taken { from, tag, .. } => *self.taken.entry((from, tag)).or_default() += 1,
            Operation::Completed { .. } => self.completed += 1,
        }
        true
    }

    /// Returns the number of messages sent to a rank.
    pub(super) fn sent(&self, to: u32) -> u64 {
        self.sent.get(&to).copied().unwrap_or(0)
    }

    /// Returns the number of messages received from a rank.
    pub(super) fn accepted(&self, from: u32) -> u64 {
        self.accepted.range((from, Ssn::ZERO)..=(from, Ssn::MAX)).count() as u64
    }

    /// Returns the number of messages taken from a rank, whatever their tags.
    pub(super) fn taken(&self, from: u32) -> u64 {
        self.taken.range((from, i32::MIN)..=(from, i32::MAX)).map(|(_, &count)| count as u64).sum()
    }

    /// Returns the number of messages taken from a stream.
    pub(super) fn taken_of(&self, from: u32, tag: i32) -> usize {
        self.taken.get(&(from, tag)).copied().unwrap_or(0)
    }

    /// Returns the number of completed collective calls.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Returns the current epoch.
    pub(super) fn epoch(&self) -> Epoch {
        self.marks.last().map_or(Epoch::FIRST, |mark| mark.epoch)
    }

    /// Returns the number of a rank's messages after `covered` that the sender has to keep.
    ///
    /// These are logged messages, messages sent again in an epoch before their receipt's, and messages after `known`,
    /// which may be logged as far as it knows. `sendings`: the sender's [`Timeline::sendings`].
    pub(super) fn must_keep(&self, from: u32, covered: Ssn, known: Ssn, sendings: &[(Epoch, bool)]) -> u64 {
        let is_of_past = |ssn: Ssn, received_in| {
            let sent = sendings.get(ssn.0.saturating_sub(1) as usize);
            sent.is_some_and(|&(sent_in, _)| sent_in < received_in)
        };
        let kept = |operation: &&Operation| match **operation {
            Operation::Accepted { from: source, ssn, logged, epoch, .. } => {
                source == from && ssn > covered && (logged || ssn > known || is_of_past(ssn, epoch))
            }
            _ => false,
        };
        self.operations.iter().filter(kept).count() as u64
    }

    /// Returns the epochs of the sends to a rank, in order.
    pub(super) fn sent_in(&self, rank: u32) -> Vec<Epoch> {
        self.sendings(rank).into_iter().map(|(epoch, _)| epoch).collect()
    }

    /// Returns the epochs of the sends to a rank, with the logged marks.
    pub(super) fn sendings(&self, rank: u32) -> Vec<(Epoch, bool)> {
        let sent = |operation: &Operation| match *operation {
            Operation::Sent { to, epoch, marked, .. } => Some((epoch, marked)).filter(|_| to == rank),
            _ => None,
        };
        self.operations.iter().filter_map(sent).collect()
    }

    /// Returns, for each sender epoch, the first unmarked message from there to the future.
    ///
    /// Unmarked means a mark neither at its receipt, nor in a later repetition by the sender. `sendings`: the sender's
    /// [`Timeline::sendings`].
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

    /// Returns all operations, each with the epoch of the checkpoint from which this rank would repeat it, if the
    /// durable checkpoint of `newest` is its last.
    ///
    /// Operations before the oldest kept checkpoint count as in the first epoch.
    pub(super) fn by_restart(&self, newest: Epoch) -> impl Iterator<Item = (Operation, Epoch)> {
        let mut marks = self.marks.iter().filter(move |mark| mark.durable && mark.epoch <= newest).peekable();
        let mut epoch = Epoch::FIRST;
        self.operations.iter().enumerate().map(move |(place, &operation)| {
            while let Some(mark) = marks.next_if(|mark| mark.operations <= place) {
                epoch = mark.epoch;
            }
            (operation, epoch)
        })
    }

    /// Returns the epoch of the newest durable checkpoint; `None` before the first.
    pub(super) fn newest_durable(&self) -> Option<Epoch> {
        self.marks.iter().rev().find(|mark| mark.durable).map(|mark| mark.epoch)
    }

    /// Returns `true` if the rank has been idle since this checkpoint.
    pub(super) fn stands_at(&self, epoch: Epoch) -> bool {
        self.upto(Some(epoch)).len() == self.operations.len()
    }

    /// Returns the operations before a checkpoint, or all.
    fn upto(&self, epoch: Option<Epoch>) -> &[Operation] {
        let mark = epoch.map(|epoch| self.marks.iter().find(|mark| mark.epoch == epoch));
        let end = mark.map_or(self.operations.len(), |mark| mark.map_or(0, |mark| mark.operations));
        &self.operations[..end]
    }

    /// Returns the last message sent to a rank before a checkpoint, or at all.
    pub(super) fn sent_at(&self, epoch: Option<Epoch>, rank: u32) -> Ssn {
        let sent = |operation: &Operation| match *operation {
            Operation::Sent { to, ssn, .. } => Some(ssn).filter(|_| to == rank),
            _ => None,
        };
        self.upto(epoch).iter().rev().find_map(sent).unwrap_or(Ssn::ZERO)
    }

    /// Returns the last message received from a rank before a checkpoint, or at all.
    ///
    /// Valid only where channels are FIFO.
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

    /// Makes a checkpoint durable; returns `false` if there is no such checkpoint.
    pub(super) fn durable(&mut self, epoch: Epoch) -> bool {
        let mark = self.marks.iter_mut().find(|mark| mark.epoch == epoch);
        mark.map(|mark| mark.durable = true).is_some()
    }

    pub(super) fn keep(&mut self, first: Epoch, last: Epoch) {
        self.start_discarded |= first > Epoch::FIRST;
        self.marks.retain(|mark| !mark.durable || (first..=last).contains(&mark.epoch));
    }

    /// Returns the number of restarts and rollbacks, to a checkpoint or to the start.
    pub(super) fn restores(&self) -> u64 {
        self.starts.saturating_sub(1)
    }

    /// Undoes and returns everything after a checkpoint (or after the start).
    pub(super) fn restore(&mut self, rank: u32, epoch: Epoch) -> Result<Vec<Operation>, ViolationKind> {
        let gone = ViolationKind::NoCheckpoint { rank, epoch: epoch.0 };
        // The start may have its own checkpoint, and a planted mistake another one with the same name.
        let operations = match self.marks.iter().find(|mark| mark.epoch == epoch && mark.durable) {
            Some(mark) => mark.operations,
            None if epoch == Epoch::FIRST && !self.start_discarded => 0,
            None => return Err(gone),
        };
        self.starts += 1;
        self.marks.retain(|mark| mark.durable && mark.epoch <= epoch);
        let undone = self.operations.split_off(operations);
        self.sent.clear();
        self.accepted.clear();
        self.taken.clear();
        self.completed = 0;
        for place in 0..self.operations.len() {
            self.count(self.operations[place]);
        }
        Ok(undone)
    }

    /// Returns the last message to a rank sent before every restorable checkpoint: it is never sent again.
    pub(super) fn stable(&self, to: u32) -> Ssn {
        let oldest = self.marks.iter().find(|mark| mark.durable).filter(|_| self.start_discarded);
        oldest.map_or(Ssn::ZERO, |mark| self.sent_at(Some(mark.epoch), to))
    }

    /// Returns a rank's last message contained, with all before it, in every restorable checkpoint.
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

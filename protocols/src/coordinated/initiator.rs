//! The initiator (section 3.1): begins lines, commits them, and brings all ranks back to the last when a process dies.
//!
//! It keeps nothing on stable storage: a line is committed when the first rank has noted it, and all have what it takes to restart from it by
//! then. All that the initiator knows are the last statuses of the ranks. So a replacement asks for these, and goes on with an open line, or
//! with the rest of a commit; the job rolls back only if a rank has died as well.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_log_core::{Epoch, Rank};

use super::Canary;
use super::message::{self, Command, Execution, Order, Progress, Status};
use crate::api::{Coordinator, CoordinatorError, Floor};

/// Attempts between two replacements of the initiator: it doesn't know those of its predecessors, and begins above all of them.
const ATTEMPTS_MAX: u32 = 1 << 16;

/// State machine of the initiator.
#[derive(Debug)]
pub struct Initiator {
    ranks: u32,
    canary: Option<Canary>,
    stage: Stage,
    /// Number of the present execution of the job.
    attempt: u32,
    committed: Epoch,
    /// A line is open.
    open: bool,
    stop_sent: bool,
    statuses: BTreeMap<Rank, Status>,
    messages: VecDeque<(Rank, Vec<u8>)>,
    /// Number of lines that the job went back to, and the last of them, for each rank.
    lines: u64,
    line: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has asked for the statuses.
    Asking,
    /// The ranks stop.
    Collecting,
    /// They roll back to the line.
    Preparing,
    Running,
}

impl Initiator {
    /// Creates an initiator. `replaced`: number of earlier ones, at most 65,535.
    pub fn new(ranks: u32, replaced: u32, canary: Option<Canary>) -> Initiator {
        let mut initiator = Initiator {
            ranks,
            canary,
            stage: Stage::Asking,
            attempt: replaced.saturating_mul(ATTEMPTS_MAX),
            committed: Epoch::FIRST,
            open: false,
            stop_sent: false,
            statuses: BTreeMap::new(),
            messages: VecDeque::new(),
            lines: 0,
            line: Vec::new(),
        };
        initiator.broadcast(Order::Who, Epoch::FIRST);
        initiator
    }

    /// Returns the epoch that the open line begins, and the ranks that keep it from being committed. A line stays open for ever if a rank
    /// reaches no further place for a checkpoint, or never receives a message that was sent to it before.
    pub fn open_line(&self) -> Option<(Epoch, Vec<Rank>)> {
        let next = self.next();
        let is_done = |status: &Status| status.epoch == next.0 && status.progress == Progress::Stopped;
        let waits_for = |rank: &Rank| !self.statuses.get(rank).is_some_and(is_done);
        self.open.then(|| (next, (0..self.ranks).map(Rank).filter(waits_for).collect()))
    }

    fn next(&self) -> Epoch {
        Epoch(self.committed.0 + 1)
    }

    fn broadcast(&mut self, order: Order, epoch: Epoch) {
        let body = message::encode(&Command { order, attempt: self.attempt, epoch: epoch.0 });
        self.messages.extend((0..self.ranks).map(|rank| (Rank(rank), body.clone())));
    }

    /// Stops the job, to bring it back to the last committed line.
    fn recover(&mut self) {
        let known = self.statuses.values().map(|status| status.attempt).max();
        self.attempt = known.unwrap_or(0).max(self.attempt) + 1;
        self.stage = Stage::Collecting;
        (self.open, self.stop_sent) = (false, false);
        self.statuses.clear();
        self.broadcast(Order::Collect, Epoch::FIRST);
    }

    /// Acts on the statuses, once there is one of every rank.
    fn act(&mut self) {
        if self.statuses.len() < self.ranks as usize {
            return;
        }
        let all = |is: &dyn Fn(&Status) -> bool| self.statuses.values().all(is);
        let newest = Epoch(self.statuses.values().map(|status| status.committed).max().unwrap_or(0));
        match self.stage {
            Stage::Asking => {
                let attempt = self.statuses.values().map(|status| status.attempt).max().unwrap_or(0);
                if !all(&|status| status.attempt == attempt && status.execution == Execution::Running && !status.failed)
                {
                    return self.recover();
                }
                (self.attempt, self.stage, self.committed) = (attempt, Stage::Running, newest);
                if !all(&|status| status.committed == newest.0) {
                    self.broadcast(Order::Commit, newest);
                }
                if self.statuses.values().any(|status| status.epoch > newest.0) {
                    self.open_next();
                }
                self.advance();
            }
            Stage::Collecting => {
                self.committed = match self.canary {
                    Some(Canary::InitiatorForgets) if self.attempt >= ATTEMPTS_MAX => Epoch::FIRST,
                    // Each rank names its newest checkpoint.
                    Some(Canary::NewestRestored) => {
                        Epoch(self.statuses.values().map(|status| status.epoch).min().unwrap_or(0))
                    }
                    _ => newest,
                };
                self.stage = Stage::Preparing;
                self.lines += 1;
                self.line = vec![Some(self.committed.0); self.ranks as usize];
                self.broadcast(Order::Line, self.committed);
            }
            Stage::Preparing => {
                if all(&|status| status.execution == Execution::Prepared) {
                    self.stage = Stage::Running;
                    self.broadcast(Order::Go, self.committed);
                }
            }
            Stage::Running => self.advance(),
        }
    }

    fn open_next(&mut self) {
        (self.open, self.stop_sent) = (true, false);
        self.broadcast(Order::PleaseCheckpoint, self.next());
    }

    /// Takes phase 3, or commits the line.
    fn advance(&mut self) {
        let next = self.next();
        let least = self
            .statuses
            .values()
            .map(|status| if status.epoch == next.0 { status.progress } else { Progress::Behind });
        let least = least.min().unwrap_or_default();
        // A predecessor may have begun it, and been lost before the ranks got its order.
        self.open |= self.statuses.values().any(|status| status.epoch == next.0);
        if least >= Progress::Ready && !std::mem::replace(&mut self.stop_sent, true) {
            self.broadcast(Order::StopLogging, next);
        }
        let early = self.canary == Some(Canary::CommittedEarly) && least >= Progress::Ready;
        if least == Progress::Stopped || early {
            (self.committed, self.open, self.stop_sent) = (next, false, false);
            self.broadcast(Order::Commit, next);
        }
    }
}

impl Coordinator for Initiator {
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
        if from.0 >= self.ranks {
            return Err(CoordinatorError::UnknownRank { rank: from, ranks: self.ranks });
        }
        let malformed = CoordinatorError::Malformed { from, len: body.len() };
        let status: Status = message::decode(body).filter(Status::is_in_range).ok_or(malformed)?;
        let is_new = status.attempt == 0 || status.attempt == self.attempt;
        if status.failed && is_new && self.stage != Stage::Asking {
            self.recover();
        } else if status.attempt == self.attempt || self.stage == Stage::Asking {
            self.statuses.insert(from, status);
            self.act();
        }
        Ok(())
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Begins a line (phase 1), unless one is open.
    fn begin_collection(&mut self, _: Floor) -> bool {
        let may = !self.open || self.canary == Some(Canary::TwoLines);
        let begins = self.stage == Stage::Running && may;
        if begins {
            if self.open {
                self.committed = self.next();
            }
            self.open_next();
            self.advance();
        }
        begins
    }

    fn makes_checkpoints(&self) -> bool {
        true
    }

    fn is_collecting(&self) -> bool {
        self.open
    }

    fn is_recovering(&self) -> bool {
        self.stage != Stage::Running
    }

    fn line(&self) -> Option<(u64, &[Option<u32>])> {
        (self.lines > 0).then_some((self.lines, &self.line[..]))
    }
}

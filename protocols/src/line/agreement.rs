//! The coordinator's half.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_log_core::{Epoch, Rank};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Command, Execution, Order, Status};
use crate::api::CoordinatorError;

/// Attempts between two replacements of the coordinator: it doesn't know those of its predecessors, and begins above all of them.
pub(crate) const ATTEMPTS_MAX: u32 = 1 << 16;

/// State of the coordinator, with the last report of each rank. `P`: part of a rank in the creation of lines.
#[derive(Debug)]
pub(crate) struct Agreement<P> {
    pub(crate) ranks: u32,
    stage: Stage,
    pub(crate) attempt: u32,
    /// Newest committed line.
    pub(crate) committed: Epoch,
    statuses: BTreeMap<Rank, Status<P>>,
    messages: VecDeque<(Rank, Vec<u8>)>,
    /// Number of lines that the job went back to, and the last of them, for each rank.
    lines: u64,
    line: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has asked for the reports.
    Asking,
    /// The ranks stop.
    Stopping,
    /// They roll back to the line.
    RollingBack,
    Running,
}

/// Consequence of a report for the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    Nothing,
    /// The attempt is given up, and with it the lines that aren't committed.
    Stopping,
    /// All ranks have stopped: choose the line, and call [`Agreement::roll_back`].
    Stopped,
    /// All ranks run in the attempt of a predecessor.
    TakenOver,
    /// All ranks run, and one has reported something.
    Running,
}

impl<P: Serialize + DeserializeOwned> Agreement<P> {
    /// Creates a coordinator, which asks for the reports. `replaced`: number of earlier ones, at most 65,535.
    pub(crate) fn new(ranks: u32, replaced: u32) -> Agreement<P> {
        let mut agreement = Agreement {
            ranks,
            stage: Stage::Asking,
            attempt: replaced.saturating_mul(ATTEMPTS_MAX),
            committed: Epoch::FIRST,
            statuses: BTreeMap::new(),
            messages: VecDeque::new(),
            lines: 0,
            line: Vec::new(),
        };
        agreement.broadcast(Order::Who, Epoch::FIRST);
        agreement
    }

    pub(crate) fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    /// Returns the reports of this attempt.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = &Status<P>> {
        self.statuses.values()
    }

    pub(crate) fn status(&self, rank: Rank) -> Option<&Status<P>> {
        self.statuses.get(&rank)
    }

    /// Returns the newest line that a rank knows to be committed: all ranks have finished it, and keep it.
    pub(crate) fn newest(&self) -> Epoch {
        Epoch(self.statuses().map(|status| status.committed).max().unwrap_or(0))
    }

    pub(crate) fn broadcast(&mut self, order: Order, epoch: Epoch) {
        let body = Command { order, attempt: self.attempt, epoch: epoch.0 }.encode();
        self.messages.extend((0..self.ranks).map(|rank| (Rank(rank), body.clone())));
    }

    pub(crate) fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Returns the last line that the job went back to, and its number.
    pub(crate) fn line(&self) -> Option<(u64, &[Option<u32>])> {
        (self.lines > 0).then_some((self.lines, &self.line[..]))
    }

    /// Handles the report of a rank.
    ///
    /// # Errors
    /// [`CoordinatorError::UnknownRank`], [`CoordinatorError::Malformed`].
    pub(crate) fn handle(&mut self, from: Rank, body: &[u8]) -> Result<Step, CoordinatorError> {
        if from.0 >= self.ranks {
            return Err(CoordinatorError::UnknownRank { rank: from, ranks: self.ranks });
        }
        let status = Status::decode(body).ok_or(CoordinatorError::Malformed { from, len: body.len() })?;
        let is_asking = self.stage == Stage::Asking;
        let is_new = status.attempt == 0 || status.attempt == self.attempt;
        Ok(if status.failed && is_new && !is_asking {
            self.stop()
        } else if status.attempt == self.attempt || is_asking {
            self.statuses.insert(from, status);
            self.step()
        } else {
            Step::Nothing
        })
    }

    /// Stops the job, to bring it back to a line.
    fn stop(&mut self) -> Step {
        let known = self.statuses().map(|status| status.attempt).max();
        self.attempt = known.unwrap_or(0).max(self.attempt) + 1;
        self.stage = Stage::Stopping;
        self.statuses.clear();
        self.broadcast(Order::Stop, Epoch::FIRST);
        Step::Stopping
    }

    /// Takes the next step, once there is a report of every rank.
    fn step(&mut self) -> Step {
        if self.statuses.len() < self.ranks as usize {
            return Step::Nothing;
        }
        match self.stage {
            Stage::Asking => {
                let attempt = self.statuses().map(|status| status.attempt).max().unwrap_or(0);
                let runs = |status: &Status<P>| {
                    status.attempt == attempt && status.execution == Execution::Running && !status.failed
                };
                if !self.statuses().all(runs) {
                    return self.stop();
                }
                let newest = self.newest();
                (self.attempt, self.stage, self.committed) = (attempt, Stage::Running, newest);
                if self.statuses().any(|status| status.committed < newest.0) {
                    self.broadcast(Order::Commit, newest);
                }
                Step::TakenOver
            }
            Stage::Stopping => Step::Stopped,
            Stage::RollingBack => {
                if self.statuses().all(|status| status.execution == Execution::Prepared) {
                    self.stage = Stage::Running;
                    self.broadcast(Order::Run, self.committed);
                }
                Step::Nothing
            }
            Stage::Running => Step::Running,
        }
    }

    /// Has all ranks roll back to a line.
    pub(crate) fn roll_back(&mut self, line: Epoch) {
        (self.committed, self.stage) = (line, Stage::RollingBack);
        self.lines += 1;
        self.line = vec![Some(line.0); self.ranks as usize];
        self.broadcast(Order::RollBack, line);
    }

    /// Commits a line: it replaces the last one.
    pub(crate) fn commit(&mut self, line: Epoch) {
        self.committed = line;
        self.broadcast(Order::Commit, line);
    }
}

//! Coordinator's half.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_log_core::{Epoch, Rank};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Command, Execution, Order, Status};
use crate::api::CoordinatorError;

/// Maximum attempts per coordinator: its replacement doesn't know their number, and begins its own above them.
const ATTEMPTS_MAX: u32 = 1 << 16;

/// Coordinator state, with the last valid report from each rank.
///
/// `P`: part of a rank in line creation.
#[derive(Debug)]
pub(crate) struct Agreement<P> {
    pub(crate) ranks: u32,
    stage: Stage,
    /// Number before that of its own first attempt.
    base: u32,
    attempt: u32,
    /// Newest committed line.
    pub(crate) committed: Epoch,
    statuses: BTreeMap<Rank, Status<P>>,
    messages: VecDeque<(Rank, Vec<u8>)>,
    /// Number of returns to a line, and the last such line, for each rank.
    returns: u64,
    last_line: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waiting for the requested reports.
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
    /// The attempt is given up, and with it the uncommitted lines.
    Stopping,
    /// All ranks have stopped: choose the line, and call [`Agreement::roll_back`].
    Stopped,
    /// All ranks run in the attempt of a predecessor.
    TakenOver,
    /// All ranks run, or are about to, and one has reported something.
    Running,
}

impl<P: Serialize + DeserializeOwned> Agreement<P> {
    /// Creates a coordinator, which asks for the reports.
    ///
    /// `replaced`: number of earlier ones, at most 65,535.
    pub(crate) fn new(ranks: u32, replaced: u32) -> Agreement<P> {
        let base = replaced.saturating_mul(ATTEMPTS_MAX);
        let mut agreement = Agreement {
            ranks,
            stage: Stage::Asking,
            base,
            attempt: base,
            committed: Epoch::FIRST,
            statuses: BTreeMap::new(),
            messages: VecDeque::new(),
            returns: 0,
            last_line: Vec::new(),
        };
        agreement.broadcast(Order::Who, Epoch::FIRST);
        agreement
    }

    pub(crate) fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    /// Returns the valid reports: from this attempt, or while it asks for them, from any.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = &Status<P>> {
        self.statuses.values()
    }

    pub(crate) fn status(&self, rank: Rank) -> Option<&Status<P>> {
        self.statuses.get(&rank)
    }

    /// Returns the newest line known to any rank as committed: all ranks have finished it, and keep it.
    pub(crate) fn newest(&self) -> Epoch {
        Epoch(self.statuses().map(|status| status.committed).max().unwrap_or(0))
    }

    fn send(&mut self, to: Rank, order: Order, epoch: Epoch) {
        self.messages.push_back((to, Command { order, attempt: self.attempt, epoch: epoch.0 }.encode()));
    }

    pub(crate) fn broadcast(&mut self, order: Order, epoch: Epoch) {
        (0..self.ranks).for_each(|rank| self.send(Rank(rank), order, epoch));
    }

    pub(crate) fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Returns the last line to which the job returned, and its number.
    pub(crate) fn line(&self) -> Option<(u64, &[Option<u32>])> {
        (self.returns > 0).then_some((self.returns, &self.last_line[..]))
    }

    /// Handles a report from a rank.
    ///
    /// # Errors
    /// [`CoordinatorError::UnknownRank`], [`CoordinatorError::Malformed`].
    pub(crate) fn handle(&mut self, from: Rank, body: &[u8]) -> Result<Step, CoordinatorError> {
        if from.0 >= self.ranks {
            return Err(CoordinatorError::UnknownRank { rank: from, ranks: self.ranks });
        }
        let status = Status::decode(body).ok_or(CoordinatorError::Malformed { from, len: body.len() })?;
        Ok(match (self.stage, status.attempt) {
            (Stage::Asking, _) => self.insert(from, status),
            (Stage::Running, 0) if status.failed => self.stop(),
            // A restored process has yet to stop for this attempt.
            (Stage::Stopping | Stage::RollingBack, 0) => {
                self.statuses.remove(&from);
                self.send(from, Order::Stop, Epoch::FIRST);
                Step::Nothing
            }
            (_, attempt) if attempt == self.attempt && status.failed => self.stop(),
            (_, attempt) if attempt == self.attempt => self.insert(from, status),
            // A late order from a predecessor has stopped it.
            (_, attempt) if attempt > self.attempt => {
                self.attempt = attempt;
                self.stop()
            }
            _ => Step::Nothing,
        })
    }

    /// Counts a report, and takes the next step.
    fn insert(&mut self, from: Rank, status: Status<P>) -> Step {
        if self.stage == Stage::RollingBack && status.execution == Execution::Stopped {
            self.send(from, Order::RollBack, self.committed);
        }
        self.statuses.insert(from, status);
        self.step()
    }

    /// Stops the job, to bring it back to a line.
    fn stop(&mut self) -> Step {
        let known = self.statuses().map(|status| status.attempt).max();
        self.attempt = known.unwrap_or(0).max(self.attempt).max(self.base) + 1;
        self.stage = Stage::Stopping;
        self.statuses.clear();
        self.broadcast(Order::Stop, Epoch::FIRST);
        Step::Stopping
    }

    /// Takes the next step, once there is a report from every rank.
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
        self.returns += 1;
        self.last_line = vec![Some(line.0); self.ranks as usize];
        self.broadcast(Order::RollBack, line);
    }

    /// Commits a line: it replaces the last one.
    pub(crate) fn commit(&mut self, line: Epoch) {
        self.committed = line;
        self.broadcast(Order::Commit, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Execution::{Prepared, Running, Stopped};

    const COMMITTED: u32 = 5;

    /// Reports the state of a rank; returns the step, and the resulting orders: destination, order, attempt and epoch.
    fn report(
        agreement: &mut Agreement<u8>,
        rank: u32,
        (failed, attempt, execution): (bool, u32, Execution),
    ) -> (Step, Vec<(u32, Order, u32, u32)>) {
        let status = Status { failed, attempt, committed: COMMITTED, epoch: COMMITTED, execution, progress: 0u8 };
        let step = agreement.handle(Rank(rank), &status.encode()).expect("a report");
        if step == Step::Stopped {
            agreement.roll_back(agreement.newest());
        }
        let orders = std::iter::from_fn(|| agreement.poll_message()).map(|(to, body)| {
            let Command { order, attempt, epoch } = Command::decode(&body).expect("an order");
            (to.0, order, attempt, epoch)
        });
        (step, orders.collect())
    }

    fn to_both(order: Order, attempt: u32, epoch: u32) -> Vec<(u32, Order, u32, u32)> {
        [0, 1].map(|rank| (rank, order, attempt, epoch)).to_vec()
    }

    /// Returns the coordinator for two ranks, stopped for its first attempt.
    fn stopping() -> Agreement<u8> {
        let mut agreement = Agreement::new(2, 0);
        assert_eq!(report(&mut agreement, 0, (false, 0, Stopped)).1, to_both(Order::Who, 0, Epoch::FIRST.0));
        let (step, orders) = report(&mut agreement, 1, (false, 0, Stopped));
        assert_eq!((step, orders), (Step::Stopping, to_both(Order::Stop, 1, Epoch::FIRST.0)));
        agreement
    }

    /// A rollback may be a new process, which has lost the attempt number.
    #[test]
    fn a_process_that_is_restored_while_the_ranks_stop_or_roll_back_joins_the_attempt() {
        let mut agreement = stopping();
        let restored = (true, 0, Stopped);
        let again = |rank| vec![(rank, Order::Stop, 1, Epoch::FIRST.0)];
        assert_eq!(report(&mut agreement, 0, restored), (Step::Nothing, again(0)));
        assert_eq!(report(&mut agreement, 0, (false, 1, Stopped)), (Step::Nothing, vec![]));
        // Its report counts no more.
        assert_eq!(report(&mut agreement, 0, restored), (Step::Nothing, again(0)));
        assert_eq!(report(&mut agreement, 1, (false, 1, Stopped)), (Step::Nothing, vec![]));
        let (step, orders) = report(&mut agreement, 0, (false, 1, Stopped));
        assert_eq!((step, orders), (Step::Stopped, to_both(Order::RollBack, 1, COMMITTED)));

        assert_eq!(report(&mut agreement, 1, (false, 1, Prepared)), (Step::Nothing, vec![]));
        assert_eq!(report(&mut agreement, 1, restored), (Step::Nothing, again(1)));
        assert_eq!(report(&mut agreement, 0, (false, 1, Prepared)), (Step::Nothing, vec![]), "one isn't there");
        let back = vec![(1, Order::RollBack, 1, COMMITTED)];
        assert_eq!(report(&mut agreement, 1, (false, 1, Stopped)), (Step::Nothing, back));
        let run = to_both(Order::Run, 1, COMMITTED);
        assert_eq!(report(&mut agreement, 1, (false, 1, Prepared)), (Step::Nothing, run));
        assert_eq!(agreement.line(), Some((1, &[Some(COMMITTED); 2][..])));
        // Once they run, a restored one takes all back.
        assert_eq!(report(&mut agreement, 1, restored).1, to_both(Order::Stop, 2, Epoch::FIRST.0));
    }

    #[test]
    fn a_rank_that_fails_in_the_attempt_ends_it() {
        let mut agreement = stopping();
        for rank in [0, 1] {
            let _ = report(&mut agreement, rank, (false, 1, Stopped));
        }
        assert_eq!(report(&mut agreement, 0, (true, 1, Stopped)).1, to_both(Order::Stop, 2, Epoch::FIRST.0));
        // What comes late from before doesn't.
        assert_eq!(report(&mut agreement, 1, (true, 1, Stopped)), (Step::Nothing, vec![]));
    }

    #[test]
    fn a_late_stop_of_a_lost_coordinator_is_followed_by_an_attempt_above_it() {
        let mut agreement = Agreement::new(2, 2);
        for (rank, step) in [(0, Step::Nothing), (1, Step::TakenOver)] {
            assert_eq!(report(&mut agreement, rank, (false, 1, Running)).0, step);
        }
        let stop = to_both(Order::Stop, 2 * ATTEMPTS_MAX + 1, Epoch::FIRST.0);
        assert_eq!(report(&mut agreement, 0, (false, ATTEMPTS_MAX + 1, Stopped)).1, stop);

        let mut agreement = Agreement::new(2, 0);
        for rank in [0, 1] {
            let _ = report(&mut agreement, rank, (false, 1, Running));
        }
        let stop = to_both(Order::Stop, 8, Epoch::FIRST.0);
        assert_eq!(report(&mut agreement, 0, (false, 7, Stopped)), (Step::Stopping, stop));
    }

    #[test]
    fn a_coordinator_that_took_over_begins_its_attempts_above_those_of_all_before() {
        let mut agreement = Agreement::new(2, 1);
        for rank in [0, 1] {
            let _ = report(&mut agreement, rank, (false, 6, Running));
        }
        assert_eq!(
            report(&mut agreement, 0, (true, 0, Stopped)).1,
            to_both(Order::Stop, ATTEMPTS_MAX + 1, Epoch::FIRST.0)
        );
    }
}

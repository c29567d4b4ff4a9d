//! Checkpoint lines: commit, and the return of the whole job to the committed one.
//!
//! Shared by rules that bring all ranks back when a process dies. The job is run in *attempts*, each from the newest
//! committed line. The coordinator's half, [`Agreement`], stops the ranks, tells them the line, and has them run once
//! all are there; the rank's half, [`Member`], obeys. The rule defines how a line is created.
//!
//! A report is the whole state of its rank, so a lost one does no harm. The coordinator keeps nothing on stable
//! storage: a line is committed when the first rank has noted it, and by then all can restart from it. So a replacement
//! asks for the reports. If all ranks run, it goes on with their attempt; otherwise it begins the next one.

mod coordinator;

use counterfoil_log_core::Epoch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::encoding;
pub(crate) use coordinator::{Agreement, Step};

/// Version written, and the only one read.
const VERSION: u8 = 1;

/// Order from the coordinator to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Report the status.
    Who,
    /// Stop for a job rollback, and report the status.
    Stop,
    /// Roll back to this epoch's line, and report when done.
    RollBack,
    /// Run from there.
    Run,
    /// This epoch's line is committed.
    Commit,
    /// Take the checkpoint beginning this epoch. For rules with lines begun by the coordinator.
    TakeCheckpoint,
    /// All ranks have taken it, and have all messages from before: the line's logs may end.
    StopLogging,
}

/// Message from the coordinator to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Command {
    order: Order,
    /// Attempt concerned.
    attempt: u32,
    epoch: u32,
}

impl Command {
    fn encode(&self) -> Vec<u8> {
        encoding::encode_versioned(VERSION, self)
    }

    /// Decodes a message; `None` for other bytes, or a nonexistent epoch.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Command> {
        encoding::decode_versioned(VERSION, bytes).filter(|command: &Command| command.epoch <= Epoch::MAX.0)
    }
}

/// Execution state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Execution {
    Stopped,
    /// At the line, and able to run from there.
    Prepared,
    Running,
}

/// Message from a rank to the coordinator: its whole state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status<P> {
    /// The job has to go back: this process is new, or has lost a peer.
    pub(crate) failed: bool,
    pub(crate) attempt: u32,
    /// Newest line known to the rank as committed.
    pub(crate) committed: u32,
    pub(crate) epoch: u32,
    pub(crate) execution: Execution,
    /// Its part in line creation.
    pub(crate) progress: P,
}

impl<P: Serialize + DeserializeOwned> Status<P> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        encoding::encode_versioned(VERSION, self)
    }

    /// Decodes a message; `None` for other bytes, or if no further epoch and attempt could follow.
    fn decode(bytes: &[u8]) -> Option<Status<P>> {
        let is_in_range =
            |status: &Status<P>| status.committed.max(status.epoch) <= Epoch::MAX.0 && status.attempt < u32::MAX;
        encoding::decode_versioned(VERSION, bytes).filter(is_in_range)
    }
}

/// Part of a rank in the attempts.
#[derive(Debug)]
pub(crate) struct Member {
    /// Present attempt; 0 before any. Headers have it as their phase.
    pub(crate) attempt: u32,
    execution: Execution,
    /// The job has to go back: this process is new, or has lost a peer.
    pub(crate) failed: bool,
    /// Newest line known to be committed.
    pub(crate) committed: Epoch,
    /// Nothing has happened since the rank was restored.
    pub(crate) is_fresh: bool,
    /// At the attempt's line.
    is_at_line: bool,
    rolls_back: bool,
}

/// Request in an order, beyond the [`Member`]'s state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Nothing,
    Report,
    /// A new attempt has begun: end the one before, and report.
    Stop,
    /// Go to this line: see [`Member::go_to`].
    GoBack(Epoch),
    Run,
    Commit(Epoch),
    TakeCheckpoint(Epoch),
    StopLogging(Epoch),
}

impl Member {
    /// Creates the part for a new process.
    pub(crate) fn new() -> Member {
        Member {
            attempt: 0,
            execution: Execution::Stopped,
            failed: false,
            committed: Epoch::FIRST,
            is_fresh: true,
            is_at_line: false,
            rolls_back: false,
        }
    }

    /// Obeys an order.
    ///
    /// One from another attempt (only a stop may begin one) asks for nothing; nor does one unfit for the execution
    /// state.
    pub(crate) fn obey(&mut self, command: Command) -> Duty {
        let (epoch, is_running) = (Epoch(command.epoch), self.is_running());
        match command.order {
            Order::Who => Duty::Report,
            Order::Stop if command.attempt > self.attempt => {
                (self.attempt, self.execution) = (command.attempt, Execution::Stopped);
                (self.failed, self.is_at_line) = (false, false);
                Duty::Stop
            }
            _ if command.attempt != self.attempt => Duty::Nothing,
            // A rank that failed in this attempt waits for the next one.
            Order::RollBack if self.execution == Execution::Stopped && !self.failed => Duty::GoBack(epoch),
            Order::Run if self.execution == Execution::Prepared => {
                (self.execution, self.is_fresh) = (Execution::Running, false);
                Duty::Run
            }
            Order::Commit if is_running && epoch > self.committed => Duty::Commit(epoch),
            Order::TakeCheckpoint if is_running => Duty::TakeCheckpoint(epoch),
            Order::StopLogging if is_running => Duty::StopLogging(epoch),
            _ => Duty::Nothing,
        }
    }

    /// Goes to a line: at once if the rank is there, or else by a rollback.
    pub(crate) fn go_to(&mut self, is_there: bool) {
        (self.is_at_line, self.rolls_back) = (is_there, !is_there);
    }

    /// Returns the part for a restored rank: restored by the rollback to the line, or else as a new process.
    pub(crate) fn restored(&self, oldest: Epoch) -> Member {
        let rolled_back = self.rolls_back;
        let attempt = if rolled_back { self.attempt } else { 0 };
        let committed = self.committed.max(oldest);
        Member { attempt, failed: !rolled_back, is_at_line: rolled_back, committed, ..Member::new() }
    }

    /// Returns `true` if a rollback was requested.
    pub(crate) fn rolls_back(&self) -> bool {
        self.rolls_back
    }

    /// Prepares the rank to run, if it has stopped at the line; returns `true` if it did.
    pub(crate) fn prepare(&mut self) -> bool {
        let is_prepared = self.is_at_line && self.execution == Execution::Stopped;
        if is_prepared {
            self.execution = Execution::Prepared;
        }
        is_prepared
    }

    /// Stops the rank, and has the job go back; returns `false` if it had stopped already.
    pub(crate) fn fail(&mut self) -> bool {
        let had_stopped = self.execution == Execution::Stopped;
        if !had_stopped {
            (self.failed, self.execution, self.is_at_line) = (true, Execution::Stopped, false);
        }
        !had_stopped
    }

    /// Returns the message to the coordinator.
    pub(crate) fn status<P>(&self, epoch: Epoch, progress: P) -> Status<P> {
        let Member { failed, attempt, committed, execution, .. } = *self;
        Status { failed, attempt, committed: committed.0, epoch: epoch.0, execution, progress }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.execution == Execution::Running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_epoch_and_attempt_can_follow_a_status() {
        let is_read = |attempt, committed, epoch| {
            let status =
                Status { failed: false, attempt, committed, epoch, execution: Execution::Running, progress: 7u8 };
            Status::<u8>::decode(&status.encode()).is_some_and(|read| read == status)
        };
        let most = Epoch::MAX.0;
        assert!(is_read(u32::MAX - 1, most, most));
        assert!(!is_read(u32::MAX, 1, 1) && !is_read(1, most + 1, 1) && !is_read(1, 1, most + 1));
    }

    #[test]
    fn a_command_is_about_an_epoch_that_exists() {
        let read = |epoch| {
            let command = Command { order: Order::RollBack, attempt: 3, epoch };
            Command::decode(&command.encode()) == Some(command)
        };
        assert!(read(Epoch::MAX.0) && !read(Epoch::MAX.0 + 1));
    }

    #[test]
    fn an_order_is_obeyed_in_its_attempt_and_only_where_it_fits_the_execution() {
        use Execution::{Prepared, Running, Stopped};
        let member = |execution| Member { attempt: 3, execution, committed: Epoch(5), ..Member::new() };
        let obeyed = |execution, order, attempt, epoch| member(execution).obey(Command { order, attempt, epoch });
        let at = Epoch(6);
        for (order, fits, duty) in [
            (Order::RollBack, Stopped, Duty::GoBack(at)),
            (Order::Run, Prepared, Duty::Run),
            (Order::Commit, Running, Duty::Commit(at)),
            (Order::TakeCheckpoint, Running, Duty::TakeCheckpoint(at)),
            (Order::StopLogging, Running, Duty::StopLogging(at)),
        ] {
            for execution in [Stopped, Prepared, Running] {
                for attempt in 2..=4 {
                    let expected = if attempt == 3 && execution == fits { duty } else { Duty::Nothing };
                    assert_eq!(obeyed(execution, order, attempt, 6), expected, "{order:?} {execution:?} {attempt}");
                }
            }
        }
        assert_eq!(obeyed(Running, Order::Commit, 3, 5), Duty::Nothing, "it is committed already");
        for execution in [Stopped, Prepared, Running] {
            let duties = [2, 3, 4].map(|attempt| obeyed(execution, Order::Stop, attempt, 6));
            assert_eq!(duties, [Duty::Nothing, Duty::Nothing, Duty::Stop]);
            let duties = [2, 3, 4].map(|attempt| obeyed(execution, Order::Who, attempt, 6));
            assert_eq!(duties, [Duty::Report; 3]);
        }
        let mut failed = Member { failed: true, ..member(Stopped) };
        let go_back = Command { order: Order::RollBack, attempt: 3, epoch: 6 };
        assert_eq!(failed.obey(go_back), Duty::Nothing, "it waits for the next attempt");
        failed.obey(Command { order: Order::Stop, attempt: 4, epoch: 6 });
        assert_eq!(failed.obey(Command { attempt: 4, ..go_back }), Duty::GoBack(at));
    }
}

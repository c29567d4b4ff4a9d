//! Progress and final report of a job.

use std::time::{Duration, Instant};

use counterfoil_protocols::api::CoordinatorError;

use super::job::JobError;
use super::kills::Kill;
use crate::oracle::{OracleError, Timeline};
use crate::saved::{SavedError, StateMemoryError};
use crate::tally::Tally;

/// Progress of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// A process was started.
    Started {
        /// The rank.
        rank: u32,
        /// Incarnation number.
        incarnation: u32,
        /// Process id.
        pid: u32,
    },
    /// A rank has begun an iteration.
    Iteration {
        /// The rank.
        rank: u32,
        /// Iteration number, from 1.
        n: u64,
    },
    /// A rank was killed by a signal.
    Died {
        /// The rank.
        rank: u32,
        /// Incarnation number.
        incarnation: u32,
        /// The rank's iteration; 0 before the first.
        iteration: u64,
        /// The launcher killed the process, as planned.
        planned: bool,
    },
    /// The launcher killed all ranks at once, as planned, and discards their logs in memory.
    PowerCut {
        /// Rank 0's iteration.
        iteration: u64,
    },
    /// A rank that wasn't killed rolls back to an earlier checkpoint.
    RollsBack {
        /// The rank.
        rank: u32,
        /// Epoch that the checkpoint began.
        epoch: u32,
    },
    /// The job is started again with its ranks' saved states.
    Restarts {
        /// Number of restarts so far.
        generation: u32,
        /// Number of ranks without a saved state.
        lost: u32,
    },
    /// A replacement has restored a checkpoint.
    Restored {
        /// The rank.
        rank: u32,
        /// Epoch that the checkpoint began.
        epoch: u32,
    },
    /// A replacement has received all messages sent to its predecessor.
    ReplayComplete {
        /// The rank.
        rank: u32,
    },
    /// A replacement has caught up with its predecessor.
    CaughtUp {
        /// The rank.
        rank: u32,
    },
    /// A rank's program has ended.
    Done {
        /// The rank.
        rank: u32,
    },
}

/// Receiver for progress.
pub trait Observer {
    /// Handles one progress step.
    fn handle_progress(&mut self, progress: Progress);
}

/// Ignores progress.
impl Observer for () {
    fn handle_progress(&mut self, _: Progress) {}
}

/// Durations of a recovery's steps, each from the end of the previous one.
///
/// `None` if a step was not reached, because the process was killed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryTimes {
    /// Time of detection, by the launcher or, without one, by the replacement.
    pub noticed: Option<Instant>,
    /// From SIGKILL until the launcher noticed.
    ///
    /// `None` for an unplanned kill.
    pub detect: Option<Duration>,
    /// Until a managed process had replaced the dead one.
    ///
    /// Includes the detection by the survivors' MPI and the agreement among all processes, or the restart of all
    /// processes. `None` for processes started by the launcher.
    pub repair: Option<Duration>,
    /// Until the replacement had started: a process of the launcher has sent its hello, a managed process has its log.
    pub start: Option<Duration>,
    /// Until the replacement had received all messages sent to its predecessor.
    pub replay: Option<Duration>,
    /// Until the re-execution had sent all messages that its peers had received from its predecessor.
    pub catch_up: Option<Duration>,
}

/// Death of a rank by a signal.
#[derive(Clone, Debug)]
pub struct DeathReport {
    /// The rank.
    pub rank: u32,
    /// Incarnation that died.
    pub incarnation: u32,
    /// Process id.
    pub pid: u32,
    /// The rank's iteration; 0 before the first.
    pub iteration: u64,
    /// The planned kill; `None` if the launcher didn't kill it.
    pub planned: Option<Kill>,
    /// Signal number; `None` if only a process manager knows it.
    pub signal: Option<i32>,
    /// Time since the job's start.
    pub at: Duration,
    /// Recovery durations.
    pub recovery: RecoveryTimes,
    /// The rank died between its first and its last message; `None` without traces.
    pub between_first_and_last_message: Option<bool>,
}

/// Power cut: all ranks were killed at once, and lost their logs in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerCutReport {
    /// Rank 0's iteration at the power cut.
    pub iteration: u64,
    /// For each rank: the restored checkpoint's epoch; `None` if it started from the beginning.
    pub restored: Vec<Option<u32>>,
}

/// Stall: the managed processes made no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StallReport {
    /// Rank not joined by any process within [`JobOptions::start_wait_max`](super::JobOptions::start_wait_max); `None`
    /// if all processes waited for each other in a repair.
    pub rank: Option<u32>,
    /// Time since the job's start.
    pub at: Duration,
    /// The unfinished ranks, with each one's last report.
    pub state: String,
}

/// Restart of a job with saved states.
///
/// Its durations follow each other, except `heard`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartReport {
    /// Number of restarts so far.
    pub generation: u32,
    /// `false` if no state was left, and the program begins anew.
    pub from_saved: bool,
    /// Ranks without a saved state, ascending.
    pub lost: Vec<u32>,
    /// Time from the job's start until the launcher noticed a rank's loss.
    pub at: Duration,
    /// Bytes in the saved states.
    pub bytes: u64,
    /// Longest save by a rank.
    pub longest_save: Duration,
    /// For each rank: from [`RestartReport::at`] until it heard of the loss and began to save its state.
    ///
    /// `None` for ranks lost or ended before.
    pub heard: Vec<Option<Duration>>,
    /// Until the last rank had saved its state.
    pub save: Duration,
    /// Until the last process had ended.
    pub end: Duration,
    /// Until all had joined; `None` if one died before.
    pub start: Option<Duration>,
    /// Until all states were rebuilt; `None` if one died before.
    pub rebuild: Option<Duration>,
    /// Time when the last process had ended.
    pub ended: Instant,
}

/// Report of a successful job.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// Outcome of each rank's program.
    pub outcomes: Vec<Vec<u8>>,
    /// Counters summed over all incarnations, as last reported by each.
    pub tally: Tally,
    /// Deaths by signals.
    pub deaths: Vec<DeathReport>,
    /// Planned kills that did not happen, because the job never reached their time.
    pub missed: Vec<Kill>,
    /// Power cuts.
    pub power_cuts: Vec<PowerCutReport>,
    /// Stalls of the managed processes.
    ///
    /// After each, all were ended and started again from their last checkpoints.
    pub stalls: Vec<StallReport>,
    /// Restarts with saved states.
    pub restarts: Vec<RestartReport>,
    /// For each rank: number of rollbacks without a kill of this rank.
    pub rolled_back: Vec<u32>,
    /// Number of coordinators lost and replaced.
    pub coordinators_lost: u32,
    /// Iterations of rank 0 in which the coordinator was to be lost, but wasn't.
    pub losses_missed: Vec<u64>,
    /// For each rank: epochs of its rollback checkpoints, in order, without its restarts after kills.
    pub rolled_back_to: Vec<Vec<u32>>,
    /// Every rank neither killed nor rolled back kept its process and never repeated an iteration.
    pub survivors_undisturbed: bool,
    /// The ranks' timelines, from their traces; `None` without traces.
    pub timelines: Option<Vec<Timeline>>,
    /// Time from the start of the first process to the exit of the last.
    pub wall: Duration,
}

/// Failure of a job.
///
/// All its processes have exited and its files are removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// Saved states can't be removed.
    #[error(transparent)]
    Saved(SavedError),
    /// A rank's state in memory can't be examined.
    #[error(transparent)]
    StateInMemory(StateMemoryError),
    /// The job has no ranks.
    #[error("a job needs at least one rank")]
    NoRanks,
    /// The job has more ranks than the limit for one machine.
    #[error("{ranks} ranks: a job on one machine has at most {}", super::options::JobOptions::RANKS_MAX)]
    TooManyRanks {
        /// Number of ranks.
        ranks: u32,
    },
    /// A planned kill names a rank outside the job.
    #[error("kill {kill}: there is no rank {rank} among {ranks} ranks")]
    NoSuchRank {
        /// The kill.
        kill: Kill,
        /// The invalid rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// The job's directories cannot be used.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// Failed action.
        action: &'static str,
        /// Operating system error.
        source: std::io::Error,
    },
    /// A rank could not be started.
    #[error("cannot start rank {rank}: {source}")]
    Start {
        /// The rank.
        rank: u32,
        /// Operating system error.
        source: std::io::Error,
    },
    /// The process manager has ended before the job.
    #[error("the process manager (mpirun) ended too early, with {status}; {state}{stderr}", stderr = quoted(.stderr_tail))]
    ManagerFailed {
        /// The unfinished ranks, with each one's last report.
        state: String,
        /// Its exit status.
        status: String,
        /// End of its standard error.
        stderr_tail: String,
    },
    /// A spare process has failed, and with it the job.
    #[error("a spare process failed: {reason}")]
    SpareFailed {
        /// Reported error.
        reason: String,
    },
    /// A rank did not send its hello in time.
    #[error("rank {rank} sent no hello within {waited:.1?} of its start; {state}{stderr}", stderr = quoted(.stderr_tail))]
    Silent {
        /// The rank.
        rank: u32,
        /// Time waited by the launcher.
        waited: Duration,
        /// The unfinished ranks, with each one's last report.
        state: String,
        /// End of the process's standard error.
        stderr_tail: String,
    },
    /// All managed processes have waited for each other in a repair, and did so too often before.
    #[error("all processes have waited for each other in a repair for {waited:?}; {state}")]
    RepairStalled {
        /// Time that they waited.
        waited: Duration,
        /// The unfinished ranks, with each one's last report.
        state: String,
    },
    /// A rank's program or runtime has failed.
    #[error("rank {rank} (incarnation {incarnation}) failed: {reason}{stderr}", stderr = quoted(.stderr_tail))]
    RankFailed {
        /// The rank.
        rank: u32,
        /// Incarnation number.
        incarnation: u32,
        /// Reported error, or exit status.
        reason: String,
        /// End of the process's standard error.
        stderr_tail: String,
    },
    /// A rank had more unplanned deaths than the limit.
    #[error("rank {rank} was killed {deaths} times without a plan{signal}: giving up", signal = last_signal(*.signal))]
    TooManyDeaths {
        /// The rank.
        rank: u32,
        /// Number of unplanned deaths.
        deaths: u32,
        /// Last signal, if known.
        signal: Option<i32>,
    },
    /// A finished rank's re-execution has another outcome.
    #[error("rank {rank} was replaced after it was done, and its replacement has another outcome")]
    OutcomeChanged {
        /// The rank.
        rank: u32,
    },
    /// Ranks didn't exit after all were done.
    #[error("ranks {ranks:?} did not exit within {waited:?} after all were done")]
    NotEnding {
        /// The ranks.
        ranks: Vec<u32>,
        /// Time waited by the launcher.
        waited: Duration,
    },
    /// The job took longer than the limit.
    #[error("the job was not done after {limit:?}; {state}")]
    TooLong {
        /// The limit.
        limit: Duration,
        /// The unfinished ranks, with each one's last report.
        state: String,
    },
    /// A signal interrupted the launcher.
    #[error("interrupted by a signal; all ranks were ended and all files removed")]
    Interrupted,
    /// A rank sent an invalid message to the coordinator.
    #[error("the recovery process: {source}")]
    Coordinator {
        /// The rank.
        rank: u32,
        /// Reason.
        source: CoordinatorError,
    },
    /// The traces cannot be read.
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

fn last_signal(signal: Option<i32>) -> String {
    signal.map_or(String::new(), |signal| format!(", last by signal {signal}"))
}

fn quoted(stderr_tail: &str) -> String {
    if stderr_tail.is_empty() { String::new() } else { format!("; it wrote: {stderr_tail}") }
}

/// End times of a recovery's steps.
#[derive(Clone, Debug)]
pub struct RecoveryClock {
    /// SIGKILL; `None` for an unplanned kill.
    pub killed: Option<Instant>,
    /// The launcher, or a process without one, noticed the death.
    pub noticed: Instant,
    /// A process has taken the dead one's place.
    ///
    /// Only for managed processes.
    pub joined: Option<Instant>,
    /// The replacement has started.
    pub started: Option<Instant>,
    /// The replacement has received all messages sent to its predecessor.
    pub replayed: Option<Instant>,
    /// The replacement has sent all messages that its peers had received from its predecessor.
    pub caught_up: Option<Instant>,
}

impl RecoveryClock {
    /// Creates a clock that begins with a process's death.
    pub fn new(killed: Option<Instant>, noticed: Instant) -> RecoveryClock {
        RecoveryClock { killed, noticed, joined: None, started: None, replayed: None, caught_up: None }
    }

    /// Returns the steps' durations.
    pub fn times(&self) -> RecoveryTimes {
        let between = |from: Option<Instant>, to: Option<Instant>| Some(to?.saturating_duration_since(from?));
        RecoveryTimes {
            noticed: Some(self.noticed),
            detect: between(self.killed, Some(self.noticed)),
            repair: between(Some(self.noticed), self.joined),
            start: between(self.joined.or(Some(self.noticed)), self.started),
            replay: between(self.started, self.replayed),
            catch_up: between(self.replayed, self.caught_up),
        }
    }
}

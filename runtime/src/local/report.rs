//! What a launcher tells while a job runs, and at its end.

use std::time::{Duration, Instant};

use counterfoil_protocols::send_deterministic::RecoveryError;

use super::job::JobError;
use super::kills::Kill;
use crate::oracle::{OracleError, Timeline};
use crate::tally::Tally;

/// Something to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// A process was started.
    Started {
        /// Its rank.
        rank: u32,
        /// Its incarnation.
        incarnation: u32,
        /// Its process id.
        pid: u32,
    },
    /// A rank has begun an iteration.
    Iteration {
        /// The rank.
        rank: u32,
        /// The iteration, from 1.
        n: u64,
    },
    /// A rank has died by a signal.
    Died {
        /// The rank.
        rank: u32,
        /// Its incarnation.
        incarnation: u32,
        /// The iteration it was in; 0 before the first.
        iteration: u64,
        /// Whether the launcher killed it, as planned.
        planned: bool,
    },
    /// All ranks were killed at once, as planned; what they had in memory is discarded.
    PowerCut {
        /// The iteration that rank 0 was in.
        iteration: u64,
    },
    /// A rank that wasn't killed goes back to an earlier checkpoint.
    GoesBack {
        /// The rank.
        rank: u32,
        /// The epoch that the checkpoint began.
        epoch: u32,
    },
    /// A replacement went on from a checkpoint.
    Restored {
        /// The rank.
        rank: u32,
        /// The epoch that the checkpoint began.
        epoch: u32,
    },
    /// A replacement has received all that its peers had sent before.
    ReplayComplete {
        /// The rank.
        rank: u32,
    },
    /// A replacement is where its predecessor was.
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

/// Shows progress.
pub trait Observer {
    /// Something has happened.
    fn handle_progress(&mut self, progress: Progress);
}

/// Shows nothing.
impl Observer for () {
    fn handle_progress(&mut self, _: Progress) {}
}

/// How long the parts of a recovery took; each from the end of the one before. `None`: it was not reached, because
/// the process was killed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryTimes {
    /// From SIGKILL until the launcher noticed. `None` if somebody else killed it.
    pub detect: Option<Duration>,
    /// Until the replacement said its first word.
    pub start: Option<Duration>,
    /// Until it had received all that its peers had sent to its predecessor.
    pub replay: Option<Duration>,
    /// Until its re-execution had sent all that its peers had received from its predecessor.
    pub catch_up: Option<Duration>,
}

/// A rank that died by a signal.
#[derive(Clone, Debug)]
pub struct DeathReport {
    /// The rank.
    pub rank: u32,
    /// The incarnation that died.
    pub incarnation: u32,
    /// Its process id.
    pub pid: u32,
    /// The iteration that it was in; 0 before the first.
    pub iteration: u64,
    /// The planned kill that it was; `None` if somebody else killed it.
    pub planned: Option<Kill>,
    /// The signal.
    pub signal: i32,
    /// When, since the start of the job.
    pub at: Duration,
    /// How long its recovery took.
    pub recovery: RecoveryTimes,
    /// Whether it died between the first and the last message of its rank; `None` without traces.
    pub between_first_and_last_message: Option<bool>,
}

/// All ranks were killed at once, and lost what they had in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerCutReport {
    /// The iteration of rank 0 in which it happened.
    pub iteration: u64,
    /// For each rank: the epoch of the checkpoint that it went on from; `None` if it began anew.
    pub restored: Vec<Option<u32>>,
}

/// A job that has ended well.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// What each rank's program gave.
    pub outcomes: Vec<Vec<u8>>,
    /// What all incarnations of all ranks counted, as far as they lived to tell.
    pub tally: Tally,
    /// Who died.
    pub deaths: Vec<DeathReport>,
    /// Planned kills that did not happen, because their moment never came.
    pub missed: Vec<Kill>,
    /// When the power was cut.
    pub power_cuts: Vec<PowerCutReport>,
    /// For each rank, how often it went back to an earlier checkpoint though nobody had killed it.
    pub rolled_back: Vec<u32>,
    /// Whether every rank that was neither killed nor taken back kept its process and never went back an iteration.
    pub survivors_undisturbed: bool,
    /// What the ranks did, from their traces; `None` if none were written.
    pub timelines: Option<Vec<Timeline>>,
    /// From the start of the first process to the end of the last.
    pub wall: Duration,
}

/// Why a job has failed. All its processes are gone and its files are removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A job without ranks.
    #[error("a job needs at least one rank")]
    NoRanks,
    /// More processes than one machine is asked to run.
    #[error("{ranks} ranks: a job on one machine has at most {}", super::options::JobOptions::RANKS_MAX)]
    TooManyRanks {
        /// How many.
        ranks: u32,
    },
    /// A kill of, or during the recovery of, a rank that the job doesn't have.
    #[error("kill {kill}: there is no rank {rank} among {ranks} ranks")]
    NoSuchRank {
        /// The kill.
        kill: Kill,
        /// The rank.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// The job's directories.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A rank could not be started.
    #[error("cannot start rank {rank}: {source}")]
    Start {
        /// The rank.
        rank: u32,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A rank did not say hello in time.
    #[error("rank {rank} said nothing for {waited:?} after its start{words}", words = quoted(.last_words))]
    Silent {
        /// The rank.
        rank: u32,
        /// How long the launcher waited.
        waited: Duration,
        /// The end of what it wrote to standard error.
        last_words: String,
    },
    /// A rank's program or runtime has failed.
    #[error("rank {rank} (incarnation {incarnation}) failed: {reason}{words}", words = quoted(.last_words))]
    RankFailed {
        /// The rank.
        rank: u32,
        /// Its incarnation.
        incarnation: u32,
        /// What it said, or how it ended.
        reason: String,
        /// The end of what it wrote to standard error.
        last_words: String,
    },
    /// A rank was killed, by somebody else, more often than is sensible.
    #[error("rank {rank} was killed {deaths} times, last by signal {signal}, without having been asked to: giving up")]
    TooManyDeaths {
        /// The rank.
        rank: u32,
        /// How often.
        deaths: u32,
        /// The last signal.
        signal: i32,
    },
    /// A rank that was re-executed after it was done came to another outcome.
    #[error("rank {rank} was replaced after it was done, and its replacement came to another outcome")]
    OutcomeChanged {
        /// The rank.
        rank: u32,
    },
    /// Ranks didn't end although everybody was done.
    #[error("ranks {ranks:?} did not end within {waited:?} after everybody was done")]
    NotEnding {
        /// Which.
        ranks: Vec<u32>,
        /// How long the launcher waited.
        waited: Duration,
    },
    /// The job took longer than it was allowed to.
    #[error("the job was not done after {limit:?}; {state}")]
    TooLong {
        /// The limit.
        limit: Duration,
        /// The ranks that were not done, and what each said last.
        state: String,
    },
    /// A signal asked the launcher to end.
    #[error("interrupted by a signal; all ranks were ended and all files removed")]
    Interrupted,
    /// A rank says something to the coordinator that no rank says.
    #[error("the recovery process: {source}")]
    Coordinator {
        /// The rank.
        rank: u32,
        /// What is wrong.
        source: RecoveryError,
    },
    /// The traces can't be read.
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

fn quoted(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; its last words: {words}") }
}

/// The moments of a recovery, as they come.
#[derive(Debug)]
pub(super) struct RecoveryClock {
    pub(super) struck: Option<Instant>,
    pub(super) noticed: Instant,
    pub(super) hello: Option<Instant>,
    pub(super) replayed: Option<Instant>,
    pub(super) caught_up: Option<Instant>,
}

impl RecoveryClock {
    pub(super) fn new(struck: Option<Instant>, noticed: Instant) -> RecoveryClock {
        RecoveryClock { struck, noticed, hello: None, replayed: None, caught_up: None }
    }

    pub(super) fn times(&self) -> RecoveryTimes {
        let between = |from: Option<Instant>, to: Option<Instant>| Some(to?.saturating_duration_since(from?));
        RecoveryTimes {
            detect: between(self.struck, Some(self.noticed)),
            start: between(Some(self.noticed), self.hello),
            replay: between(self.hello, self.replayed),
            catch_up: between(self.replayed, self.caught_up),
        }
    }
}

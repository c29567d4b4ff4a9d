//! Launcher options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::job::{default_checkpoint_root, default_shm_root};
use super::kills::{Kill, KillPoint};
use super::report::LaunchError;
use crate::settings::RankSettings;

/// Way to start a job's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// The launcher starts each, and a new one in place of a dead one.
    Started,
    /// One command, an MPI's process manager, starts all, including `spares` processes that replace dead ones.
    Managed {
        /// Number of spare processes.
        spares: u32,
        /// Processes outlive another one's death.
        ///
        /// Otherwise the launcher ends all and starts the command again, and every rank continues from its last
        /// checkpoint.
        outlive_failures: bool,
    },
}

/// Job to launch.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Command to run.
    ///
    /// For [`Processes::Started`], a rank's program and its first arguments: the launcher appends `--job`, `--rank`,
    /// `--incarnation` and `--launcher`, and the program calls [`join`](super::join()). For [`Processes::Managed`], the
    /// process manager and its arguments up to the program's, to which the launcher appends `--job`; each process calls
    /// [`LauncherConnection::open`](super::LauncherConnection::open).
    pub command: Vec<OsString>,
    /// Way to start the processes.
    pub processes: Processes,
    /// Environment variables for the processes, in addition to the launcher's.
    pub environment: Vec<(OsString, OsString)>,
    /// Settings shared by all ranks.
    pub settings: RankSettings,
    /// Opaque description of the program to run, passed to each rank.
    pub program: Vec<u8>,
    /// Parent of the job's directory in memory.
    pub shm_root: PathBuf,
    /// Parent of the job's directory on disk.
    pub checkpoint_root: PathBuf,
    /// Destination directory for the ranks' stores; they are removed if `None`.
    ///
    /// The stores, `rank-0` and so on, are moved there at the end, unless the job was interrupted. It must be a private
    /// directory on the file system of `checkpoint_root`.
    pub keep_stores: Option<PathBuf>,
    /// Planned kills.
    pub kills: Vec<Kill>,
    /// Power cuts.
    ///
    /// In each of these iterations of rank 0 the launcher kills all ranks at once, discards their shared memory, and
    /// starts all again from disk.
    pub power_cuts: Vec<u64>,
    /// Coordinator losses.
    ///
    /// In each of these iterations of rank 0, the rule's coordinator is replaced by one without its state, as if its
    /// process had been killed.
    pub coordinator_losses: Vec<u64>,
    /// Seed for kill delays within an iteration.
    pub seed: u64,
    /// Limit on a rank's unplanned deaths, and on [stalls](super::StallReport); the job fails above it.
    pub deaths_max: u32,
    /// Longest wait for a started process's hello.
    ///
    /// Managed processes are then all started again: an MPI may hang at its start, or not tell the living about a
    /// death.
    pub start_wait_max: Duration,
    /// Longest time from the detection of a rank's loss until all others have saved their states and exited, under a
    /// rule that starts the job again.
    ///
    /// Ranks that haven't by then are ended, and lost, too.
    pub save_wait_max: Duration,
    /// Longest run time for the job; unlimited if `None`.
    pub wall_max: Option<Duration>,
}

impl JobOptions {
    /// Returns the defaults for a job with `ranks` ranks running `command`.
    pub fn new(command: Vec<OsString>, ranks: u32) -> JobOptions {
        JobOptions {
            command,
            processes: Processes::Started,
            environment: Vec::new(),
            settings: RankSettings::new(ranks),
            program: Vec::new(),
            shm_root: default_shm_root(),
            checkpoint_root: default_checkpoint_root(),
            keep_stores: None,
            kills: Vec::new(),
            power_cuts: Vec::new(),
            coordinator_losses: Vec::new(),
            seed: 0,
            deaths_max: 8,
            start_wait_max: Duration::from_secs(30),
            save_wait_max: Duration::from_secs(60),
            wall_max: None,
        }
    }

    /// Maximum number of ranks in a job.
    ///
    /// All are processes on this machine, each with a connection to every other.
    pub const RANKS_MAX: u32 = 1024;

    /// Checks the number of ranks, and that planned kills name existing ranks.
    ///
    /// # Errors
    /// [`LaunchError::NoRanks`], [`LaunchError::TooManyRanks`], [`LaunchError::NoSuchRank`].
    pub fn validate(&self) -> Result<(), LaunchError> {
        let ranks = self.settings.ranks;
        if ranks == 0 {
            return Err(LaunchError::NoRanks);
        }
        if ranks > Self::RANKS_MAX {
            return Err(LaunchError::TooManyRanks { ranks });
        }
        for &kill in &self.kills {
            let other = match kill.at {
                KillPoint::RepairOf(other) | KillPoint::RecoveryOf(other) => other,
                KillPoint::Iteration(_) | KillPoint::Call(..) | KillPoint::Event(_) | KillPoint::PowerCut(_) => 0,
            };
            if let Some(rank) = [kill.rank, other].into_iter().find(|&rank| rank >= ranks) {
                return Err(LaunchError::NoSuchRank { kill, rank, ranks });
            }
        }
        Ok(())
    }
}

//! Options of a launcher.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::job::{default_checkpoint_root, default_shm_root};
use super::kills::{Kill, KillPoint};
use super::report::LaunchError;
use crate::settings::RankSettings;

/// How the processes of a job are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// The launcher starts each, and starts a new one in place of a dead one.
    Started,
    /// One command, the process manager of an MPI, starts all. Among them are `spares` processes that take the places
    /// of dead ones.
    Managed {
        /// Number of spare processes.
        spares: u32,
        /// Processes outlive the death of another one. Otherwise the launcher ends all and starts the command again,
        /// and every rank goes on from its last checkpoint.
        outlive_failures: bool,
    },
}

/// Job to launch.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// For [`Processes::Started`], the program of a rank and its first arguments: the launcher appends `--job`,
    /// `--rank`, `--incarnation` and `--launcher`, and the program calls [`join`](super::join()). For
    /// [`Processes::Managed`], the process manager and its arguments up to those of the program, to which the launcher
    /// appends `--job`; each process calls [`LauncherConnection::open`](super::LauncherConnection::open).
    pub command: Vec<OsString>,
    /// How the processes are started.
    pub processes: Processes,
    /// Environment variables of the processes, in addition to the launcher's.
    pub environment: Vec<(OsString, OsString)>,
    /// Settings that all ranks share.
    pub settings: RankSettings,
    /// Opaque description of the program to run, passed to each rank.
    pub program: Vec<u8>,
    /// Parent of the job's directory in memory.
    pub shm_root: PathBuf,
    /// Parent of the job's directory on disk.
    pub checkpoint_root: PathBuf,
    /// Directory to which the ranks' stores, `rank-0` and so on, are moved at the end, unless the job was interrupted:
    /// a private directory on the file system of `checkpoint_root`. They are removed if `None`.
    pub keep_stores: Option<PathBuf>,
    /// Planned kills.
    pub kills: Vec<Kill>,
    /// Power cuts: in each of these iterations of rank 0 the launcher kills all ranks at once, discards their shared
    /// memory, and starts all again from disk.
    pub power_cuts: Vec<u64>,
    /// In each of these iterations of rank 0, the coordinator of the rule is replaced by one that knows nothing of it,
    /// as if its process had been killed.
    pub coordinator_losses: Vec<u64>,
    /// Seed of the delays of kills within an iteration.
    pub seed: u64,
    /// Limit on unplanned deaths of a rank, and on [stalls](super::StallReport); the job fails above it.
    pub deaths_max: u32,
    /// Longest wait for the hello of a started process. The processes of a process manager are then all started again:
    /// an MPI may hang at its start, or not tell the living of a death.
    pub start_wait_max: Duration,
    /// Longest time from the notice that a rank is lost until all others have saved their states and exited, under a
    /// rule that starts the job again. Those that haven't are ended, and lost, too.
    pub save_wait_max: Duration,
    /// Longest run time of the job; unlimited if `None`.
    pub wall_max: Option<Duration>,
}

impl JobOptions {
    /// Returns the defaults for a job of `ranks` ranks that run `command`.
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

    /// Most ranks of a job: all are processes of this machine, each with a connection to every other.
    pub const RANKS_MAX: u32 = 1024;

    /// Checks the number of ranks, and that the ranks of planned kills exist.
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

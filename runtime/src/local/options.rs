//! What can be asked of a launcher.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::job::{default_checkpoint_root, default_shm_root};
use super::kills::{Kill, KillPoint};
use super::report::LaunchError;
use crate::settings::RankSettings;

/// A job to launch.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// The program that is a rank, and its first arguments. It is started with `--job`, `--rank`, `--incarnation` and
    /// `--launcher` after them, and calls [`join`](super::join()).
    pub command: Vec<OsString>,
    /// What the ranks share.
    pub settings: RankSettings,
    /// What the ranks are to run: handed to each as it is.
    pub program: Vec<u8>,
    /// Where the directory in memory goes.
    pub shm_root: PathBuf,
    /// Where the directory on disk goes.
    pub checkpoint_root: PathBuf,
    /// Where the ranks' stores, `rank-0` and so on, are moved at the end, however the job ends: a private directory on the file
    /// system of `checkpoint_root`. They are removed if `None`.
    pub keep_stores: Option<PathBuf>,
    /// Whom to kill, and when.
    pub kills: Vec<Kill>,
    /// Power cuts: in each of these iterations of rank 0 all ranks are killed at once, what they had in memory is
    /// discarded, and all are started again from what is on disk.
    pub power_cuts: Vec<u64>,
    /// Where in an iteration the kills strike.
    pub seed: u64,
    /// How often a rank may die without having been asked to before the job is given up.
    pub deaths_max: u32,
    /// Longest wait for a started process to say hello.
    pub start_wait_max: Duration,
    /// Longest the whole job may take; for ever if `None`.
    pub wall_max: Option<Duration>,
}

impl JobOptions {
    /// The defaults for a job of `ranks` ranks that run `command`.
    pub fn new(command: Vec<OsString>, ranks: u32) -> JobOptions {
        JobOptions {
            command,
            settings: RankSettings::new(ranks),
            program: Vec::new(),
            shm_root: default_shm_root(),
            checkpoint_root: default_checkpoint_root(),
            keep_stores: None,
            kills: Vec::new(),
            power_cuts: Vec::new(),
            seed: 0,
            deaths_max: 8,
            start_wait_max: Duration::from_secs(30),
            wall_max: None,
        }
    }

    /// The most ranks of a job: all are processes of this machine, each with a connection to every other.
    pub const RANKS_MAX: u32 = 1024;

    /// That there are ranks, not too many, and that those to be killed are among them.
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
            let other = if let KillPoint::RecoveryOf(other) = kill.at { other } else { 0 };
            if let Some(rank) = [kill.rank, other].into_iter().find(|&rank| rank >= ranks) {
                return Err(LaunchError::NoSuchRank { kill, rank, ranks });
            }
        }
        Ok(())
    }
}

//! Ranks as processes on one machine: launched, connected, killed, replaced, cleaned up, without MPI.
//!
//! A rank is a process with one thread; a launcher starts them from the program's own executable and replaces killed
//! ones. `job` has the private directories, `control` the messages between launcher and ranks, `launcher_connection`
//! the rank's end for them, `sockets` the [`Transport`](crate::transport::Transport) between ranks, `launcher`, `slot`
//! and `supervision` the launcher, `join` the start of a rank, `kills` and `kill_schedule` the planned kills, for which
//! `planned_kills` holds a rank, `coordinator` the process apart from the ranks needed by some rules, `generations` the
//! restarts of a whole job. An MPI job's processes use the same launcher.

mod clean;
mod connection;
mod control;
mod coordinator;
mod descendants;
mod generations;
mod greeting;
mod interrupts;
mod job;
mod join;
mod kill_schedule;
mod kills;
mod launcher;
mod launcher_connection;
mod options;
mod planned_kills;
mod process;
mod report;
mod slot;
mod sockets;
mod supervision;
#[cfg(test)]
pub(crate) mod testing;
mod timeout;

pub use clean::{Cleaned, clean, clean_named};
pub use control::{ControlError, Welcome};
pub use descendants::kill_with_descendants;
pub use interrupts::Interrupts;
pub use job::{
    JOB_NAME_BYTES_MAX, JobDirectory, JobError, JobPaths, SOCKET_PATH_BYTES_MAX, SharedJobDirectory,
    default_checkpoint_root, default_shm_root,
};
pub use join::{JoinError, JoinOptions, LocalEndpoint, RankEndpoint, join, join_under, start};
pub use kills::{Kill, KillPoint, ParseKillError};
pub use launcher::{launch, launch_under};
pub use launcher_connection::LauncherConnection;
pub use options::{JobOptions, Processes};
pub use planned_kills::PlannedKills;
pub use report::{
    DeathReport, JobReport, LaunchError, Observer, PowerCutReport, Progress, RecoveryClock, RecoveryTimes,
    RestartReport, StallReport,
};
pub use sockets::LocalTransport;

//! Supervision of a rank: by the job's launcher, or by all ranks together.

use std::io;

use counterfoil_runtime::local::LauncherConnection;
use counterfoil_runtime::transport::TransportError;

/// Authority over the start and the end of a rank.
#[derive(Debug)]
pub(super) enum Supervisor {
    /// The job's launcher.
    Launcher(LauncherConnection),
    /// All ranks together: for each rank, whether it is done.
    Ranks(Vec<bool>),
}

impl Supervisor {
    /// Returns the launcher, or an error if there is none.
    pub(super) fn launcher(&mut self) -> Result<&mut LauncherConnection, TransportError> {
        match self {
            Supervisor::Launcher(launcher) => Ok(launcher),
            Supervisor::Ranks(_) => Err(no_launcher()),
        }
    }

    /// Records that a rank is done.
    pub(super) fn handle_done(&mut self, rank: u32) {
        if let Supervisor::Ranks(done) = self {
            done[rank as usize] = true;
        }
    }

    /// Records that a rank has another process, which runs the program again.
    pub(super) fn handle_replaced(&mut self, rank: u32) {
        if let Supervisor::Ranks(done) = self {
            done[rank as usize] = false;
        }
    }

    /// Returns `true` if there is no launcher and a rank is done.
    pub(super) fn is_done(&self, rank: u32) -> bool {
        matches!(self, Supervisor::Ranks(done) if done[rank as usize])
    }

    /// Returns `true` if there is no launcher and all ranks are done.
    pub(super) fn are_all_done(&self) -> bool {
        matches!(self, Supervisor::Ranks(done) if done.iter().all(|done| *done))
    }
}

/// Error for what only a launcher can do.
pub(super) fn no_launcher() -> TransportError {
    TransportError::Io { action: "roll a rank back", source: io::Error::other("the job has no launcher") }
}

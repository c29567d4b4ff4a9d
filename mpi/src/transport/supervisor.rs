//! Supervision of a rank: by the job's launcher, or by all ranks together.

use std::io;

use counterfoil::Rank;
use counterfoil_protocols::api::{Coordinator, CoordinatorError, Floor};
use counterfoil_runtime::local::LauncherConnection;
use counterfoil_runtime::transport::{Report, TransportError};

/// Rank whose process runs the rule's coordinator in a job without a launcher.
pub(super) const COORDINATOR_RANK: u32 = 0;

/// Authority over the start and the end of a rank.
#[derive(Debug)]
pub(super) enum Supervisor {
    /// The job's launcher.
    Launcher(LauncherConnection),
    /// All ranks together.
    Ranks {
        /// For each rank: it is done.
        done: Vec<bool>,
        /// The rule's coordinator, on [`COORDINATOR_RANK`].
        coordinator: Option<Box<dyn Coordinator>>,
    },
}

impl Supervisor {
    /// Returns the launcher, or an error if there is none.
    pub(super) fn launcher(&mut self) -> Result<&mut LauncherConnection, TransportError> {
        match self {
            Supervisor::Launcher(launcher) => Ok(launcher),
            Supervisor::Ranks { .. } => Err(no_launcher()),
        }
    }

    /// Records that a rank is done.
    pub(super) fn handle_done(&mut self, rank: u32) {
        if let Supervisor::Ranks { done, .. } = self {
            done[rank as usize] = true;
        }
    }

    /// Records that a rank has another process, which runs the program again.
    pub(super) fn handle_replaced(&mut self, rank: u32) {
        if let Supervisor::Ranks { done, .. } = self {
            done[rank as usize] = false;
        }
    }

    /// Returns `true` if there is no launcher and a rank is done.
    pub(super) fn is_done(&self, rank: u32) -> bool {
        matches!(self, Supervisor::Ranks { done, .. } if done[rank as usize])
    }

    /// Returns `true` if there is no launcher and all ranks are done.
    pub(super) fn are_all_done(&self) -> bool {
        matches!(self, Supervisor::Ranks { done, .. } if done.iter().all(|done| *done))
    }

    /// Returns the coordinator that this process runs.
    fn coordinator(&mut self) -> Option<&mut (dyn Coordinator + 'static)> {
        match self {
            Supervisor::Launcher(_) => None,
            Supervisor::Ranks { coordinator, .. } => coordinator.as_deref_mut(),
        }
    }

    /// Tells the launcher, if there is one, that this process waits for the others in a repair, or has ceased to.
    pub(super) fn report_repair(&mut self, waits: bool) {
        if let Supervisor::Launcher(launcher) = self {
            report_repair(launcher, waits);
        }
    }

    /// Handles a message from a rank to the coordinator.
    pub(super) fn handle_report(&mut self, from: u32, body: &[u8]) -> Result<(), CoordinatorError> {
        self.coordinator().map_or(Ok(()), |coordinator| coordinator.handle_control(Rank(from), body))
    }

    /// Begins a collection if ranks take checkpoints for one only, and none is under way.
    pub(super) fn consider_collection(&mut self) {
        if let Some(coordinator) = self.coordinator()
            && coordinator.makes_checkpoints()
            && !coordinator.is_collecting()
        {
            coordinator.begin_collection(Floor::ByLine);
        }
    }

    /// Returns the next message of the coordinator, and the rank that it is for.
    pub(super) fn poll_order(&mut self) -> Option<(u32, Vec<u8>)> {
        self.coordinator()?.poll_message().map(|(to, body)| (to.0, body))
    }
}

/// Tells the launcher that this process waits for the others in a repair, or has ceased to.
pub(super) fn report_repair(launcher: &mut LauncherConnection, waits: bool) {
    // That the launcher is gone is noticed when its messages are read.
    let _ = launcher.report(Report::Repair { waits });
}

/// Error for what only a launcher can do.
pub(super) fn no_launcher() -> TransportError {
    TransportError::Io { action: "roll a rank back", source: io::Error::other("the job has no launcher") }
}

//! Commit of lines finished by all ranks.
//!
//! The paper has no such process: a rank replaces its last checkpoint once its own part in a line is finished (section
//! 4.3.1), and a failure between two such moments leaves the job without a common line.

use counterfoil_log_core::{Epoch, Rank};

use super::message::Finished;
use crate::agreement::{Agreement, Step};
use crate::api::{Coordinator, CoordinatorError};

/// Line coordinator.
#[derive(Debug)]
pub struct LineCoordinator {
    agreement: Agreement<Finished>,
}

impl LineCoordinator {
    /// Creates a coordinator.
    ///
    /// `replaced`: number of earlier ones, at most 65,535.
    pub fn new(ranks: u32, replaced: u32) -> LineCoordinator {
        LineCoordinator { agreement: Agreement::new(ranks, replaced) }
    }

    /// Commits the newest line finished by all ranks.
    fn commit_finished(&mut self) {
        let agreement = &mut self.agreement;
        let by_all = |line: &u32| agreement.statuses().all(|status| status.progress.contains(line));
        let lines = agreement.status(Rank(0)).map(|status| &status.progress[..]).unwrap_or_default();
        let newest = lines.iter().copied().filter(|line| *line > agreement.committed.0).filter(by_all).max();
        if let Some(line) = newest {
            agreement.commit(Epoch(line));
        }
    }
}

impl Coordinator for LineCoordinator {
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
        match self.agreement.handle(from, body)? {
            Step::Nothing | Step::Stopping => {}
            // A known commit implies that all ranks have finished the line, and they keep it.
            Step::Stopped => self.agreement.roll_back(self.agreement.newest()),
            Step::TakenOver | Step::Running => self.commit_finished(),
        }
        Ok(())
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.agreement.poll_message()
    }

    fn is_recovering(&self) -> bool {
        !self.agreement.is_running()
    }

    fn line(&self) -> Option<(u64, &[Option<u32>])> {
        self.agreement.line()
    }
}

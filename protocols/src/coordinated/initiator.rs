//! The initiator (section 3.1): begins lines, commits them, and brings all ranks back to the last when a process dies.

use counterfoil_log_core::{Epoch, Rank};

use super::message::Progress;
use crate::agreement::{Agreement, Order, Status, Step};
use crate::api::{Coordinator, CoordinatorError, Floor};

/// Initiator state machine.
#[derive(Debug)]
pub struct Initiator {
    agreement: Agreement<Progress>,
    /// A line is open.
    open: bool,
    stop_sent: bool,
}

impl Initiator {
    /// Creates an initiator.
    ///
    /// `replaced`: number of earlier ones, at most 65,535.
    pub fn new(ranks: u32, replaced: u32) -> Initiator {
        Initiator { agreement: Agreement::new(ranks, replaced), open: false, stop_sent: false }
    }

    /// Returns the epoch begun by the open line, and the ranks keeping it from being committed.
    ///
    /// A line stays open for ever if a rank reaches no further place for a checkpoint, or never receives a message sent
    /// to it before.
    pub fn open_line(&self) -> Option<(Epoch, Vec<Rank>)> {
        let next = self.next();
        let is_done = |status: &Status<Progress>| status.epoch == next.0 && status.progress == Progress::Stopped;
        let waits_for = |rank: &Rank| !self.agreement.status(*rank).is_some_and(is_done);
        self.open.then(|| (next, (0..self.agreement.ranks).map(Rank).filter(waits_for).collect()))
    }

    fn next(&self) -> Epoch {
        Epoch(self.agreement.committed.0 + 1)
    }

    /// Phase 1.
    fn open_next(&mut self) {
        (self.open, self.stop_sent) = (true, false);
        self.agreement.broadcast(Order::TakeCheckpoint, self.next());
    }

    /// Takes phase 3, or commits the line.
    fn advance(&mut self) {
        let next = self.next();
        let progress = |status: &Status<Progress>| (status.epoch == next.0).then_some(status.progress);
        let least =
            self.agreement.statuses().map(|status| progress(status).unwrap_or_default()).min().unwrap_or_default();
        // A predecessor may have begun it, and been lost before the ranks got its order.
        self.open |= self.agreement.statuses().any(|status| status.epoch == next.0);
        if least >= Progress::Ready && !std::mem::replace(&mut self.stop_sent, true) {
            self.agreement.broadcast(Order::StopLogging, next);
        }
        if least == Progress::Stopped {
            (self.open, self.stop_sent) = (false, false);
            self.agreement.commit(next);
        }
    }
}

impl Coordinator for Initiator {
    fn waits_for(&self) -> Option<String> {
        let (epoch, ranks) = self.open_line().filter(|_| !self.is_recovering())?;
        Some(format!("the line that begins {epoch}, for {ranks:?}"))
    }

    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
        match self.agreement.handle(from, body)? {
            Step::Nothing => {}
            Step::Stopping => (self.open, self.stop_sent) = (false, false),
            Step::Stopped => self.agreement.roll_back(self.agreement.newest()),
            Step::TakenOver => {
                let committed = self.agreement.committed;
                if self.agreement.statuses().any(|status| status.epoch > committed.0) {
                    self.open_next();
                }
                self.advance();
            }
            Step::Running => self.advance(),
        }
        Ok(())
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.agreement.poll_message()
    }

    /// Begins a line (phase 1), unless one is open.
    fn begin_collection(&mut self, _: Floor) -> bool {
        let begins = self.agreement.is_running() && !self.open;
        if begins {
            self.open_next();
            self.advance();
        }
        begins
    }

    fn makes_checkpoints(&self) -> bool {
        true
    }

    fn is_collecting(&self) -> bool {
        self.open
    }

    fn is_recovering(&self) -> bool {
        !self.agreement.is_running()
    }

    fn line(&self) -> Option<(u64, &[Option<u32>])> {
        self.agreement.line()
    }
}

//! Control messages: other ranks' acknowledgements and queries, and this rank's own.

use std::time::Instant;

use counterfoil_mpi_core::MpiError;
use counterfoil_mpi_core::control::Control;
use counterfoil_mpi_logger::{ControlKind, Driver, DriverError, PROGRESS_EVERY, StreamId, progress_weight};

use super::Session;
use crate::say::say;
use crate::{deferred, failed_polls};

/// Records released with one message.
///
/// Another rank may await the answer to it, and would wait for any others released at once.
pub(super) const RELEASE_MAX: usize = 8;

impl Session {
    pub(super) fn driver(&mut self) -> Driver<'_, Control> {
        Driver { logger: &mut self.logger, channel: &mut self.control }
    }

    /// Disables logging if `done`, a [driver](Self::driver) result, is an error.
    pub(super) fn check_driver<T>(&mut self, done: Result<T, DriverError<MpiError>>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(DriverError::Channel(error)) => self.check(Err(error)),
            Err(DriverError::Release(error)) => self.check(Err(error)),
        }
    }

    /// Counts a received message, which has its stream's next number.
    #[inline(always)]
    pub(super) fn count_received(&mut self, peer: u32, stream: StreamId, bytes: usize) {
        self.ledger.received(peer, bytes);
        if self.logger.handle_received(stream, bytes) {
            self.acknowledge(peer);
        }
    }

    #[cold]
    fn acknowledge(&mut self, peer: u32) {
        let acknowledged = self.logger.acknowledge(peer);
        self.check(acknowledged);
        self.flush();
    }

    /// Sends the logger's control messages.
    pub(super) fn flush(&mut self) {
        let sent = self.driver().flush();
        self.check(sent);
    }

    #[inline(always)]
    pub(crate) fn progress_if_due(&mut self, bytes: usize) {
        self.since_progress = self.since_progress.saturating_add(progress_weight(bytes));
        if self.logger.is_releasing() || self.since_progress >= PROGRESS_EVERY {
            self.release_and_progress();
        }
    }

    #[inline(never)]
    fn release_and_progress(&mut self) {
        let records_max = self.release_max();
        let watch = &mut self.watch;
        let released = self.logger.release_some(records_max, |peer, log| watch.released(peer, log));
        self.ledger.show_acknowledged(self.logger.acknowledged());
        self.check(released);
        if self.since_progress >= PROGRESS_EVERY && !self.requests.are_making_comms() {
            self.progress();
        }
    }

    /// Releases all acknowledged records.
    pub(super) fn release_all(&mut self) {
        let watch = &mut self.watch;
        let released = self.logger.release_all(|peer, log| watch.released(peer, log));
        self.ledger.show_acknowledged(self.logger.acknowledged());
        self.check(released);
    }

    /// Handles incoming control messages, and observes the log.
    pub(crate) fn progress(&mut self) {
        self.since_progress = 0;
        self.poll_control();
        if !self.freed_receives.is_empty() {
            self.poll_freed_receives();
        }
        self.observe();
        let has_counted = !self.has_uncounted;
        let queried = self.driver().query_early(has_counted);
        self.check_driver(queried);
        // A rank waiting for news is told at once.
        if self.logger.has_pending_queries() {
            self.since_progress = PROGRESS_EVERY;
        }
    }

    /// Handles incoming control messages, and answers queries.
    pub(super) fn poll_control(&mut self) {
        self.logger.set_failed_polls(failed_polls::count());
        // A polling program isn't waiting: its next call counts.
        let observe = |kind| {
            if kind == ControlKind::ProgressRequest {
                deferred::set_due()
            }
        };
        loop {
            match self.driver().receive(observe) {
                Ok(()) => break,
                Err(DriverError::Release(error)) => self.give_up(&error),
                Err(DriverError::Channel(error)) => {
                    self.give_up(&error);
                    return;
                }
            }
        }
        self.handle_failures();
        let answered = self.logger.answer_queries();
        self.check(answered);
        self.release_without_blocking();
        self.flush();
    }

    /// Releases all acknowledged records at once where a full log waits for no release.
    pub(super) fn release_without_blocking(&mut self) {
        if self.logger.is_releasing() && self.release_max() == usize::MAX {
            self.release_all();
        }
    }

    /// Handles control messages while the program waits in an MPI call.
    pub(crate) fn poll_in_call(&mut self) {
        self.count_early_if_queried();
        self.poll_control();
        self.release_all();
    }

    /// Searches for receives completed by MPI, if a sender waits for space.
    pub(crate) fn count_early_if_queried(&mut self) {
        if self.logger.has_pending_queries() {
            self.count_early();
        }
    }

    /// Handles failed ranks.
    fn handle_failures(&mut self) {
        for failed in self.control.failures.poll() {
            let handled = self.logger.handle_peer_failed(failed, Instant::now());
            self.check(handled);
            // The lowest living rank speaks for all.
            if (0..self.rank()).all(|rank| self.control.failures.has_failed(rank)) {
                say(format_args!(
                    "rank {failed} has failed, as MPI says; the others go on being logged and acknowledged"
                ));
            }
        }
    }

    /// Waits until all living ranks have come here, and handles the messages of the others.
    pub(super) fn meet_all(&mut self) -> Result<(), MpiError> {
        let mut barrier = self.control.begin_barrier()?;
        while !self.control.has_ended(&mut barrier)? {
            self.progress();
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Receives acknowledgements under way.
    ///
    /// All living ranks have [met](Self::meet_all).
    pub(super) fn drain(&mut self) -> Result<(), MpiError> {
        match self.driver().drain() {
            Err(DriverError::Channel(error)) => Err(error),
            Err(DriverError::Release(error)) => {
                self.give_up(&error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

//! The wait for space in a full log.

use std::time::{Duration, Instant};

use counterfoil::{AppendError, Claim, OnFull, Rank};
use counterfoil_mpi_logger::{Driver, SpaceAttempt, SpaceError, SpacePoll, SpaceRefusal};
use counterfoil_profile::RecordTag;

use super::Session;
use super::ledger::Gap;
use crate::say::say;

/// The log is full.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FullError {
    /// The send fails, as configured.
    #[error("{}", .0.0)]
    Refused(Box<Reason>),
    /// Other threads of this process may have to free space first: only where the session [may be
    /// left](Session::may_leave).
    #[error("waiting for space")]
    Later,
}

/// Refusal of the log.
#[derive(Debug)]
pub(crate) struct Reason(String);

impl Session {
    /// Claims a record, waiting for space as configured; `None` once logging is off.
    pub(super) fn claim(&mut self, peer: u32, bytes: usize) -> Result<Option<Claim<'_>>, FullError> {
        if let Some(log) = self.logger.log_mut()
            && let Err(refused) = log.claim(Rank(peer), RecordTag::LEN, bytes).map(std::mem::forget)
        {
            self.wait_for_space(peer, bytes, *refused)?;
        }
        match self.logger.log_mut() {
            Some(log) => Ok(log.claim(Rank(peer), RecordTag::LEN, bytes).ok()),
            None => Ok(None),
        }
    }

    /// Waits until a record with a payload of `bytes` bytes can be claimed, as configured, or gives up logging.
    #[cold]
    pub(super) fn wait_for_space(
        &mut self,
        peer: u32,
        bytes: usize,
        mut refused: AppendError,
    ) -> Result<(), FullError> {
        if !self.logger.is_waiting() {
            // Other ranks may wait for news of deferred receives.
            self.catch_up();
            self.logger.begin_wait(Instant::now());
        }
        let found = loop {
            match self.find_space(peer, bytes, &refused) {
                Ok(Some(still)) if self.logger.log().is_some() => refused = still,
                done => break done.map(|_| ()),
            }
            self.ledger.show_wait(self.logger.waited(Instant::now()));
            if self.may_leave {
                return Err(FullError::Later);
            }
            std::thread::yield_now();
        };
        self.ledger.waited += self.logger.end_wait(Instant::now());
        self.ledger.show_wait(Duration::ZERO);
        found
    }

    /// Makes one iteration of the wait; returns the refusal if space is still lacking.
    fn find_space(&mut self, peer: u32, bytes: usize, refused: &AppendError) -> Result<Option<AppendError>, FullError> {
        if self.logger.is_releasing() {
            self.release_all();
            if self.logger.check_space(peer, bytes).is_ok() {
                return Ok(None);
            }
        }
        // A record longer than the log finds no space either, and no wait would help.
        let is_full =
            matches!(refused, AppendError::Full(_) | AppendError::DiskRefused(_) | AppendError::TooLong { .. });
        match self.settings.on_full {
            OnFull::Fail if is_full => return Err(FullError::Refused(Box::new(Reason(refused.to_string())))),
            OnFull::StopLogging if is_full => {
                self.stop_logging(refused);
                return Ok(None);
            }
            _ => {}
        }
        let begun = self.driver().begin_attempt(refused);
        match self.check_driver(begun) {
            Some(SpaceRefusal::Final) if matches!(refused, AppendError::Full(_)) => {
                self.give_up(&format_args!("{refused}, everything is kept in memory, and no wait frees space"));
                return Ok(None);
            }
            Some(SpaceRefusal::Final) if matches!(refused, AppendError::DiskRefused(_)) => {
                self.give_up(&format_args!("{refused}, and everything is kept. COUNTERFOIL_DISK_BUDGET gives it more"));
                return Ok(None);
            }
            Some(SpaceRefusal::Final) => {
                self.give_up(refused);
                return Ok(None);
            }
            Some(SpaceRefusal::Peers | SpaceRefusal::Disk) | None => {}
        }
        if !self.logger.can_others_free_space() {
            self.count_early_at = Instant::now();
        }
        self.count_early();
        self.progress();
        match self.end_attempt(peer, bytes) {
            None | Some(SpacePoll::Ready) => Ok(None),
            Some(SpacePoll::Pending { refused, is_long }) => {
                if is_long {
                    self.say_that_it_waits(&refused);
                }
                Ok(Some(*refused))
            }
            Some(SpacePoll::Never(error)) => {
                let advice = match error {
                    SpaceError::Alone { .. } => "",
                    SpaceError::Deadlock { .. } => ", COUNTERFOIL_DEADLOCK_AFTER gives the others more time",
                };
                self.give_up(&format_args!("{error}. COUNTERFOIL_BUDGET gives it more{advice}"));
                Ok(None)
            }
        }
    }

    fn end_attempt(&mut self, peer: u32, bytes: usize) -> Option<SpacePoll> {
        let watch = &mut self.watch;
        let mut driver = Driver { logger: &mut self.logger, channel: &mut self.control };
        let ended = driver.end_attempt(peer, bytes, |peer, log| watch.released(peer, log));
        self.ledger.show_acknowledged(self.logger.acknowledged());
        let SpaceAttempt { poll, discarded } = self.check_driver(ended)?;
        if discarded > 0 {
            self.note_gap(Gap::Discarded);
        }
        Some(poll)
    }

    fn say_that_it_waits(&mut self, refused: &AppendError) {
        if std::mem::replace(&mut self.ledger.has_said_that_it_waits, true) {
            return;
        }
        let advice = match refused {
            AppendError::DiskRefused(_) => "It goes on as soon as there is",
            _ => "COUNTERFOIL_BUDGET gives it more",
        };
        say(format_args!("waits for space in its log: {refused}. {advice}"));
    }
}

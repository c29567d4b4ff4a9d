//! The wait for space in a full log.

use std::time::{Duration, Instant};

use counterfoil::{AppendError, Keep, Rank, StoreError, Tier};
use counterfoil_profile::RecordTag;

use super::Logger;
use crate::acks::ReleaseError;
use crate::backpressure::SpaceWait;
use crate::control::ControlKind;
use crate::deadlock::DeadlockStep;

/// Condition of a wait for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceRefusal {
    /// Other ranks' acknowledgements, or operations to be ended by them.
    Peers,
    /// The lagging disk.
    Disk,
    /// Nothing: no wait frees space.
    Final,
}

/// Outcome of an attempt to find space.
#[derive(Debug)]
pub enum SpacePoll {
    /// There is space, or logging is disabled.
    Ready,
    /// There is none yet.
    Pending {
        /// The log's refusal.
        refused: Box<AppendError>,
        /// True once the wait is long enough to tell the user.
        is_long: bool,
    },
    /// There will be none.
    Never(SpaceError),
}

/// Reason that no space can become free.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    /// All ranks wait, for each other or for this one.
    ///
    /// Only the lowest rank waiting for space gets this error: if it goes on, others may find space.
    #[error(
        "{refused}, and no rank will free space: for {} s all ranks have been waiting in MPI calls or for space in their logs",
        after.as_secs()
    )]
    Deadlock {
        /// The log's refusal.
        refused: Box<AppendError>,
        /// Time without activity on any rank.
        after: Duration,
    },
    /// Every other rank has received everything and ended the same operations.
    #[error("{refused}, and only the program itself could free space")]
    Alone {
        /// The log's refusal.
        refused: Box<AppendError>,
    },
}

impl Logger {
    /// Returns the condition of a wait after this refusal.
    pub fn wait_for(&self, refused: &AppendError) -> SpaceRefusal {
        // Acknowledged records aren't released either.
        let keeps_all = |is_in_memory: bool| {
            self.log().map(counterfoil::Log::options).is_some_and(|options| {
                options.keep != Keep::Acked
                    && !options.stops_logging
                    && is_in_memory == (options.tier != Tier::NodeLocal)
            })
        };
        match refused {
            AppendError::Full(_) if keeps_all(true) => SpaceRefusal::Final,
            // A full disk may get space; a used-up budget never does.
            AppendError::DiskRefused(refused)
                if matches!(*refused.source, StoreError::Budget { .. }) && keeps_all(false) =>
            {
                SpaceRefusal::Final
            }
            AppendError::Full(_) | AppendError::DiskRefused(_) => SpaceRefusal::Peers,
            AppendError::SpillBehind(_) => SpaceRefusal::Disk,
            _ => SpaceRefusal::Final,
        }
    }

    /// Returns `true` while this rank waits for space.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Begins a wait for space, or continues the current one.
    pub fn begin_wait(&mut self, now: Instant) {
        if self.wait.is_none() {
            self.wait = Some(SpaceWait::begin(now));
            self.detector.begin();
        }
    }

    /// Returns the wait's duration so far.
    pub fn waited(&self, now: Instant) -> Duration {
        self.wait.map_or(Duration::ZERO, |wait| wait.waited(now))
    }

    /// Ends the wait and returns its duration.
    pub fn end_wait(&mut self, now: Instant) -> Duration {
        self.wait.take().map_or(Duration::ZERO, |wait| wait.waited(now))
    }

    /// Sets the time without any activity in the job after which a wait for space is given up.
    pub fn set_deadlock_after(&mut self, after: Duration) {
        self.detector.set_after(after);
    }

    /// Returns `true` if a wait for space may last any time at all.
    pub fn may_wait(&self) -> bool {
        self.detector.may_wait()
    }

    /// Checks that the log accepts a record with `bytes` bytes of payload to `peer`.
    ///
    /// # Errors
    /// The refusal.
    pub fn check_space(&mut self, peer: u32, bytes: usize) -> Result<(), Box<AppendError>> {
        let Some(log) = self.log_mut() else { return Ok(()) };
        // The claim leaves no trace: it is made again when the message leaves. Dropped, it would leave a pad.
        log.try_claim(Rank(peer), RecordTag::LEN, bytes).map(std::mem::forget)
    }

    /// Returns `true` if another rank or thread could free space; otherwise only this thread could, by its receives
    /// from itself.
    pub fn can_others_free_space(&self) -> bool {
        // Another thread may receive this rank's messages to itself.
        self.is_multithreaded || self.queries.can_others_free_space(self.log())
    }

    /// Makes an attempt to find space, after control messages were handled and acknowledged records released.
    ///
    /// Sends requests to the other ranks once the wait is long.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn poll_space(&mut self, peer: u32, bytes: usize, now: Instant) -> Result<SpacePoll, ReleaseError> {
        self.sender.close_cursors();
        let Err(refused) = self.check_space(peer, bytes) else { return Ok(SpacePoll::Ready) };
        let Some(mut wait) = self.wait else { return Ok(SpacePoll::Pending { refused, is_long: false }) };
        let is_long = wait.is_long(now);
        if matches!(*refused, AppendError::Full(_)) {
            self.update_open_comms()?;
            if wait.is_futile(self.can_others_free_space()) {
                return Ok(SpacePoll::Never(SpaceError::Alone { refused }));
            }
            self.wait = Some(wait);
            if is_long {
                match self.detector.step(now, self.state()) {
                    DeadlockStep::Wait => {}
                    DeadlockStep::GiveUp(after) => {
                        return Ok(SpacePoll::Never(SpaceError::Deadlock { refused, after }));
                    }
                    DeadlockStep::Request(request) => {
                        self.send_to_others(ControlKind::ProgressRequest, &request.encode());
                    }
                }
            }
        }
        Ok(SpacePoll::Pending { refused, is_long })
    }
}

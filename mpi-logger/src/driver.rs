//! Common steps of a logger's drivers: carrying control messages over a channel, and waiting for log space.

use std::time::Instant;

use counterfoil::{AppendError, Log};

use crate::acks::ReleaseError;
use crate::control::{ControlKind, ControlMessage, ReceivedControl};
use crate::logger::{Logger, SpacePoll, SpaceRefusal};

/// Messages logged or received between two progress steps of a driver.
pub const PROGRESS_EVERY: u32 = 64;
/// Bytes counted as one more message.
const PROGRESS_BYTES: usize = (256 << 10) / PROGRESS_EVERY as usize;

/// Returns the weight of a message with `bytes` bytes towards [`PROGRESS_EVERY`].
#[inline(always)]
pub fn progress_weight(bytes: usize) -> u32 {
    1 + u32::try_from(bytes / PROGRESS_BYTES).unwrap_or(PROGRESS_EVERY).min(PROGRESS_EVERY)
}

/// Control message channel between all ranks of a job.
///
/// It keeps the order between two ranks.
pub trait ControlChannel {
    /// Channel failure.
    type Error;

    /// Begins to send a message.
    ///
    /// # Errors
    /// [`Self::Error`].
    fn send(&mut self, message: &ControlMessage) -> Result<(), Self::Error>;

    /// Receives an arrived message, if any.
    ///
    /// # Errors
    /// [`Self::Error`].
    fn poll(&mut self) -> Result<Option<ReceivedControl>, Self::Error>;

    /// Receives the acknowledgements in flight, once all ranks have met at the end.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`Self::Error`].
    fn drain(&mut self) -> Result<Vec<ReceivedControl>, Self::Error>;

    /// Polls more often for a while: another rank waits for this one.
    fn be_eager(&mut self);
}

/// Driver failure.
#[derive(Debug)]
pub enum DriverError<E> {
    /// The channel failed.
    Channel(E),
    /// An acknowledgement can't be applied.
    Release(ReleaseError),
}

impl<E> From<ReleaseError> for DriverError<E> {
    fn from(error: ReleaseError) -> DriverError<E> {
        DriverError::Release(error)
    }
}

/// Outcome of an attempt to find space.
#[derive(Debug)]
pub struct SpaceAttempt {
    /// The log's state.
    pub poll: SpacePoll,
    /// Discarded unacknowledged records to failed ranks.
    pub discarded: u64,
}

/// A logger and the channel that carries its control messages.
///
/// Each driver has its own schedule and error handling. So this borrows the two, and its methods are the steps common
/// to all drivers.
#[derive(Debug)]
pub struct Driver<'a, C> {
    /// The logger.
    pub logger: &'a mut Logger,
    /// Channel of its control messages.
    pub channel: &'a mut C,
}

impl<C: ControlChannel> Driver<'_, C> {
    /// Sends the logger's control messages.
    ///
    /// # Errors
    /// [`ControlChannel::Error`].
    #[inline]
    pub fn flush(&mut self) -> Result<(), C::Error> {
        while let Some(message) = self.logger.poll_control() {
            self.channel.send(&message)?;
        }
        Ok(())
    }

    /// Handles the arrived control messages, after passing each kind to `observe`.
    ///
    /// Afterwards the driver calls [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`DriverError`]. After [`DriverError::Release`] it may be called again, for the remaining messages.
    #[inline]
    pub fn receive(&mut self, mut observe: impl FnMut(ControlKind)) -> Result<(), DriverError<C::Error>> {
        while let Some(ReceivedControl { kind, from, bytes }) = self.channel.poll().map_err(DriverError::Channel)? {
            if matches!(kind, ControlKind::Query | ControlKind::ProgressRequest) {
                self.channel.be_eager();
            }
            observe(kind);
            self.logger.handle_control(from, kind, &bytes, Instant::now())?;
        }
        Ok(())
    }

    /// Queries ranks for their acknowledgements if this rank waits for them, or keeps so much that it soon will.
    ///
    /// `check` compares acknowledged counts with the messages sent, where all departed messages are counted.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn query_early(&mut self, check: bool) -> Result<(), DriverError<C::Error>> {
        if check {
            self.logger.check_counts()?;
        }
        self.logger.query_early()?;
        self.flush().map_err(DriverError::Channel)
    }

    /// Begins an attempt to find space, after the log has refused a record: queries the ranks able to free some, if it
    /// is up to them.
    ///
    /// Returns the wait's condition.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn begin_attempt(&mut self, refused: &AppendError) -> Result<SpaceRefusal, DriverError<C::Error>> {
        let refusal = self.logger.wait_for(refused);
        if refusal == SpaceRefusal::Peers {
            self.logger.query_for_space()?;
            self.flush().map_err(DriverError::Channel)?;
        }
        Ok(refusal)
    }

    /// Ends an attempt, after control messages were handled: releases acknowledged records and records to failed ranks,
    /// and looks for space.
    ///
    /// Calls `released` with each receiver that has acknowledged any records.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn end_attempt(
        &mut self,
        peer: u32,
        bytes: usize,
        released: impl FnMut(u32, &Log),
    ) -> Result<SpaceAttempt, DriverError<C::Error>> {
        let own = self.logger.rank();
        self.logger.acknowledge(own)?;
        self.logger.release_all(released)?;
        let discarded = self.logger.discard_for_failed()?;
        let poll = self.logger.poll_space(peer, bytes, Instant::now())?;
        self.flush().map_err(DriverError::Channel)?;
        Ok(SpaceAttempt { poll, discarded })
    }

    /// Handles the acknowledgements in flight, once all ranks have met at the end.
    ///
    /// Collective.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn drain(&mut self) -> Result<(), DriverError<C::Error>> {
        for ReceivedControl { kind, from, bytes } in self.channel.drain().map_err(DriverError::Channel)? {
            self.logger.handle_control(from, kind, &bytes, Instant::now())?;
        }
        Ok(())
    }
}

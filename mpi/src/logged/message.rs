//! Matched messages.

use counterfoil_mpi_core::envelope::Envelope;
use zerocopy::{FromBytes, IntoBytes};

use super::carrier::MatchedMessage;
use super::communicator::LoggedCommunicator;
use super::elements::{check_elements, elements};
use super::error::LoggedError;
use super::pending::{Borrowed, LocalScope, Pending};
use super::request::{ReceiveGuard, ReceiveIntoRequest};

/// A matched message: no other call can receive it.
///
/// Dropping it receives and discards the message.
#[derive(Debug)]
#[must_use = "a matched message has to be received: no other call can"]
pub struct LoggedMessage {
    /// `None` once the message is received.
    matched: Option<Box<dyn MatchedMessage>>,
    envelope: Envelope,
    /// `None` once a request owns it.
    guard: Option<ReceiveGuard>,
    comm: LoggedCommunicator,
}

impl LoggedMessage {
    pub(super) fn new(
        matched: Box<dyn MatchedMessage>,
        envelope: Envelope,
        comm: &LoggedCommunicator,
    ) -> LoggedMessage {
        // The probe that matched the message has recorded the outcome of its wildcards.
        let guard = ReceiveGuard::new(&comm.carrier, Some(envelope.source), Some(envelope.tag), false);
        LoggedMessage { matched: Some(matched), envelope, guard: Some(guard), comm: comm.clone() }
    }

    /// Returns source, tag and length.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn receive_bytes(mut self, bytes: &mut [u8]) -> Result<Envelope, LoggedError> {
        let (Some(matched), Some(mut guard)) = (self.matched.take(), self.guard.take()) else {
            return Err(LoggedError::Cancelled);
        };
        guard.end_by(matched.receive(bytes)?)
    }

    /// Receives the message as one element.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], with class `MPI_ERR_TRUNCATE`, for a longer message; [`LoggedError::Elements`] for a
    /// shorter one. The message is lost.
    pub fn matched_receive<T: FromBytes + IntoBytes>(self) -> Result<(T, Envelope), LoggedError> {
        let mut element = T::new_zeroed();
        let envelope = self.receive_bytes(element.as_mut_bytes())?;
        check_elements::<T>(envelope, Some(1))?;
        Ok((element, envelope))
    }

    /// Receives the message into `buf`, which is at least as long.
    ///
    /// The rest of `buf` is left unchanged.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], with class `MPI_ERR_TRUNCATE`, for a longer message; its end is lost.
    pub fn matched_receive_into<B: FromBytes + IntoBytes + ?Sized>(self, buf: &mut B) -> Result<Envelope, LoggedError> {
        self.receive_bytes(buf.as_mut_bytes())
    }

    /// Receives the message as any number of elements.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Elements`] if its length isn't a multiple of an element's; the message is
    /// lost.
    pub fn matched_receive_vec<T: FromBytes + IntoBytes + Clone>(self) -> Result<(Vec<T>, Envelope), LoggedError> {
        let mut bytes = vec![0; self.envelope.len];
        let envelope = self.receive_bytes(&mut bytes)?;
        Ok((elements(envelope, &bytes)?, envelope))
    }

    /// Begins to receive the message into `buf`, which is at least as long.
    ///
    /// The rest of `buf` is left unchanged.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn immediate_matched_receive_into<'a, B: FromBytes + IntoBytes + ?Sized>(
        mut self,
        scope: &LocalScope<'a>,
        buf: &'a mut B,
    ) -> Result<ReceiveIntoRequest<'a, B>, LoggedError> {
        let (Some(matched), Some(guard)) = (self.matched.take(), self.guard.take()) else {
            return Err(LoggedError::Cancelled);
        };
        let borrowed = Borrowed::receiving(scope, buf, |memory| {
            // SAFETY: `receiving` passes memory used only by the operation until it is complete.
            let operation = unsafe { matched.begin_receive_into(memory)? };
            Ok(Pending::new(operation, &self.comm.carrier))
        })?;
        Ok(ReceiveIntoRequest::new(borrowed, guard))
    }
}

impl Drop for LoggedMessage {
    fn drop(&mut self) {
        if let (Some(matched), Some(mut guard)) = (self.matched.take(), self.guard.take()) {
            matched.discard();
            // A destructor returns no error; the next call on the communicator does.
            let _ = guard.end(Some(self.envelope));
        }
    }
}

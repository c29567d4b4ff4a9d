//! Matched messages.

use counterfoil_runtime::communicator as runtime;
use zerocopy::{FromBytes, IntoBytes};

use super::communicator::{LoggedCommunicator, Port};
use super::error::LoggedError;
use super::request::{ReceiveGuard, ReceiveIntoRequest, elements};
use super::source::check_elements;
use crate::comm::Matched;
use crate::error::OperationError;
use crate::point_to_point::Envelope;
use crate::recovering::Context;
use crate::request::{Borrowed, LocalScope};

/// Carrier's handle of a matched message.
#[derive(Debug)]
enum Handle {
    Mpi(Matched),
    Recovering(runtime::Request),
}

/// A matched message, which no other call can receive. Dropping it receives and discards the message.
#[derive(Debug)]
#[must_use = "a matched message has to be received: no other call can"]
pub struct LoggedMessage {
    /// `None` once the message is received.
    matched: Option<Handle>,
    envelope: Envelope,
    /// `None` once a request owns it.
    guard: Option<ReceiveGuard>,
    comm: LoggedCommunicator,
}

impl LoggedMessage {
    pub(super) fn of_mpi(matched: Matched, comm: &LoggedCommunicator) -> LoggedMessage {
        let envelope = Envelope { source: matched.source, tag: matched.tag, len: matched.len };
        LoggedMessage::new(Handle::Mpi(matched), envelope, comm)
    }

    /// Matches a message that was probed.
    pub(super) fn of_context(
        found: Envelope,
        context: &Context,
        comm: &LoggedCommunicator,
    ) -> Result<LoggedMessage, LoggedError> {
        let request = context.match_probed(found)?;
        Ok(LoggedMessage::new(Handle::Recovering(request), found, comm))
    }

    fn new(matched: Handle, envelope: Envelope, comm: &LoggedCommunicator) -> LoggedMessage {
        // The probe that matched the message has recorded the outcome of its wildcards.
        let guard = ReceiveGuard::new(comm, Some(envelope.source), Some(envelope.tag), false);
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
        match (matched, self.comm.port()) {
            (Handle::Mpi(matched), _) => {
                let (envelope, received) = matched.receive_into(bytes)?;
                guard.end(Some(envelope))?;
                received?;
                Ok(envelope)
            }
            (Handle::Recovering(request), Port::Recovering(context)) => context.take(request, bytes)?.into_envelope(),
            (Handle::Recovering(_), Port::Mpi(_)) => Err(OperationError::Mixed.into()),
        }
    }

    /// Receives the message as one element.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE`, for a longer message; [`LoggedError::Elements`] for a shorter one. The message is
    /// lost.
    pub fn matched_receive<T: FromBytes + IntoBytes>(self) -> Result<(T, Envelope), LoggedError> {
        let mut element = T::new_zeroed();
        let envelope = self.receive_bytes(element.as_mut_bytes())?;
        check_elements::<T>(envelope, Some(1))?;
        Ok((element, envelope))
    }

    /// Receives the message into `buf`, which is at least as long. The rest of `buf` is left unchanged.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE`, for a longer message, whose end is lost.
    pub fn matched_receive_into<B: FromBytes + IntoBytes + ?Sized>(self, buf: &mut B) -> Result<Envelope, LoggedError> {
        self.receive_bytes(buf.as_mut_bytes())
    }

    /// Receives the message as any number of elements.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Elements`] if its length is no multiple of an element's; the message is lost.
    pub fn matched_receive_vec<T: FromBytes + IntoBytes + Clone>(self) -> Result<(Vec<T>, Envelope), LoggedError> {
        let mut bytes = vec![0; self.envelope.len];
        let envelope = self.receive_bytes(&mut bytes)?;
        Ok((elements(envelope, &bytes)?, envelope))
    }

    /// Begins to receive the message into `buf`, which is at least as long. The rest of `buf` is left unchanged.
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
        let borrowed = match (matched, self.comm.port()) {
            (Handle::Mpi(matched), Port::Mpi(recorded)) => recorded.comm.imrecv_into(scope, matched, buf)?,
            (Handle::Recovering(request), Port::Recovering(context)) => {
                Borrowed::receiving(scope, buf, |store| Ok(context.operation_of(request, store)))?
            }
            (Handle::Mpi(_), Port::Recovering(_)) | (Handle::Recovering(_), Port::Mpi(_)) => {
                return Err(OperationError::Mixed.into());
            }
        };
        Ok(ReceiveIntoRequest::new(borrowed, guard))
    }
}

impl Drop for LoggedMessage {
    fn drop(&mut self) {
        if let (Some(matched), Some(mut guard)) = (self.matched.take(), self.guard.take()) {
            // A destructor returns no error; the next call on the communicator does.
            match (matched, self.comm.port()) {
                (Handle::Mpi(matched), _) => drop(matched.receive()),
                (Handle::Recovering(request), Port::Recovering(context)) => context.discard_matched(request),
                (Handle::Recovering(_), Port::Mpi(_)) => {}
            }
            let _ = guard.end(Some(self.envelope));
        }
    }
}

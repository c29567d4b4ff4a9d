//! Messages that were matched before they are received.

use zerocopy::{FromBytes, IntoBytes};

use super::communicator::LoggedCommunicator;
use super::error::LoggedError;
use super::request::{ReceiveIntoRequest, Turn, elements};
use super::source::whole;
use crate::comm::Matched;
use crate::point_to_point::Envelope;
use crate::request::LocalScope;

/// A message that was matched: nobody else can receive it. Who drops it receives it, and it is lost.
#[derive(Debug)]
#[must_use = "a matched message has to be received: nobody else can"]
pub struct LoggedMessage {
    /// `None` once it is received.
    matched: Option<Matched>,
    envelope: Envelope,
    /// `None` once it is another's.
    turn: Option<Turn>,
    comm: LoggedCommunicator,
}

impl LoggedMessage {
    pub(super) fn new(matched: Matched, comm: &LoggedCommunicator) -> LoggedMessage {
        let envelope = Envelope { source: matched.source, tag: matched.tag, len: matched.len };
        let posted = comm.engine.borrow_mut().post(&comm.shared, Some(matched.source), Some(matched.tag));
        // Where it was left open whose message it would be, that was recorded with the match.
        let turn = Some(Turn::new(posted, comm, false));
        LoggedMessage { matched: Some(matched), envelope, turn, comm: comm.clone() }
    }

    /// Whose it is, and how long.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    fn receive_bytes(mut self, bytes: &mut [u8]) -> Result<Envelope, LoggedError> {
        let (Some(matched), Some(mut turn)) = (self.matched.take(), self.turn.take()) else {
            return Err(LoggedError::CalledOff);
        };
        let (envelope, received) = matched.receive_into(bytes)?;
        turn.end(Some(envelope))?;
        received?;
        Ok(envelope)
    }

    /// Receives it: one element.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE`, if it is longer; [`LoggedError::Elements`] if it is shorter. It is lost then.
    pub fn matched_receive<T: FromBytes + IntoBytes>(self) -> Result<(T, Envelope), LoggedError> {
        let mut element = T::new_zeroed();
        let envelope = self.receive_bytes(element.as_mut_bytes())?;
        whole::<T>(envelope, Some(1))?;
        Ok((element, envelope))
    }

    /// Receives it into `buf`, which is at least as long; what is behind it stays as it was.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE`, if it is longer: its end is lost.
    pub fn matched_receive_into<B: FromBytes + IntoBytes + ?Sized>(self, buf: &mut B) -> Result<Envelope, LoggedError> {
        self.receive_bytes(buf.as_mut_bytes())
    }

    /// Receives it: any number of elements.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Elements`] if it is no whole number of elements. It is lost then.
    pub fn matched_receive_vec<T: FromBytes + IntoBytes + Clone>(self) -> Result<(Vec<T>, Envelope), LoggedError> {
        let mut bytes = vec![0; self.envelope.len];
        let envelope = self.receive_bytes(&mut bytes)?;
        Ok((elements(envelope, &bytes)?, envelope))
    }

    /// Begins to receive it into `buf`, which is at least as long; what is behind it stays as it was.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn immediate_matched_receive_into<'a, B: FromBytes + IntoBytes + ?Sized>(
        mut self,
        scope: &LocalScope<'a>,
        buf: &'a mut B,
    ) -> Result<ReceiveIntoRequest<'a, B>, LoggedError> {
        let (Some(matched), Some(turn)) = (self.matched.take(), self.turn.take()) else {
            return Err(LoggedError::CalledOff);
        };
        let borrowed = self.comm.shared.comm.imrecv_into(scope, matched, buf)?;
        Ok(ReceiveIntoRequest::new(borrowed, turn))
    }
}

impl Drop for LoggedMessage {
    fn drop(&mut self) {
        if let (Some(matched), Some(mut turn)) = (self.matched.take(), self.turn.take()) {
            // Nobody is there to be told of an error; the next call is.
            let _ = matched.receive();
            let _ = turn.end(Some(self.envelope));
        }
    }
}

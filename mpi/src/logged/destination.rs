//! Messages that leave.

use zerocopy::{Immutable, IntoBytes};

use super::communicator::{LoggedCommunicator, Process};
use super::error::LoggedError;
use super::request::SendRequest;
use crate::stream::Stream;

/// Somebody whom messages can be sent to. Without a tag they have tag 0.
pub trait Destination {
    /// The communicator, and the rank in it.
    fn destination(&self) -> (&LoggedCommunicator, u32);

    /// Sends, and returns when `buf` may be used again. The message is in the log then.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Append`], and nothing was sent.
    fn send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<(), LoggedError> {
        self.send_with_tag(buf, 0)
    }

    /// As [`send`](Self::send), with a tag.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    fn send_with_tag<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B, tag: i32) -> Result<(), LoggedError> {
        let (comm, to) = self.destination();
        let bytes = buf.as_bytes();
        let send = |record: &mut dyn FnMut()| Ok(comm.shared.comm.send_while(bytes, to, tag, record)?);
        comm.engine.borrow_mut().send(comm.stream(to, tag)?, bytes, send)
    }

    /// Sends, and returns when the message is being received.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    fn synchronous_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<(), LoggedError> {
        self.synchronous_send_with_tag(buf, 0)
    }

    /// As [`synchronous_send`](Self::synchronous_send), with a tag.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    fn synchronous_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<(), LoggedError> {
        let (comm, to) = self.destination();
        let bytes = buf.as_bytes();
        let send = |record: &mut dyn FnMut()| {
            comm.shared.comm.send_synchronous(bytes, to, tag)?;
            record();
            Ok(())
        };
        comm.engine.borrow_mut().send(comm.stream(to, tag)?, bytes, send)
    }

    /// Begins to send a copy of `buf`, which may be used again at once. The message is in the log when this returns.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    fn immediate_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<SendRequest, LoggedError> {
        self.immediate_send_with_tag(buf, 0)
    }

    /// As [`immediate_send`](Self::immediate_send), with a tag.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    fn immediate_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<SendRequest, LoggedError> {
        let (comm, to) = self.destination();
        let bytes = buf.as_bytes();
        let send = |record: &mut dyn FnMut()| {
            let sending = comm.shared.comm.isend(bytes.to_vec(), to, tag)?;
            record();
            Ok(SendRequest::new(sending, comm))
        };
        comm.engine.borrow_mut().send(comm.stream(to, tag)?, bytes, send)
    }
}

impl LoggedCommunicator {
    pub(super) fn stream(&self, to: u32, tag: i32) -> Result<Stream, LoggedError> {
        Ok(Stream { peer: self.shared.world(to)?, comm: self.shared.number, tag })
    }
}

impl Destination for Process<'_> {
    fn destination(&self) -> (&LoggedCommunicator, u32) {
        (self.comm, self.rank)
    }
}

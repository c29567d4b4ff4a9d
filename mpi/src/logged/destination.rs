//! Messages that leave.

use counterfoil_mpi_logger::Stream;
use zerocopy::{Immutable, IntoBytes};

use super::communicator::{LoggedCommunicator, Process};
use super::error::LoggedError;
use super::request::SendRequest;
use crate::point_to_point::{IsPosted, Mode};

/// Somebody whom messages can be sent to. Without a tag they have tag 0.
///
/// The `immediate_` methods send a copy, so that nothing stays borrowed; the message is in the log when they return.
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
        send_as(self.destination(), Mode::Standard, buf.as_bytes(), tag)
    }

    /// Sends through the memory that [`LoggedUniverse::set_buffer_size`](super::LoggedUniverse::set_buffer_size) has set aside,
    /// and returns at once, whether it is received or not.
    ///
    /// # Errors
    /// As of [`send`](Self::send); [`LoggedError::Mpi`], of class `MPI_ERR_BUFFER`, where the message finds no room, and was
    /// not sent: Open MPI lets no other one through to that rank on this communicator then.
    fn buffered_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<(), LoggedError> {
        self.buffered_send_with_tag(buf, 0)
    }

    /// As [`buffered_send`](Self::buffered_send), with a tag.
    ///
    /// # Errors
    /// As of [`buffered_send`](Self::buffered_send).
    fn buffered_send_with_tag<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B, tag: i32) -> Result<(), LoggedError> {
        send_as(self.destination(), Mode::Buffered, buf.as_bytes(), tag)
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
    /// As of [`synchronous_send`](Self::synchronous_send).
    fn synchronous_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<(), LoggedError> {
        send_as(self.destination(), Mode::Synchronous, buf.as_bytes(), tag)
    }

    /// Sends to a receive that is posted, and returns when `buf` may be used again.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    ///
    /// # Safety
    /// The receive that takes the message is posted: MPI says nothing of what happens else (MPI 4.0, section 3.4).
    unsafe fn ready_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<(), LoggedError> {
        // SAFETY: the caller's promise.
        unsafe { self.ready_send_with_tag(buf, 0) }
    }

    /// As [`ready_send`](Self::ready_send), with a tag.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    ///
    /// # Safety
    /// As of [`ready_send`](Self::ready_send).
    unsafe fn ready_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<(), LoggedError> {
        // SAFETY: the caller's promise.
        let is_posted = unsafe { IsPosted::promised() };
        send_as(self.destination(), Mode::Ready(is_posted), buf.as_bytes(), tag)
    }

    /// Begins to send.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    fn immediate_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<SendRequest, LoggedError> {
        self.immediate_send_with_tag(buf, 0)
    }

    /// As [`immediate_send`](Self::immediate_send), with a tag.
    ///
    /// # Errors
    /// As of [`immediate_send`](Self::immediate_send).
    fn immediate_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<SendRequest, LoggedError> {
        begin_as(self.destination(), Mode::Standard, buf.as_bytes(), tag)
    }

    /// Begins to send through the memory that [`LoggedUniverse::set_buffer_size`](super::LoggedUniverse::set_buffer_size) has set aside.
    ///
    /// # Errors
    /// As of [`send`](Self::send); [`LoggedError::Mpi`], of class `MPI_ERR_BUFFER`, where the message finds no room, and was
    /// not sent: Open MPI lets no other one through to that rank on this communicator then.
    fn immediate_buffered_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<SendRequest, LoggedError> {
        self.immediate_buffered_send_with_tag(buf, 0)
    }

    /// As [`immediate_buffered_send`](Self::immediate_buffered_send), with a tag.
    ///
    /// # Errors
    /// As of [`immediate_buffered_send`](Self::immediate_buffered_send).
    fn immediate_buffered_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<SendRequest, LoggedError> {
        begin_as(self.destination(), Mode::Buffered, buf.as_bytes(), tag)
    }

    /// Begins to send. The request ends when the message is being received.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    fn immediate_synchronous_send<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
    ) -> Result<SendRequest, LoggedError> {
        self.immediate_synchronous_send_with_tag(buf, 0)
    }

    /// As [`immediate_synchronous_send`](Self::immediate_synchronous_send), with a tag.
    ///
    /// # Errors
    /// As of [`immediate_synchronous_send`](Self::immediate_synchronous_send).
    fn immediate_synchronous_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<SendRequest, LoggedError> {
        begin_as(self.destination(), Mode::Synchronous, buf.as_bytes(), tag)
    }

    /// Begins to send to a receive that is posted.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    ///
    /// # Safety
    /// The receive that takes the message is posted: MPI says nothing of what happens else (MPI 4.0, section 3.4).
    unsafe fn immediate_ready_send<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
    ) -> Result<SendRequest, LoggedError> {
        // SAFETY: the caller's promise.
        unsafe { self.immediate_ready_send_with_tag(buf, 0) }
    }

    /// As [`immediate_ready_send`](Self::immediate_ready_send), with a tag.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    ///
    /// # Safety
    /// As of [`immediate_ready_send`](Self::immediate_ready_send).
    unsafe fn immediate_ready_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<SendRequest, LoggedError> {
        // SAFETY: the caller's promise.
        let is_posted = unsafe { IsPosted::promised() };
        begin_as(self.destination(), Mode::Ready(is_posted), buf.as_bytes(), tag)
    }
}

fn send_as((comm, to): (&LoggedCommunicator, u32), mode: Mode, bytes: &[u8], tag: i32) -> Result<(), LoggedError> {
    let stream = comm.stream(to, tag)?;
    // The copy is made while the message is under way. It is waited for without the engine: others may ask for something meanwhile.
    comm.shared.comm.send_within(mode, bytes, to, tag, |begin| {
        comm.engine.borrow_mut().send(stream, bytes, |record| {
            begin()?;
            record();
            Ok(())
        })
    })
}

fn begin_as(
    (comm, to): (&LoggedCommunicator, u32),
    mode: Mode,
    bytes: &[u8],
    tag: i32,
) -> Result<SendRequest, LoggedError> {
    comm.engine.borrow_mut().send(comm.stream(to, tag)?, bytes, |record| {
        let pending = comm.shared.comm.begin_send(mode, bytes.to_vec(), to, tag)?;
        record();
        Ok(SendRequest::new(pending, comm))
    })
}

impl LoggedCommunicator {
    pub(super) fn stream(&self, to: u32, tag: i32) -> Result<Stream, LoggedError> {
        Ok(Stream::new(self.shared.world(to)?, self.shared.id.number(), tag))
    }
}

impl Destination for Process<'_> {
    fn destination(&self) -> (&LoggedCommunicator, u32) {
        (self.comm, self.rank)
    }
}

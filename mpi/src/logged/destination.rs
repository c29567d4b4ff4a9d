//! Sends.

use counterfoil_mpi_core::point_to_point::{IsPosted, Mode};
use zerocopy::{Immutable, IntoBytes};

use super::communicator::{LoggedCommunicator, Process};
use super::error::LoggedError;
use super::pending::Pending;
use super::request::SendRequest;

/// A process to send messages to.
///
/// Methods without a tag send with tag 0.
///
/// The `immediate_` methods send a copy, so no memory stays borrowed. The message is in the log when they return.
pub trait Destination {
    /// Returns the communicator, and the rank in it.
    fn destination(&self) -> (&LoggedCommunicator, u32);

    /// Sends `buf` in standard mode.
    ///
    /// The message is in the log when this returns.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]. [`LoggedError::Append`] and [`LoggedError::Space`]: the message was not sent.
    fn send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<(), LoggedError> {
        self.send_with_tag(buf, 0)
    }

    /// Same as [`send`](Self::send), with a tag.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    fn send_with_tag<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B, tag: i32) -> Result<(), LoggedError> {
        send_as(self.destination(), Mode::Standard, buf.as_bytes(), tag)
    }

    /// Sends in buffered mode, and returns without waiting for the receiver.
    ///
    /// [`LoggedUniverse::set_buffer_size`](super::LoggedUniverse::set_buffer_size) attaches the buffer.
    ///
    /// # Errors
    /// Same as [`send`](Self::send); [`LoggedError::Mpi`], with class `MPI_ERR_BUFFER`, if the buffer has no room. The
    /// message was not sent, and Open MPI sends no other one to this rank on this communicator.
    fn buffered_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<(), LoggedError> {
        self.buffered_send_with_tag(buf, 0)
    }

    /// Same as [`buffered_send`](Self::buffered_send), with a tag.
    ///
    /// # Errors
    /// Same as [`buffered_send`](Self::buffered_send).
    fn buffered_send_with_tag<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B, tag: i32) -> Result<(), LoggedError> {
        send_as(self.destination(), Mode::Buffered, buf.as_bytes(), tag)
    }

    /// Sends in synchronous mode: returns once the receiver has matched the message.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    fn synchronous_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<(), LoggedError> {
        self.synchronous_send_with_tag(buf, 0)
    }

    /// Same as [`synchronous_send`](Self::synchronous_send), with a tag.
    ///
    /// # Errors
    /// Same as [`synchronous_send`](Self::synchronous_send).
    fn synchronous_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<(), LoggedError> {
        send_as(self.destination(), Mode::Synchronous, buf.as_bytes(), tag)
    }

    /// Sends in ready mode, to a posted receive.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    ///
    /// # Safety
    /// The matching receive is posted. Otherwise the outcome is undefined (MPI 4.0, section 3.4).
    unsafe fn ready_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<(), LoggedError> {
        // SAFETY: the caller's promise.
        unsafe { self.ready_send_with_tag(buf, 0) }
    }

    /// Same as [`ready_send`](Self::ready_send), with a tag.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    ///
    /// # Safety
    /// Same as [`ready_send`](Self::ready_send).
    unsafe fn ready_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<(), LoggedError> {
        // SAFETY: the caller's promise.
        let is_posted = unsafe { IsPosted::promised() };
        send_as(self.destination(), Mode::Ready(is_posted), buf.as_bytes(), tag)
    }

    /// Begins a standard send.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    fn immediate_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<SendRequest, LoggedError> {
        self.immediate_send_with_tag(buf, 0)
    }

    /// Same as [`immediate_send`](Self::immediate_send), with a tag.
    ///
    /// # Errors
    /// Same as [`immediate_send`](Self::immediate_send).
    fn immediate_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<SendRequest, LoggedError> {
        begin_as(self.destination(), Mode::Standard, buf.as_bytes(), tag)
    }

    /// Begins a buffered send, through the buffer from
    /// [`LoggedUniverse::set_buffer_size`](super::LoggedUniverse::set_buffer_size).
    ///
    /// # Errors
    /// Same as [`send`](Self::send); [`LoggedError::Mpi`], with class `MPI_ERR_BUFFER`, if the buffer has no room. The
    /// message was not sent, and Open MPI sends no other one to this rank on this communicator.
    fn immediate_buffered_send<B: IntoBytes + Immutable + ?Sized>(&self, buf: &B) -> Result<SendRequest, LoggedError> {
        self.immediate_buffered_send_with_tag(buf, 0)
    }

    /// Same as [`immediate_buffered_send`](Self::immediate_buffered_send), with a tag.
    ///
    /// # Errors
    /// Same as [`immediate_buffered_send`](Self::immediate_buffered_send).
    fn immediate_buffered_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<SendRequest, LoggedError> {
        begin_as(self.destination(), Mode::Buffered, buf.as_bytes(), tag)
    }

    /// Begins a synchronous send.
    ///
    /// The request completes once the receiver has matched the message.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    fn immediate_synchronous_send<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
    ) -> Result<SendRequest, LoggedError> {
        self.immediate_synchronous_send_with_tag(buf, 0)
    }

    /// Same as [`immediate_synchronous_send`](Self::immediate_synchronous_send), with a tag.
    ///
    /// # Errors
    /// Same as [`immediate_synchronous_send`](Self::immediate_synchronous_send).
    fn immediate_synchronous_send_with_tag<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
        tag: i32,
    ) -> Result<SendRequest, LoggedError> {
        begin_as(self.destination(), Mode::Synchronous, buf.as_bytes(), tag)
    }

    /// Begins a ready send, to a posted receive.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    ///
    /// # Safety
    /// The matching receive is posted. Otherwise the outcome is undefined (MPI 4.0, section 3.4).
    unsafe fn immediate_ready_send<B: IntoBytes + Immutable + ?Sized>(
        &self,
        buf: &B,
    ) -> Result<SendRequest, LoggedError> {
        // SAFETY: the caller's promise.
        unsafe { self.immediate_ready_send_with_tag(buf, 0) }
    }

    /// Same as [`immediate_ready_send`](Self::immediate_ready_send), with a tag.
    ///
    /// # Errors
    /// Same as [`send`](Self::send).
    ///
    /// # Safety
    /// Same as [`immediate_ready_send`](Self::immediate_ready_send).
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
    comm.carrier.send_while(mode, bytes, to, tag, &mut || ())
}

fn begin_as(
    (comm, to): (&LoggedCommunicator, u32),
    mode: Mode,
    bytes: &[u8],
    tag: i32,
) -> Result<SendRequest, LoggedError> {
    let operation = comm.carrier.begin_send(mode, bytes, to, tag)?;
    Ok(SendRequest::new(Pending::new(operation, &comm.carrier)))
}

impl Destination for Process<'_> {
    fn destination(&self) -> (&LoggedCommunicator, u32) {
        (self.comm, self.rank)
    }
}

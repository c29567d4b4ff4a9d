//! Sends and receives at once, for exchanges around a ring.

use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_core::point_to_point::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::destination::Destination;
use super::elements::check_elements;
use super::error::LoggedError;
use super::source::{Source, receive_bytes};

/// Sends `message` with tag 0 and receives one element with any tag.
///
/// # Errors
/// Same as [`Destination::send`] and [`Source::receive`].
pub fn send_receive<R, M>(
    message: &M,
    destination: &impl Destination,
    source: &impl Source,
) -> Result<(R, Envelope), LoggedError>
where
    R: FromBytes + IntoBytes,
    M: IntoBytes + Immutable + ?Sized,
{
    send_receive_with_tags(message, destination, 0, source, None)
}

/// Same as [`send_receive`], with the tags to send and to receive; `None` is `MPI_ANY_TAG`.
///
/// # Errors
/// Same as [`send_receive`].
pub fn send_receive_with_tags<R, M>(
    message: &M,
    destination: &impl Destination,
    send_tag: i32,
    source: &impl Source,
    receive_tag: impl Into<Option<i32>>,
) -> Result<(R, Envelope), LoggedError>
where
    R: FromBytes + IntoBytes,
    M: IntoBytes + Immutable + ?Sized,
{
    let mut element = R::new_zeroed();
    let (bytes, into) = (message.as_bytes(), element.as_mut_bytes());
    let envelope = exchange(bytes, destination, send_tag, into, source, receive_tag.into())?;
    check_elements::<R>(envelope, Some(1))?;
    Ok((element, envelope))
}

/// Sends `message` with tag 0 and receives a message with any tag into `buf`, which is at least as long.
///
/// # Errors
/// Same as [`Destination::send`] and [`Source::receive_into`].
pub fn send_receive_into<M, B>(
    message: &M,
    destination: &impl Destination,
    buf: &mut B,
    source: &impl Source,
) -> Result<Envelope, LoggedError>
where
    M: IntoBytes + Immutable + ?Sized,
    B: FromBytes + IntoBytes + ?Sized,
{
    send_receive_into_with_tags(message, destination, 0, buf, source, None)
}

/// Same as [`send_receive_into`], with the tags to send and to receive; `None` is `MPI_ANY_TAG`.
///
/// # Errors
/// Same as [`send_receive_into`].
pub fn send_receive_into_with_tags<M, B>(
    message: &M,
    destination: &impl Destination,
    send_tag: i32,
    buf: &mut B,
    source: &impl Source,
    receive_tag: impl Into<Option<i32>>,
) -> Result<Envelope, LoggedError>
where
    M: IntoBytes + Immutable + ?Sized,
    B: FromBytes + IntoBytes + ?Sized,
{
    exchange(message.as_bytes(), destination, send_tag, buf.as_mut_bytes(), source, receive_tag.into())
}

/// Sends a copy of `buf` with tag 0 and receives a message with any tag into `buf`.
///
/// # Errors
/// Same as [`send_receive_into`].
pub fn send_receive_replace_into<B>(
    buf: &mut B,
    destination: &impl Destination,
    source: &impl Source,
) -> Result<Envelope, LoggedError>
where
    B: FromBytes + IntoBytes + Immutable + ?Sized,
{
    send_receive_replace_into_with_tags(buf, destination, 0, source, None)
}

/// Same as [`send_receive_replace_into`], with the tags to send and to receive; `None` is `MPI_ANY_TAG`.
///
/// # Errors
/// Same as [`send_receive_into`].
pub fn send_receive_replace_into_with_tags<B>(
    buf: &mut B,
    destination: &impl Destination,
    send_tag: i32,
    source: &impl Source,
    receive_tag: impl Into<Option<i32>>,
) -> Result<Envelope, LoggedError>
where
    B: FromBytes + IntoBytes + Immutable + ?Sized,
{
    let bytes = buf.as_bytes().to_vec();
    exchange(&bytes, destination, send_tag, buf.as_mut_bytes(), source, receive_tag.into())
}

fn exchange(
    bytes: &[u8],
    destination: &impl Destination,
    send_tag: i32,
    into: &mut [u8],
    source: &impl Source,
    receive_tag: Option<i32>,
) -> Result<Envelope, LoggedError> {
    let ((comm, to), (from_comm, from)) = (destination.destination(), source.source());
    let mut received = None;
    let mut receive = || received = Some(receive_bytes((from_comm, from), receive_tag, into));
    // The message is in transit during the receive. A received message counts, even if the send has failed.
    comm.carrier.send_while(Mode::Standard, bytes, to, send_tag, &mut receive)?;
    received.unwrap_or(Err(LoggedError::Cancelled))
}

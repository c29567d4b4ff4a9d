//! A message that leaves, and one that arrives, both at once: so ranks can exchange them around a ring.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::destination::Destination;
use super::error::LoggedError;
use super::source::{Source, whole};
use crate::point_to_point::{Envelope, Mode};

/// Sends `message` and receives one element. Tag 0 is sent, any is received.
///
/// # Errors
/// As of [`Destination::send`] and [`Source::receive`].
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

/// As [`send_receive`], with the tag that is sent, and the one that is received; `None` is any.
///
/// # Errors
/// As of [`send_receive`].
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
    whole::<R>(envelope, Some(1))?;
    Ok((element, envelope))
}

/// Sends `message` and receives into `buf`, which is at least as long as what comes. Tag 0 is sent, any is received.
///
/// # Errors
/// As of [`Destination::send`] and [`Source::receive_into`].
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

/// As [`send_receive_into`], with the tag that is sent, and the one that is received; `None` is any.
///
/// # Errors
/// As of [`send_receive_into`].
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

/// Sends what is in `buf`, and receives into it. Tag 0 is sent, any is received. A copy is sent.
///
/// # Errors
/// As of [`send_receive_into`].
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

/// As [`send_receive_replace_into`], with the tag that is sent, and the one that is received; `None` is any.
///
/// # Errors
/// As of [`send_receive_into`].
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
    let (stream, mut received) = (comm.stream(to, send_tag)?, None);
    // The message is under way while the other one is waited for.
    let sent = comm.shared.comm.send_within(Mode::Standard, bytes, to, send_tag, |begin| {
        comm.engine.borrow_mut().send(stream, bytes, |record| {
            begin()?;
            record();
            Ok(())
        })?;
        received = Some(from_comm.shared.comm.receive(into, from, receive_tag));
        Ok::<_, LoggedError>(())
    });
    // What was received counts, whatever came of the other one.
    let received = received.map(|received| from_comm.received(received, from.is_none() || receive_tag.is_none()));
    sent?;
    received.unwrap_or(Err(LoggedError::CalledOff))
}

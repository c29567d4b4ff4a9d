//! Receives and probes.

use counterfoil_mpi_logger::Determinant;
use zerocopy::{FromBytes, IntoBytes};

use super::communicator::{AnyProcess, LoggedCommunicator, Port, Process, Recorded};
use super::error::LoggedError;
use super::message::LoggedMessage;
use super::request::{ReceiveGuard, ReceiveIntoRequest, ReceiveRequest};
use crate::error::MpiError;
use crate::point_to_point::Envelope;
use crate::request::{Borrowed, LocalScope};

/// A process that messages can be received from, or any process. Methods without a tag receive any tag.
pub trait Source {
    /// Returns the communicator, and the rank in it; `None` is `MPI_ANY_SOURCE`.
    fn source(&self) -> (&LoggedCommunicator, Option<u32>);

    /// Receives a message of one element.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE` for a longer message; [`LoggedError::Elements`] for a shorter one. The message is lost.
    fn receive<T: FromBytes + IntoBytes>(&self) -> Result<(T, Envelope), LoggedError> {
        self.receive_with_tag(None)
    }

    /// Same as [`receive`](Self::receive), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// Same as [`receive`](Self::receive).
    fn receive_with_tag<T: FromBytes + IntoBytes>(
        &self,
        tag: impl Into<Option<i32>>,
    ) -> Result<(T, Envelope), LoggedError> {
        let mut element = T::new_zeroed();
        let envelope = receive_bytes(self.source(), tag.into(), element.as_mut_bytes())?;
        check_elements::<T>(envelope, Some(1))?;
        Ok((element, envelope))
    }

    /// Receives a message of any number of elements.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Elements`] if its length is no multiple of an element's.
    fn receive_vec<T: FromBytes + IntoBytes + Clone>(&self) -> Result<(Vec<T>, Envelope), LoggedError> {
        self.receive_vec_with_tag(None)
    }

    /// Same as [`receive_vec`](Self::receive_vec), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// Same as [`receive_vec`](Self::receive_vec).
    fn receive_vec_with_tag<T: FromBytes + IntoBytes + Clone>(
        &self,
        tag: impl Into<Option<i32>>,
    ) -> Result<(Vec<T>, Envelope), LoggedError> {
        self.matched_probe_with_tag(tag)?.matched_receive_vec()
    }

    /// Receives a message into `buf`, which is at least as long. The rest of `buf` is left unchanged.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE` for a longer message, whose end is lost.
    fn receive_into<B: FromBytes + IntoBytes + ?Sized>(&self, buf: &mut B) -> Result<Envelope, LoggedError> {
        self.receive_into_with_tag(buf, None)
    }

    /// Same as [`receive_into`](Self::receive_into), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// Same as [`receive_into`](Self::receive_into).
    fn receive_into_with_tag<B: FromBytes + IntoBytes + ?Sized>(
        &self,
        buf: &mut B,
        tag: impl Into<Option<i32>>,
    ) -> Result<Envelope, LoggedError> {
        receive_bytes(self.source(), tag.into(), buf.as_mut_bytes())
    }

    /// Begins to receive a message of at most `count` elements.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn immediate_receive<T: FromBytes + IntoBytes + Clone>(
        &self,
        count: usize,
    ) -> Result<ReceiveRequest<T>, LoggedError> {
        self.immediate_receive_with_tag(count, None)
    }

    /// Same as [`immediate_receive`](Self::immediate_receive), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// Same as [`immediate_receive`](Self::immediate_receive).
    fn immediate_receive_with_tag<T: FromBytes + IntoBytes + Clone>(
        &self,
        count: usize,
        tag: impl Into<Option<i32>>,
    ) -> Result<ReceiveRequest<T>, LoggedError> {
        let ((comm, source), tag) = (self.source(), tag.into());
        let len = count * size_of::<T>();
        let pending = match comm.port() {
            Port::Mpi(recorded) => recorded.comm.irecv(len, source, tag)?.into(),
            Port::Recovering(context) => context.begin_receive(len, source, tag)?.into(),
        };
        Ok(ReceiveRequest::new(pending, comm.post(source, tag)))
    }

    /// Begins to receive a message into `buf`, which is at least as long. The rest of `buf` is left unchanged.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn immediate_receive_into<'a, B: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        buf: &'a mut B,
    ) -> Result<ReceiveIntoRequest<'a, B>, LoggedError> {
        self.immediate_receive_into_with_tag(scope, buf, None)
    }

    /// Same as [`immediate_receive_into`](Self::immediate_receive_into), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// Same as [`immediate_receive_into`](Self::immediate_receive_into).
    fn immediate_receive_into_with_tag<'a, B: FromBytes + IntoBytes + ?Sized>(
        &self,
        scope: &LocalScope<'a>,
        buf: &'a mut B,
        tag: impl Into<Option<i32>>,
    ) -> Result<ReceiveIntoRequest<'a, B>, LoggedError> {
        let ((comm, source), tag) = (self.source(), tag.into());
        let borrowed = match comm.port() {
            Port::Mpi(recorded) => recorded.comm.irecv_into(scope, buf, source, tag)?,
            Port::Recovering(context) => {
                Borrowed::receiving(scope, buf, |handle| context.begin_receive_by(source, tag, handle))?
            }
        };
        Ok(ReceiveIntoRequest::new(borrowed, comm.post(source, tag)))
    }

    /// Waits for a message without receiving it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn probe(&self) -> Result<Envelope, LoggedError> {
        self.probe_with_tag(None)
    }

    /// Same as [`probe`](Self::probe), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn probe_with_tag(&self, tag: impl Into<Option<i32>>) -> Result<Envelope, LoggedError> {
        let ((comm, source), tag) = (self.source(), tag.into());
        match comm.port() {
            Port::Mpi(recorded) => {
                let envelope = recorded.comm.probe(source, tag)?;
                recorded.handle_probe(source, tag, Some(envelope))?;
                Ok(envelope)
            }
            Port::Recovering(context) => Ok(context.probe(source, tag)?),
        }
    }

    /// Returns the envelope of a message that has arrived, if there is one, without receiving it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn immediate_probe(&self) -> Result<Option<Envelope>, LoggedError> {
        self.immediate_probe_with_tag(None)
    }

    /// Same as [`immediate_probe`](Self::immediate_probe), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn immediate_probe_with_tag(&self, tag: impl Into<Option<i32>>) -> Result<Option<Envelope>, LoggedError> {
        let ((comm, source), tag) = (self.source(), tag.into());
        match comm.port() {
            Port::Mpi(recorded) => {
                let envelope = recorded.comm.immediate_probe(source, tag)?;
                recorded.handle_probe(source, tag, envelope)?;
                Ok(envelope)
            }
            Port::Recovering(context) => Ok(context.immediate_probe(source, tag)?),
        }
    }

    /// Waits for a message and matches it: no other call can receive it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn matched_probe(&self) -> Result<LoggedMessage, LoggedError> {
        self.matched_probe_with_tag(None)
    }

    /// Same as [`matched_probe`](Self::matched_probe), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn matched_probe_with_tag(&self, tag: impl Into<Option<i32>>) -> Result<LoggedMessage, LoggedError> {
        let ((comm, source), tag) = (self.source(), tag.into());
        match comm.port() {
            Port::Mpi(recorded) => {
                let message = LoggedMessage::of_mpi(recorded.comm.mprobe(source, tag)?, comm);
                recorded.handle_probe(source, tag, Some(message.envelope()))?;
                Ok(message)
            }
            Port::Recovering(context) => LoggedMessage::of_context(context.probe(source, tag)?, context, comm),
        }
    }

    /// Matches a message that has arrived, if there is one: no other call can receive it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn immediate_matched_probe(&self) -> Result<Option<LoggedMessage>, LoggedError> {
        self.immediate_matched_probe_with_tag(None)
    }

    /// Same as [`immediate_matched_probe`](Self::immediate_matched_probe), with a tag; `None` is `MPI_ANY_TAG`.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn immediate_matched_probe_with_tag(
        &self,
        tag: impl Into<Option<i32>>,
    ) -> Result<Option<LoggedMessage>, LoggedError> {
        let ((comm, source), tag) = (self.source(), tag.into());
        match comm.port() {
            Port::Mpi(recorded) => {
                let matched = recorded.comm.improbe(source, tag)?;
                let message = matched.map(|matched| LoggedMessage::of_mpi(matched, comm));
                recorded.handle_probe(source, tag, message.as_ref().map(LoggedMessage::envelope))?;
                Ok(message)
            }
            Port::Recovering(context) => {
                let found = context.immediate_probe(source, tag)?;
                found.map(|found| LoggedMessage::of_context(found, context, comm)).transpose()
            }
        }
    }
}

/// Checks that a message consists of whole elements, and of `count` of them.
pub(super) fn check_elements<T>(envelope: Envelope, count: Option<usize>) -> Result<(), LoggedError> {
    let (len, element) = (envelope.len, size_of::<T>());
    let is_whole = match count {
        Some(count) => len == count * element,
        None => element > 0 && len.is_multiple_of(element),
    };
    if is_whole { Ok(()) } else { Err(LoggedError::Elements { source_rank: envelope.source, len, element }) }
}

/// Receives a message into `bytes`.
pub(super) fn receive_bytes(
    (comm, source): (&LoggedCommunicator, Option<u32>),
    tag: Option<i32>,
    bytes: &mut [u8],
) -> Result<Envelope, LoggedError> {
    match comm.port() {
        Port::Mpi(recorded) => {
            let received = recorded.comm.receive(bytes, source, tag);
            recorded.handle_received(received, source.is_none() || tag.is_none())
        }
        Port::Recovering(context) => context.receive(bytes, source, tag)?.into_envelope(),
    }
}

impl LoggedCommunicator {
    /// Tells the logger of a posted receive; `None` is a wildcard.
    fn post(&self, source: Option<u32>, tag: Option<i32>) -> ReceiveGuard {
        ReceiveGuard::new(self, source, tag, source.is_none() || tag.is_none())
    }
}

impl Recorded {
    /// Tells the logger of a probe's result; `None` as source or tag is a wildcard.
    fn handle_probe(&self, source: Option<u32>, tag: Option<i32>, found: Option<Envelope>) -> Result<(), LoggedError> {
        let mut engine = self.engine.borrow_mut();
        engine.note_activity();
        match found {
            None => engine.count_failed_poll(),
            Some(found) if source.is_none() || tag.is_none() => {
                engine.record(Determinant::Probe { source: self.world_rank(found.source)?, tag: found.tag });
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Tells the logger of a blocking receive that has returned.
    fn handle_received(
        &self,
        received: Result<(Envelope, Result<(), MpiError>), MpiError>,
        is_open: bool,
    ) -> Result<Envelope, LoggedError> {
        let (envelope, received) = received?;
        let mut engine = self.engine.borrow_mut();
        if let Some(posted) = engine.post(self, Some(envelope.source), Some(envelope.tag)) {
            engine.end_receive(self, posted, Some(envelope), is_open)?;
        }
        received?;
        Ok(envelope)
    }
}

impl Source for Process<'_> {
    fn source(&self) -> (&LoggedCommunicator, Option<u32>) {
        (self.comm, Some(self.rank))
    }
}

impl Source for AnyProcess<'_> {
    fn source(&self) -> (&LoggedCommunicator, Option<u32>) {
        (self.comm, None)
    }
}

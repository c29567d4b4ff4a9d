//! Receives and probes.

use counterfoil_mpi_core::envelope::Envelope;
use zerocopy::{FromBytes, IntoBytes};

use super::communicator::{AnyProcess, LoggedCommunicator, Process};
use super::elements::check_elements;
use super::error::LoggedError;
use super::message::LoggedMessage;
use super::pending::{Borrowed, LocalScope, Pending};
use super::request::{ReceiveGuard, ReceiveIntoRequest, ReceiveRequest};

/// A process to receive messages from, or any process.
///
/// Methods without a tag receive any tag.
pub trait Source {
    /// Returns the communicator, and the rank in it; `None` is `MPI_ANY_SOURCE`.
    fn source(&self) -> (&LoggedCommunicator, Option<u32>);

    /// Receives a message with one element.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], with class `MPI_ERR_TRUNCATE` for a longer message; [`LoggedError::Elements`] for a
    /// shorter one. The message is lost.
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

    /// Receives a message with any number of elements.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Elements`] if its length isn't a multiple of an element's.
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

    /// Receives a message into `buf`, which is at least as long.
    ///
    /// The rest of `buf` is left unchanged.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], with class `MPI_ERR_TRUNCATE` for a longer message; its end is lost.
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

    /// Begins to receive a message with at most `count` elements.
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
        let operation = comm.carrier.begin_receive(count * size_of::<T>(), source, tag)?;
        Ok(ReceiveRequest::new(Pending::new(operation, &comm.carrier), comm.post(source, tag)))
    }

    /// Begins to receive a message into `buf`, which is at least as long.
    ///
    /// The rest of `buf` is left unchanged.
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
        let borrowed = Borrowed::receiving(scope, buf, |memory| {
            // SAFETY: `receiving` passes memory used only by the operation until it is complete.
            let operation = unsafe { comm.carrier.begin_receive_into(memory, source, tag)? };
            Ok(Pending::new(operation, &comm.carrier))
        })?;
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
        let (comm, source) = self.source();
        comm.carrier.probe(source, tag.into())
    }

    /// Returns an arrived message's envelope, if there is one, without receiving it.
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
        let (comm, source) = self.source();
        comm.carrier.immediate_probe(source, tag.into())
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
        let (comm, source) = self.source();
        let (matched, envelope) = comm.carrier.matched_probe(source, tag.into())?;
        Ok(LoggedMessage::new(matched, envelope, comm))
    }

    /// Matches an arrived message, if there is one: no other call can receive it.
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
        let (comm, source) = self.source();
        let found = comm.carrier.immediate_matched_probe(source, tag.into())?;
        Ok(found.map(|(matched, envelope)| LoggedMessage::new(matched, envelope, comm)))
    }
}

/// Receives a message into `bytes`.
pub(super) fn receive_bytes(
    (comm, source): (&LoggedCommunicator, Option<u32>),
    tag: Option<i32>,
    bytes: &mut [u8],
) -> Result<Envelope, LoggedError> {
    comm.carrier.receive(bytes, source, tag)
}

impl LoggedCommunicator {
    /// Tells the logger of a posted receive; `None` is a wildcard.
    fn post(&self, source: Option<u32>, tag: Option<i32>) -> ReceiveGuard {
        ReceiveGuard::new(&self.carrier, source, tag, source.is_none() || tag.is_none())
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

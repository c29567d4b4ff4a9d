//! Messages that are waited for later, and messages that were matched.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use zerocopy::{FromBytes, IntoBytes};

use super::communicator::{LoggedCommunicator, Shared};
use super::engine::Engine;
use super::error::LoggedError;
use super::source::whole;
use crate::comm::{Matched, Sending};
use crate::matching::Posted;
use crate::point_to_point::{Envelope, Receiving};

/// A message that is being sent. Who drops it lets it go on.
#[derive(Debug)]
pub struct SendRequest {
    sending: Sending,
    /// Its communicator isn't given up before.
    _comm: Rc<Shared>,
}

impl SendRequest {
    pub(super) fn new(sending: Sending, comm: &LoggedCommunicator) -> SendRequest {
        SendRequest { sending, _comm: Rc::clone(&comm.shared) }
    }

    /// Whether it has left.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn test(&mut self) -> Result<bool, LoggedError> {
        Ok(self.sending.test()?)
    }

    /// Waits until it has left.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn wait(self) -> Result<(), LoggedError> {
        Ok(self.sending.wait()?)
    }
}

/// A receive's turn among those of its communicator, until it is over.
#[derive(Debug)]
struct Turn {
    posted: Option<Posted>,
    comm: Rc<Shared>,
    engine: Rc<RefCell<Engine>>,
    is_open: bool,
}

impl Turn {
    fn new(posted: Posted, comm: &LoggedCommunicator, is_open: bool) -> Turn {
        Turn { posted: Some(posted), comm: Rc::clone(&comm.shared), engine: Rc::clone(&comm.engine), is_open }
    }

    fn end(&mut self, taken: Option<Envelope>) -> Result<(), LoggedError> {
        let Some(posted) = self.posted.take() else { return Ok(()) };
        self.engine.borrow_mut().end_receive(&self.comm, posted, taken, self.is_open)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nothing was received, and nobody is there to be told of an error; the next call is.
        let _ = self.end(None);
    }
}

/// A message that is being received. Who drops it calls it off: a message that has come is lost, and is not acknowledged.
#[derive(Debug)]
#[must_use = "what is dropped is called off"]
pub struct ReceiveRequest<T> {
    receiving: Receiving,
    turn: Turn,
    of: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Clone> ReceiveRequest<T> {
    pub(super) fn new(
        receiving: Receiving,
        posted: Posted,
        comm: &LoggedCommunicator,
        is_open: bool,
    ) -> ReceiveRequest<T> {
        ReceiveRequest { receiving, turn: Turn::new(posted, comm, is_open), of: PhantomData }
    }

    /// Whether [`wait`](Self::wait) returns at once.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    pub fn is_ready(&self) -> Result<bool, LoggedError> {
        Ok(self.receiving.is_ready()?)
    }

    /// Waits for the message.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE` for a longer message; [`LoggedError::Elements`] for one that is no whole
    /// number of elements. Either is lost.
    pub fn wait(self) -> Result<(Vec<T>, Envelope), LoggedError> {
        let ReceiveRequest { receiving, mut turn, .. } = self;
        let (envelope, bytes) = receiving.wait_whole()?;
        turn.end(Some(envelope))?;
        Ok((elements(envelope, &bytes?)?, envelope))
    }
}

/// A message that was matched: nobody else can receive it.
#[derive(Debug)]
#[must_use = "a matched message has to be received: nobody else can"]
pub struct LoggedMessage {
    matched: Matched,
    turn: Turn,
}

impl LoggedMessage {
    pub(super) fn new(matched: Matched, comm: &LoggedCommunicator, is_open: bool) -> LoggedMessage {
        let posted = comm.shared.matching.borrow_mut().post(Some(matched.source as i32), Some(matched.tag));
        LoggedMessage { matched, turn: Turn::new(posted, comm, is_open) }
    }

    /// Whose it is, and how long.
    pub fn envelope(&self) -> Envelope {
        Envelope { source: self.matched.source, tag: self.matched.tag, len: self.matched.len }
    }

    /// Receives it.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`]; [`LoggedError::Elements`] if it is no whole number of elements. It is lost then.
    pub fn matched_receive_vec<T: FromBytes + IntoBytes + Clone>(self) -> Result<Vec<T>, LoggedError> {
        let envelope = self.envelope();
        let LoggedMessage { matched, mut turn } = self;
        let bytes = matched.receive()?;
        turn.end(Some(envelope))?;
        elements(envelope, &bytes)
    }
}

fn elements<T: FromBytes + IntoBytes + Clone>(envelope: Envelope, bytes: &[u8]) -> Result<Vec<T>, LoggedError> {
    whole::<T>(envelope, None)?;
    let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
    elements.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
    Ok(elements)
}

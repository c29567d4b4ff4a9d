//! An operation that is waited for later.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use counterfoil_runtime::communicator::{Communicator, Request, Status};
use mpi_sys as ffi;

use super::Context;
use crate::error::{OperationError, check};
use crate::point_to_point::Envelope;
use crate::request::Kind;

/// Outcome of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Envelope of the message that a receive took, even if the message was truncated.
    pub(crate) envelope: Option<Envelope>,
    pub(crate) result: Result<(), OperationError>,
}

impl Completion {
    pub(crate) const DONE: Completion = Completion { envelope: None, result: Ok(()) };

    /// Returns the envelope of a message that was received.
    pub(crate) fn into_envelope<E: From<OperationError>>(self) -> Result<Envelope, E> {
        self.result?;
        Ok(self.envelope.ok_or(OperationError::Ended)?)
    }

    fn failed(error: OperationError) -> Completion {
        Completion { envelope: None, result: Err(error) }
    }
}

impl From<Status> for Envelope {
    fn from(Status { source, tag, len }: Status) -> Envelope {
        Envelope { source, tag, len }
    }
}

/// Copies a message to `into`. A message that is longer is truncated, which is an error.
pub(crate) fn taken(status: Status, message: &[u8], into: &mut [u8]) -> Completion {
    let len = message.len().min(into.len());
    into[..len].copy_from_slice(&message[..len]);
    let truncated = if len < message.len() { ffi::MPI_ERR_TRUNCATE } else { ffi::MPI_SUCCESS };
    let result = check("MPI_Recv", truncated as i32).map_err(OperationError::from);
    Completion { envelope: Some(status.into()), result }
}

/// Handles the messages of an operation, in the order of its requests, with ranks of the communicator. It may store bytes that the operation owns.
pub(crate) type Handle = Box<dyn FnOnce(Vec<(Status, Bytes)>, &mut Vec<u8>) -> Completion>;

/// An operation with the requests of its messages: a send in synchronous mode, a receive, or the receives of a collective, whose sends are
/// complete from the start. It accesses the program's memory only while it is waited for, tested or cancelled.
pub(crate) struct EndpointOperation {
    context: Rc<Context>,
    requests: RefCell<Vec<Request>>,
    /// `None` once the operation is complete.
    handle: RefCell<Option<Handle>>,
    /// Received bytes, if the operation owns them.
    bytes: RefCell<Vec<u8>>,
    kind: Kind,
}

impl EndpointOperation {
    pub(crate) fn new(context: &Rc<Context>, requests: Vec<Request>, kind: Kind, handle: Handle) -> EndpointOperation {
        EndpointOperation {
            context: Rc::clone(context),
            requests: RefCell::new(requests),
            handle: RefCell::new(Some(handle)),
            bytes: RefCell::default(),
            kind,
        }
    }

    /// Makes the operation of a send. `pending`: its request in synchronous mode; in the other modes it has succeeded.
    pub(crate) fn of_send(context: &Rc<Context>, pending: Option<Request>) -> EndpointOperation {
        let requests = pending.into_iter().collect();
        EndpointOperation::new(context, requests, Kind::Send, Box::new(|_, _| Completion::DONE))
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.handle.borrow().is_none()
    }

    /// Waits until the operation completes.
    pub(crate) fn wait(&self) -> Completion {
        let Some(handle) = self.handle.take() else { return Completion::DONE };
        let requests = self.requests.take().into_iter();
        let messages = requests.map(|request| self.context.with_view(|view| view.wait(request)));
        match messages.collect() {
            Ok(messages) => handle(messages, &mut self.bytes.borrow_mut()),
            Err(error) => Completion::failed(error),
        }
    }

    /// Returns the outcome if the operation is complete.
    pub(crate) fn test(&self) -> Option<Completion> {
        match self.is_ready() {
            Ok(true) => Some(self.wait()),
            Ok(false) => None,
            Err(error) => Some(Completion::failed(error)),
        }
    }

    /// Returns `true` if [`wait`](Self::wait) would return at once.
    pub(crate) fn is_ready(&self) -> Result<bool, OperationError> {
        Ok(any(&[self], false)?.is_some())
    }

    /// Cancels a receive, and waits until it completes, with or without a message. Other operations are waited for.
    pub(crate) fn cancel(&self) -> Completion {
        if self.kind != Kind::Receive {
            return self.wait();
        }
        let Some(handle) = self.handle.take() else { return Completion::DONE };
        let requests = self.requests.take().into_iter();
        let messages = requests.filter_map(|request| self.context.with_view(|view| view.cancel(request)).transpose());
        match messages.collect::<Result<Vec<_>, _>>() {
            Ok(messages) if messages.is_empty() => Completion::DONE,
            Ok(messages) => handle(messages, &mut self.bytes.borrow_mut()),
            Err(error) => Completion::failed(error),
        }
    }

    /// Ends the operation because its scope ends. Its memory stays unchanged if this rank panics.
    pub(crate) fn end_with_scope(&self) -> Completion {
        if std::thread::panicking() {
            self.handle.take();
            return Completion::DONE;
        }
        self.cancel()
    }

    /// Frees the requests of a send, which continues.
    fn free(&self) {
        self.handle.take();
        for request in self.requests.take() {
            // Without an endpoint there is nothing to free.
            let _ = self.context.process.call(|endpoint| {
                endpoint.free_send(request);
                Ok(())
            });
        }
    }

    pub(crate) fn take_bytes(&self) -> Vec<u8> {
        self.bytes.take()
    }
}

impl Drop for EndpointOperation {
    fn drop(&mut self) {
        match self.kind {
            _ if self.is_complete() => {}
            Kind::Send => self.free(),
            Kind::Receive | Kind::Collective => drop(self.end_with_scope()),
        }
    }
}

impl std::fmt::Debug for EndpointOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointOperation").field("requests", &self.requests).finish_non_exhaustive()
    }
}

/// Returns the index of an operation that is complete; with `wait`, waits for one. `None` if none is.
///
/// # Errors
/// [`OperationError`].
pub(crate) fn any(operations: &[&EndpointOperation], wait: bool) -> Result<Option<usize>, OperationError> {
    let Some(first) = operations.first() else { return Ok(None) };
    let requests: Vec<_> = operations.iter().map(|operation| operation.requests.borrow()).collect();
    let requests: Vec<Vec<&Request>> = requests.iter().map(|requests| requests.iter().collect()).collect();
    let requests: Vec<&[&Request]> = requests.iter().map(Vec::as_slice).collect();
    first
        .context
        .process
        .call(|endpoint| if wait { endpoint.wait_any(&requests) } else { endpoint.test_any(&requests) })
}

/// Returns `true` if all operations are complete.
///
/// # Errors
/// [`OperationError`].
pub(crate) fn are_all_complete(operations: &[&EndpointOperation]) -> Result<bool, OperationError> {
    let Some(first) = operations.first() else { return Ok(true) };
    let requests: Vec<_> = operations.iter().map(|operation| operation.requests.borrow()).collect();
    let requests: Vec<&Request> = requests.iter().flat_map(|requests| requests.iter()).collect();
    Ok(first.context.process.call(|endpoint| endpoint.test_any(&[&requests]))?.is_some())
}

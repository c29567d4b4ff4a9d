//! Nonblocking operations.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_core::error::check;
use counterfoil_mpi_core::request::Kind;
use counterfoil_runtime::communicator::{Communicator, Request, Status};
use mpi_sys as ffi;

use super::Context;
use crate::error::{OperationError, Outcome};
use crate::immediate::ImmediateOperation;

/// Returns a message's envelope.
pub(crate) fn envelope_of(Status { source, tag, len }: Status) -> Envelope {
    Envelope { source, tag, len }
}

/// Copies a message to `into`.
///
/// A longer message is truncated, with an error.
pub(crate) fn taken(status: Status, message: &[u8], into: &mut [u8]) -> Outcome {
    let len = message.len().min(into.len());
    into[..len].copy_from_slice(&message[..len]);
    let truncated = if len < message.len() { ffi::MPI_ERR_TRUNCATE } else { ffi::MPI_SUCCESS };
    let result = check("MPI_Recv", truncated as i32).map_err(OperationError::from);
    Outcome { envelope: Some(envelope_of(status)), result }
}

fn failed(error: OperationError) -> Outcome {
    Outcome { envelope: None, result: Err(error) }
}

/// Stores a message, and returns the outcome of its receive.
pub(crate) type StoreMessage = Box<dyn FnOnce(Status, &[u8]) -> Outcome>;

/// Handles an operation's messages, in the order of its requests, with ranks in the communicator.
///
/// It may store bytes owned by the operation.
pub(crate) type Handle = Box<dyn FnOnce(Vec<(Status, Bytes)>, &mut Vec<u8>) -> Outcome>;

/// An operation with its messages' requests: a synchronous send, a receive, or a collective's receives (its sends are
/// complete from the start).
///
/// It accesses the program's memory only while it is waited for, tested or cancelled.
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

    /// Makes a send's operation.
    ///
    /// `pending`: its request in synchronous mode; in the other modes it has succeeded.
    pub(crate) fn of_send(context: &Rc<Context>, pending: Option<Request>) -> EndpointOperation {
        let requests = pending.into_iter().collect();
        EndpointOperation::new(context, requests, Kind::Send, Box::new(|_, _| Outcome::DONE))
    }

    /// Frees a send's requests; the send continues.
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
}

impl ImmediateOperation for EndpointOperation {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_complete(&self) -> bool {
        self.handle.borrow().is_none()
    }

    fn wait(&self) -> Outcome {
        let Some(handle) = self.handle.take() else { return Outcome::DONE };
        let requests = self.requests.take().into_iter();
        let messages = requests.map(|request| self.context.with_view(|view| view.wait(request)));
        match messages.collect() {
            Ok(messages) => handle(messages, &mut self.bytes.borrow_mut()),
            Err(error) => failed(error),
        }
    }

    fn test(&self) -> Option<Outcome> {
        match self.is_ready() {
            Ok(true) => Some(self.wait()),
            Ok(false) => None,
            Err(error) => Some(failed(error)),
        }
    }

    fn is_ready(&self) -> Result<bool, OperationError> {
        Ok(find_complete(&[self], false)?.is_some())
    }

    fn cancel(&self) -> Outcome {
        if self.kind != Kind::Receive {
            return self.wait();
        }
        let Some(handle) = self.handle.take() else { return Outcome::DONE };
        let requests = self.requests.take().into_iter();
        let messages = requests.filter_map(|request| self.context.with_view(|view| view.cancel(request)).transpose());
        match messages.collect::<Result<Vec<_>, _>>() {
            Ok(messages) if messages.is_empty() => Outcome::DONE,
            Ok(messages) => handle(messages, &mut self.bytes.borrow_mut()),
            Err(error) => failed(error),
        }
    }

    fn end_with_scope(&self) -> Outcome {
        // The memory stays unchanged.
        if std::thread::panicking() {
            self.handle.take();
            return Outcome::DONE;
        }
        self.cancel()
    }

    fn take_bytes(&self) -> Vec<u8> {
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

/// Returns the index of a complete operation; with `wait`, waits for one.
///
/// `None` if none is complete.
fn find_complete(operations: &[&EndpointOperation], wait: bool) -> Result<Option<usize>, OperationError> {
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
fn are_all_complete(operations: &[&EndpointOperation]) -> Result<bool, OperationError> {
    let Some(first) = operations.first() else { return Ok(true) };
    let requests: Vec<_> = operations.iter().map(|operation| operation.requests.borrow()).collect();
    let requests: Vec<&Request> = requests.iter().flat_map(|requests| requests.iter()).collect();
    Ok(first.context.process.call(|endpoint| endpoint.test_any(&[&requests]))?.is_some())
}

/// Returns the index and outcome of a complete operation; with `wait`, waits for one.
///
/// `None` if none is complete.
///
/// # Errors
/// [`OperationError`].
pub(crate) fn any(operations: &[&EndpointOperation], wait: bool) -> Result<Option<(usize, Outcome)>, OperationError> {
    let found = find_complete(operations, wait)?;
    Ok(found.map(|index| (index, operations[index].wait())))
}

/// Returns the indices and outcomes of all complete operations; with `wait`, at least one, if any is pending.
///
/// # Errors
/// [`OperationError`].
pub(crate) fn some(operations: &[&EndpointOperation], wait: bool) -> Result<Vec<(usize, Outcome)>, OperationError> {
    let (mut completed, mut wait) = (Vec::new(), wait);
    loop {
        let open: Vec<usize> = (0..operations.len()).filter(|index| !operations[*index].is_complete()).collect();
        let open_operations: Vec<_> = open.iter().map(|index| operations[*index]).collect();
        let Some((found, outcome)) = any(&open_operations, wait)? else { return Ok(completed) };
        completed.push((open[found], outcome));
        wait = false;
    }
}

/// Returns each operation's outcome; `None`, without `wait`, if one is still pending.
///
/// # Errors
/// [`OperationError`].
pub(crate) fn all(operations: &[&EndpointOperation], wait: bool) -> Result<Option<Vec<Outcome>>, OperationError> {
    let may_wait = wait || are_all_complete(operations)?;
    Ok(may_wait.then(|| operations.iter().map(|operation| operation.wait()).collect()))
}

//! Requests of immediate operations.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use counterfoil_mpi_core::envelope::Envelope;
use counterfoil_mpi_logger::PostedReceive;
use zerocopy::{FromBytes, IntoBytes};

use super::carrier::Carrier;
use super::elements::elements;
use super::error::LoggedError;
use super::pending::{Borrowed, Pending};
use crate::error::Outcome;

pub(super) mod sealed {
    use super::{LoggedError, Outcome, Pending};

    /// Parts of a request needed to wait for one or several requests.
    pub trait Pend {
        type Completed;
        fn pending(&self) -> &Pending;
        /// Finishes the request after its operation has completed.
        fn finish(self, outcome: Outcome) -> Result<Self::Completed, LoggedError>;
    }
}

/// An immediate operation.
///
/// Each type documents the effect of dropping it. A leaked request (`std::mem::forget`) keeps its communicator for
/// ever: no memory is released while MPI uses it, but MPI is never finalised.
///
/// ```no_run
/// # use counterfoil_mpi::logged::{Destination, LoggedCommunicator, LoggedError, Request, Source};
/// # fn example(world: &LoggedCommunicator) -> Result<(), LoggedError> {
/// let mut receive = world.any_process().immediate_receive::<f64>(100)?;
/// let sending = world.process_at_rank(0)?.immediate_send(&[0.5, 1.5])?;
/// let (numbers, envelope) = loop {
///     match receive.test()? {
///         Ok(message) => break message,
///         Err(pending) => receive = pending,
///     }
/// };
/// sending.wait()?;
/// # Ok(())
/// # }
/// ```
pub trait Request: sealed::Pend<Completed = <Self as Request>::Output> + Sized {
    /// Result of the completed operation.
    type Output;

    /// Waits until the operation completes.
    ///
    /// # Errors
    /// [`LoggedError`] if the operation failed.
    fn wait(self) -> Result<Self::Output, LoggedError> {
        let outcome = self.pending().wait();
        self.finish(outcome)
    }

    /// Returns the result if the operation is complete, or the request if it isn't.
    ///
    /// # Errors
    /// Same as [`wait`](Self::wait).
    fn test(self) -> Result<Result<Self::Output, Self>, LoggedError> {
        match self.pending().test() {
            Some(outcome) => self.finish(outcome).map(Ok),
            None => {
                self.pending().carrier().count_failed_poll();
                Ok(Err(self))
            }
        }
    }

    /// Returns `true` if [`wait`](Self::wait) would return at once.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn is_ready(&self) -> Result<bool, LoggedError> {
        let is_ready = self.pending().is_ready()?;
        if !is_ready {
            self.pending().carrier().count_failed_poll();
        }
        Ok(is_ready)
    }

    /// Applies `f` to the result, so that requests of different types fit into one
    /// [`RequestCollection`](super::RequestCollection).
    fn map<U, F: FnOnce(Self::Output) -> U>(self, f: F) -> Mapped<Self, F> {
        Mapped { request: self, f }
    }
}

/// Request with a mapped result: see [`Request::map`].
#[derive(Debug)]
#[must_use = "dropping a request may cancel it"]
pub struct Mapped<R, F> {
    request: R,
    f: F,
}

impl<R: Request, U, F: FnOnce(R::Output) -> U> sealed::Pend for Mapped<R, F> {
    type Completed = U;

    fn pending(&self) -> &Pending {
        self.request.pending()
    }

    fn finish(self, outcome: Outcome) -> Result<U, LoggedError> {
        self.request.finish(outcome).map(self.f)
    }
}

impl<R: Request, U, F: FnOnce(R::Output) -> U> Request for Mapped<R, F> {
    type Output = U;
}

/// Guard waiting for its request on drop; the result is ignored.
#[derive(Debug)]
pub struct WaitGuard<R: Request>(Option<R>);

impl<R: Request> From<R> for WaitGuard<R> {
    fn from(request: R) -> WaitGuard<R> {
        WaitGuard(Some(request))
    }
}

impl<R: Request> Drop for WaitGuard<R> {
    fn drop(&mut self) {
        if let Some(request) = self.0.take()
            && !std::thread::panicking()
        {
            // An error can't be returned here.
            let _ = request.wait();
        }
    }
}

/// Send request.
///
/// Dropping it doesn't cancel the send.
#[derive(Debug)]
pub struct SendRequest {
    pending: Pending,
}

impl SendRequest {
    pub(super) fn new(pending: Pending) -> SendRequest {
        SendRequest { pending }
    }
}

impl sealed::Pend for SendRequest {
    type Completed = ();

    fn pending(&self) -> &Pending {
        &self.pending
    }

    fn finish(self, outcome: Outcome) -> Result<(), LoggedError> {
        self.pending.carrier().note_activity();
        Ok(outcome.result?)
    }
}

impl Request for SendRequest {
    type Output = ();
}

/// A receive's place in its communicator's matching order in the logger, until the receive ends.
#[derive(Debug)]
pub(super) struct ReceiveGuard {
    posted: Option<PostedReceive>,
    carrier: Rc<dyn Carrier>,
    is_open: bool,
}

impl ReceiveGuard {
    /// Tells the logger of a posted receive; `None` is a wildcard.
    pub(super) fn new(carrier: &Rc<dyn Carrier>, source: Option<u32>, tag: Option<i32>, is_open: bool) -> ReceiveGuard {
        ReceiveGuard { posted: carrier.post(source, tag), carrier: Rc::clone(carrier), is_open }
    }

    /// Ends the receive, with this message or with none.
    pub(super) fn end(&mut self, taken: Option<Envelope>) -> Result<(), LoggedError> {
        match self.posted.take() {
            Some(posted) => self.carrier.end_receive(posted, taken, self.is_open),
            None => Ok(()),
        }
    }

    /// Ends the receive by its completion, possibly an error, and returns the envelope.
    pub(super) fn end_by(&mut self, outcome: Outcome) -> Result<Envelope, LoggedError> {
        self.end(outcome.envelope)?;
        outcome.result?;
        outcome.envelope.ok_or(LoggedError::Cancelled)
    }

    /// Cancels the receive if it is pending.
    ///
    /// A message already arrived is lost, and counts as received.
    fn cancel(&mut self, pending: &Pending) {
        if self.posted.is_some() || !pending.is_complete() {
            // An error can't be returned here; the next call reports it.
            let _ = self.end(pending.cancel().envelope);
        }
    }
}

impl Drop for ReceiveGuard {
    fn drop(&mut self) {
        // If the receive hasn't ended, it has taken no message.
        let _ = self.end(None);
    }
}

/// Receive request with an owned buffer.
///
/// Dropping it cancels the receive: a message already arrived is lost then.
#[derive(Debug)]
#[must_use = "dropping the request cancels the receive"]
pub struct ReceiveRequest<T> {
    pending: Pending,
    guard: ReceiveGuard,
    of: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Clone> ReceiveRequest<T> {
    pub(super) fn new(pending: Pending, guard: ReceiveGuard) -> ReceiveRequest<T> {
        ReceiveRequest { pending, guard, of: PhantomData }
    }

    /// Cancels the receive; returns the message if it had arrived before.
    ///
    /// # Errors
    /// Same as [`wait`](Request::wait).
    pub fn cancel(self) -> Result<Option<(Vec<T>, Envelope)>, LoggedError> {
        let outcome = self.pending.cancel();
        unless_cancelled(sealed::Pend::finish(self, outcome))
    }
}

/// Turns a cancelled receive's error into `None`.
fn unless_cancelled<T>(result: Result<T, LoggedError>) -> Result<Option<T>, LoggedError> {
    match result {
        Err(LoggedError::Cancelled) => Ok(None),
        result => result.map(Some),
    }
}

impl<T: FromBytes + IntoBytes + Clone> sealed::Pend for ReceiveRequest<T> {
    type Completed = (Vec<T>, Envelope);

    fn pending(&self) -> &Pending {
        &self.pending
    }

    fn finish(mut self, outcome: Outcome) -> Result<(Vec<T>, Envelope), LoggedError> {
        let envelope = self.guard.end_by(outcome)?;
        let mut bytes = self.pending.take_bytes();
        bytes.truncate(envelope.len);
        Ok((elements(envelope, &bytes)?, envelope))
    }
}

/// Returns the message's elements and its envelope.
///
/// [`wait`](Request::wait) fails with [`LoggedError::Mpi`], with class `MPI_ERR_TRUNCATE`, for an oversized message,
/// and with [`LoggedError::Elements`] for a partial last element. Both messages are lost.
impl<T: FromBytes + IntoBytes + Clone> Request for ReceiveRequest<T> {
    type Output = (Vec<T>, Envelope);
}

impl<T> Drop for ReceiveRequest<T> {
    fn drop(&mut self) {
        self.guard.cancel(&self.pending);
    }
}

/// Receive request with borrowed memory.
///
/// Dropping it, or the end of its scope, cancels the receive: a message already arrived is lost then.
#[must_use = "dropping the request cancels the receive"]
pub struct ReceiveIntoRequest<'a, B: ?Sized> {
    /// `None` after the memory was given back.
    borrowed: Option<Borrowed<'a, B>>,
    pending: Rc<Pending>,
    guard: ReceiveGuard,
}

impl<'a, B: ?Sized> ReceiveIntoRequest<'a, B> {
    pub(super) fn new(borrowed: Borrowed<'a, B>, guard: ReceiveGuard) -> ReceiveIntoRequest<'a, B> {
        ReceiveIntoRequest { pending: Rc::clone(&borrowed.pending), borrowed: Some(borrowed), guard }
    }

    /// Cancels the receive; returns the message if it had arrived before.
    ///
    /// # Errors
    /// Same as [`wait`](Request::wait).
    pub fn cancel(self) -> Result<Option<(&'a mut B, Envelope)>, LoggedError> {
        let outcome = self.pending.cancel();
        unless_cancelled(sealed::Pend::finish(self, outcome))
    }
}

impl<'a, B: ?Sized> sealed::Pend for ReceiveIntoRequest<'a, B> {
    type Completed = (&'a mut B, Envelope);

    fn pending(&self) -> &Pending {
        &self.pending
    }

    fn finish(mut self, outcome: Outcome) -> Result<(&'a mut B, Envelope), LoggedError> {
        let envelope = self.guard.end_by(outcome)?;
        let memory = self.borrowed.take().and_then(Borrowed::give_back);
        Ok((memory.ok_or(LoggedError::Cancelled)?, envelope))
    }
}

/// Returns the memory and the message's envelope.
///
/// Memory after the end of a shorter message is left unchanged. [`wait`](Request::wait) fails with
/// [`LoggedError::Mpi`], with class `MPI_ERR_TRUNCATE`, for a longer message (its end is lost), and with
/// [`LoggedError::Cancelled`] if the scope has ended before.
impl<'a, B: ?Sized> Request for ReceiveIntoRequest<'a, B> {
    type Output = (&'a mut B, Envelope);
}

impl<B: ?Sized> Drop for ReceiveIntoRequest<'_, B> {
    fn drop(&mut self) {
        self.guard.cancel(&self.pending);
    }
}

impl<B: ?Sized> fmt::Debug for ReceiveIntoRequest<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveIntoRequest").field("pending", &self.pending).finish_non_exhaustive()
    }
}

/// Collective operation request with borrowed memory.
///
/// A dropped request is completed by the end of its scope; dropping a barrier's request, which has no scope, waits for
/// the barrier. The result is this rank's receive memory.
pub struct CollectiveRequest<'a, B: ?Sized = ()> {
    borrowed: Borrowed<'a, B>,
    /// The operation's number in the logger's count.
    number: u64,
}

impl<'a, B: ?Sized> CollectiveRequest<'a, B> {
    /// Creates the request for operation `number` on its communicator.
    pub(super) fn new(borrowed: Borrowed<'a, B>, number: u64) -> CollectiveRequest<'a, B> {
        CollectiveRequest { borrowed, number }
    }
}

impl<'a, B: ?Sized> sealed::Pend for CollectiveRequest<'a, B> {
    type Completed = &'a mut B;

    fn pending(&self) -> &Pending {
        &self.borrowed.pending
    }

    fn finish(self, outcome: Outcome) -> Result<&'a mut B, LoggedError> {
        self.borrowed.pending.carrier().collective_waited(self.number);
        outcome.result?;
        self.borrowed.give_back().ok_or(LoggedError::Cancelled)
    }
}

impl<'a, B: ?Sized> Request for CollectiveRequest<'a, B> {
    type Output = &'a mut B;
}

impl<B: ?Sized> fmt::Debug for CollectiveRequest<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectiveRequest").field("pending", self.borrowed.pending.as_ref()).finish_non_exhaustive()
    }
}

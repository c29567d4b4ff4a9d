//! Operations that are waited for later.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use zerocopy::{FromBytes, IntoBytes};

use super::communicator::{LoggedCommunicator, Shared};
use super::engine::Engine;
use super::error::LoggedError;
use super::source::whole;
use crate::matching::Posted;
use crate::point_to_point::Envelope;
use crate::request::{Borrowed, Ended, Pending};

pub(super) mod sealed {
    use super::{Ended, Engine, LoggedError, Pending, Rc, RefCell};

    /// What waiting for one, and for several, needs.
    pub trait UnderWay {
        type Gives;
        fn pending(&self) -> &Pending;
        fn engine(&self) -> &Rc<RefCell<Engine>>;
        /// It has ended so.
        fn end(self, ended: Ended) -> Result<Self::Gives, LoggedError>;
    }
}

/// An operation that was begun, and ends later. What dropping one means, each type says. One that is leaked (`std::mem::forget`) has its
/// communicator for ever: no memory is given back before MPI is done with it, but MPI is never finalised.
///
/// ```no_run
/// # use counterfoil_mpi::logged::{Destination, LoggedCommunicator, LoggedError, Request, Source};
/// # fn example(world: &LoggedCommunicator) -> Result<(), LoggedError> {
/// let mut receive = world.any_process().immediate_receive::<f64>(100)?;
/// let sending = world.process_at_rank(0)?.immediate_send(&[0.5, 1.5])?;
/// let (numbers, envelope) = loop {
///     match receive.test()? {
///         Ok(message) => break message,
///         Err(still_under_way) => receive = still_under_way,
///     }
/// };
/// sending.wait()?;
/// # Ok(())
/// # }
/// ```
pub trait Request: sealed::UnderWay<Gives = <Self as Request>::Output> + Sized {
    /// What it gives when it has ended.
    type Output;

    /// Waits until it ends.
    ///
    /// # Errors
    /// [`LoggedError`]: how it failed.
    fn wait(self) -> Result<Self::Output, LoggedError> {
        let ended = self.pending().wait();
        self.end(ended)
    }

    /// What it gives, if it has ended; itself, if it hasn't.
    ///
    /// # Errors
    /// As of [`wait`](Self::wait).
    fn test(self) -> Result<Result<Self::Output, Self>, LoggedError> {
        match self.pending().test() {
            Some(ended) => self.end(ended).map(Ok),
            None => {
                self.engine().borrow_mut().missed();
                Ok(Err(self))
            }
        }
    }

    /// Whether [`wait`](Self::wait) returns at once.
    ///
    /// # Errors
    /// [`LoggedError::Mpi`].
    fn is_ready(&self) -> Result<bool, LoggedError> {
        let is_ready = self.pending().is_ready()?;
        if !is_ready {
            self.engine().borrow_mut().missed();
        }
        Ok(is_ready)
    }

    /// The same, which gives what `change` makes of what this gives: so that requests of several kinds fit into one
    /// [`RequestCollection`](super::RequestCollection).
    fn map<U, F: FnOnce(Self::Output) -> U>(self, change: F) -> Mapped<Self, F> {
        Mapped { request: self, change }
    }
}

/// A request that gives something else: see [`Request::map`].
#[derive(Debug)]
#[must_use = "what is dropped may be called off"]
pub struct Mapped<R, F> {
    request: R,
    change: F,
}

impl<R: Request, U, F: FnOnce(R::Output) -> U> sealed::UnderWay for Mapped<R, F> {
    type Gives = U;

    fn pending(&self) -> &Pending {
        self.request.pending()
    }

    fn engine(&self) -> &Rc<RefCell<Engine>> {
        self.request.engine()
    }

    fn end(self, ended: Ended) -> Result<U, LoggedError> {
        self.request.end(ended).map(self.change)
    }
}

impl<R: Request, U, F: FnOnce(R::Output) -> U> Request for Mapped<R, F> {
    type Output = U;
}

/// Waits for a request when it is dropped, whatever comes of it.
#[derive(Debug)]
pub struct WaitGuard<R: Request>(Option<R>);

impl<R: Request> From<R> for WaitGuard<R> {
    fn from(request: R) -> WaitGuard<R> {
        WaitGuard(Some(request))
    }
}

impl<R: Request> Drop for WaitGuard<R> {
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            // Nobody is there to be told of an error.
            let _ = request.wait();
        }
    }
}

/// A message that is being sent. Who drops it lets it go on.
#[derive(Debug)]
pub struct SendRequest {
    pending: Pending,
    /// Its communicator isn't given up before.
    _comm: Rc<Shared>,
    engine: Rc<RefCell<Engine>>,
}

impl SendRequest {
    pub(super) fn new(pending: Pending, comm: &LoggedCommunicator) -> SendRequest {
        SendRequest { pending, _comm: Rc::clone(&comm.shared), engine: Rc::clone(&comm.engine) }
    }
}

impl sealed::UnderWay for SendRequest {
    type Gives = ();

    fn pending(&self) -> &Pending {
        &self.pending
    }

    fn engine(&self) -> &Rc<RefCell<Engine>> {
        &self.engine
    }

    fn end(self, ended: Ended) -> Result<(), LoggedError> {
        self.engine.borrow_mut().moves += 1;
        Ok(ended.result?)
    }
}

impl Request for SendRequest {
    type Output = ();
}

/// A receive's turn among those of its communicator, until it is over.
#[derive(Debug)]
pub(super) struct Turn {
    posted: Option<Posted>,
    comm: Rc<Shared>,
    engine: Rc<RefCell<Engine>>,
    is_open: bool,
}

impl Turn {
    pub(super) fn new(posted: Posted, comm: &LoggedCommunicator, is_open: bool) -> Turn {
        Turn { posted: Some(posted), comm: Rc::clone(&comm.shared), engine: Rc::clone(&comm.engine), is_open }
    }

    /// It is over, with this message or with none.
    pub(super) fn end(&mut self, taken: Option<Envelope>) -> Result<(), LoggedError> {
        let Some(posted) = self.posted.take() else { return Ok(()) };
        self.engine.borrow_mut().end_receive(&self.comm, posted, taken, self.is_open)
    }

    /// It has ended so: the message that was taken, which may be an error's.
    fn end_with(&mut self, ended: Ended) -> Result<Envelope, LoggedError> {
        self.end(ended.envelope)?;
        ended.result?;
        ended.envelope.ok_or(LoggedError::CalledOff)
    }

    /// Calls the receive off, if it is still under way; what had come is lost, and counts as received.
    fn call_off(&mut self, pending: &Pending) {
        if self.posted.is_some() {
            // Nobody is there to be told of an error; the next call is.
            let _ = self.end(pending.call_off().envelope);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nothing was received.
        let _ = self.end(None);
    }
}

/// A message that is being received, with memory of its own. Who drops it calls it off: a message that had come is lost then.
#[derive(Debug)]
#[must_use = "what is dropped is called off"]
pub struct ReceiveRequest<T> {
    pending: Pending,
    turn: Turn,
    of: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Clone> ReceiveRequest<T> {
    pub(super) fn new(pending: Pending, turn: Turn) -> ReceiveRequest<T> {
        ReceiveRequest { pending, turn, of: PhantomData }
    }

    /// Calls it off: `None`, or the message, if it had come before.
    ///
    /// # Errors
    /// As of [`wait`](Request::wait).
    pub fn cancel(self) -> Result<Option<(Vec<T>, Envelope)>, LoggedError> {
        let ended = self.pending.call_off();
        called_off(sealed::UnderWay::end(self, ended))
    }
}

fn called_off<T>(result: Result<T, LoggedError>) -> Result<Option<T>, LoggedError> {
    match result {
        Err(LoggedError::CalledOff) => Ok(None),
        result => result.map(Some),
    }
}

impl<T: FromBytes + IntoBytes + Clone> sealed::UnderWay for ReceiveRequest<T> {
    type Gives = (Vec<T>, Envelope);

    fn pending(&self) -> &Pending {
        &self.pending
    }

    fn engine(&self) -> &Rc<RefCell<Engine>> {
        &self.turn.engine
    }

    fn end(mut self, ended: Ended) -> Result<(Vec<T>, Envelope), LoggedError> {
        let envelope = self.turn.end_with(ended)?;
        let mut bytes = self.pending.take_bytes();
        bytes.truncate(envelope.len);
        Ok((elements(envelope, &bytes)?, envelope))
    }
}

/// Gives the message's elements, and whose it is. [`wait`](Request::wait) fails with [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE`, for
/// a longer message; with [`LoggedError::Elements`] for one that is no whole number of elements. Either is lost.
impl<T: FromBytes + IntoBytes + Clone> Request for ReceiveRequest<T> {
    type Output = (Vec<T>, Envelope);
}

impl<T> Drop for ReceiveRequest<T> {
    fn drop(&mut self) {
        self.turn.call_off(&self.pending);
    }
}

/// The elements that a message is.
pub(super) fn elements<T>(envelope: Envelope, bytes: &[u8]) -> Result<Vec<T>, LoggedError>
where
    T: FromBytes + IntoBytes + Clone,
{
    whole::<T>(envelope, None)?;
    let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
    elements.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
    Ok(elements)
}

/// A message that is being received into borrowed memory. Who drops it calls it off, as the end of its scope does: a message that had come
/// is lost then.
#[must_use = "what is dropped is called off"]
pub struct ReceiveIntoRequest<'a, B: ?Sized> {
    /// `None` behind the end.
    borrowed: Option<Borrowed<'a, B>>,
    pending: Rc<Pending>,
    turn: Turn,
}

impl<'a, B: ?Sized> ReceiveIntoRequest<'a, B> {
    pub(super) fn new(borrowed: Borrowed<'a, B>, turn: Turn) -> ReceiveIntoRequest<'a, B> {
        ReceiveIntoRequest { pending: Rc::clone(&borrowed.pending), borrowed: Some(borrowed), turn }
    }

    /// Calls it off: `None`, or the message, if it had come before.
    ///
    /// # Errors
    /// As of [`wait`](Request::wait).
    pub fn cancel(self) -> Result<Option<(&'a mut B, Envelope)>, LoggedError> {
        let ended = self.pending.call_off();
        called_off(sealed::UnderWay::end(self, ended))
    }
}

impl<'a, B: ?Sized> sealed::UnderWay for ReceiveIntoRequest<'a, B> {
    type Gives = (&'a mut B, Envelope);

    fn pending(&self) -> &Pending {
        &self.pending
    }

    fn engine(&self) -> &Rc<RefCell<Engine>> {
        &self.turn.engine
    }

    fn end(mut self, ended: Ended) -> Result<(&'a mut B, Envelope), LoggedError> {
        let envelope = self.turn.end_with(ended)?;
        let memory = self.borrowed.take().and_then(Borrowed::give_back);
        Ok((memory.ok_or(LoggedError::CalledOff)?, envelope))
    }
}

/// Gives the memory back, and says whose the message is. What is behind a shorter message stays as it was. [`wait`](Request::wait) fails
/// with [`LoggedError::Mpi`], of class `MPI_ERR_TRUNCATE`, for a longer message, whose end is lost; with [`LoggedError::CalledOff`] where
/// the scope has ended before.
impl<'a, B: ?Sized> Request for ReceiveIntoRequest<'a, B> {
    type Output = (&'a mut B, Envelope);
}

impl<B: ?Sized> Drop for ReceiveIntoRequest<'_, B> {
    fn drop(&mut self) {
        self.turn.call_off(&self.pending);
    }
}

impl<B: ?Sized> fmt::Debug for ReceiveIntoRequest<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveIntoRequest").field("pending", &self.pending).finish_non_exhaustive()
    }
}

/// A collective operation that goes on, in borrowed memory. Who drops it lets it go on to the end of its scope, which waits for it; who
/// drops a barrier, which has none, waits there. Gives the memory back that this rank gets something into.
pub struct CollectiveRequest<'a, B: ?Sized = ()> {
    borrowed: Borrowed<'a, B>,
    comm: Rc<Shared>,
    /// Which operation of the communicator it is.
    number: u64,
    engine: Rc<RefCell<Engine>>,
}

impl<'a, B: ?Sized> CollectiveRequest<'a, B> {
    /// The last that was begun on a communicator.
    pub(super) fn new(borrowed: Borrowed<'a, B>, comm: &LoggedCommunicator) -> CollectiveRequest<'a, B> {
        let (shared, engine) = (Rc::clone(&comm.shared), Rc::clone(&comm.engine));
        CollectiveRequest { borrowed, number: shared.collectives.get(), comm: shared, engine }
    }
}

impl<'a, B: ?Sized> sealed::UnderWay for CollectiveRequest<'a, B> {
    type Gives = &'a mut B;

    fn pending(&self) -> &Pending {
        &self.borrowed.pending
    }

    fn engine(&self) -> &Rc<RefCell<Engine>> {
        &self.engine
    }

    fn end(self, ended: Ended) -> Result<&'a mut B, LoggedError> {
        self.engine.borrow_mut().moves += 1;
        self.comm.waited.set(self.number.max(self.comm.waited.get()));
        ended.result?;
        self.borrowed.give_back().ok_or(LoggedError::CalledOff)
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

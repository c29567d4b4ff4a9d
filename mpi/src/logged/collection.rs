//! Collections of requests to complete together.

use std::fmt;

use counterfoil_mpi_logger::Determinant;

use super::carrier::Carrier;
use super::completion;
use super::error::LoggedError;
use super::pending::{LocalScope, Pending, scope};
use super::request::Request;
use super::request::sealed::Pend;
use crate::error::Outcome;

/// A type-erased request.
trait Slot<O> {
    fn pending(&self) -> &Pending;
    fn finish(self: Box<Self>, outcome: Outcome) -> Result<O, LoggedError>;
}

impl<R: Request> Slot<R::Output> for R {
    fn pending(&self) -> &Pending {
        Pend::pending(self)
    }

    fn finish(self: Box<Self>, outcome: Outcome) -> Result<R::Output, LoggedError> {
        Pend::finish(*self, outcome)
    }
}

/// Requests with the same result type, each identified by the index from [`add`](Self::add).
///
/// [`Request::map`] adapts requests of other types. Dropping the collection drops its requests.
///
/// If a request has failed, a method returns [`LoggedError::Request`] with its index. That request is removed from the
/// collection; the others can still be waited for.
///
/// ```no_run
/// # use counterfoil_mpi::logged::{Destination, LoggedCommunicator, LoggedError, Request, Source, multiple_scope};
/// # fn example(world: &LoggedCommunicator, rod: &mut [f64]) -> Result<(), LoggedError> {
/// let (left, right) = (world.process_at_rank(0)?, world.process_at_rank(2)?);
/// let [first, inner @ .., last] = rod else { return Ok(()) };
/// multiple_scope(4, |scope, requests| {
///     requests.add(left.immediate_receive_into(scope, first)?.map(|_| ()));
///     requests.add(right.immediate_receive_into(scope, last)?.map(|_| ()));
///     requests.add(left.immediate_send(&inner[0])?);
///     requests.add(right.immediate_send(&inner[inner.len() - 1])?);
///     requests.wait_all(&mut Vec::new())
/// })
/// # }
/// ```
pub struct RequestCollection<'r, O> {
    requests: Vec<Option<Box<dyn Slot<O> + 'r>>>,
    incomplete: usize,
}

impl<O> Default for RequestCollection<'_, O> {
    fn default() -> Self {
        RequestCollection { requests: Vec::new(), incomplete: 0 }
    }
}

impl<O> fmt::Debug for RequestCollection<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestCollection").field("incomplete", &self.incomplete).finish_non_exhaustive()
    }
}

/// Runs `f` with a [`scope`] and a collection with room for `reserve` requests.
///
/// Requests left in the collection when `f` returns are dropped before the scope ends.
pub fn multiple_scope<'a, F, R, O>(reserve: usize, f: F) -> R
where
    F: FnOnce(&LocalScope<'a>, &mut RequestCollection<'a, O>) -> R,
{
    scope(|scope| f(scope, &mut RequestCollection::with_capacity(reserve)))
}

impl<'r, O> RequestCollection<'r, O> {
    /// Creates an empty collection with room for this many requests.
    pub fn with_capacity(requests: usize) -> RequestCollection<'r, O> {
        RequestCollection { requests: Vec::with_capacity(requests), incomplete: 0 }
    }

    /// Adds a request and returns its index; indices count from 0.
    pub fn add(&mut self, request: impl Request<Output = O> + 'r) -> usize {
        self.requests.push(Some(Box::new(request)));
        self.incomplete += 1;
        self.requests.len() - 1
    }

    /// Returns the number of incomplete requests.
    pub fn incomplete(&self) -> usize {
        self.incomplete
    }

    /// Returns indices and operations of the incomplete requests.
    fn open(&self) -> (Vec<usize>, Vec<&Pending>) {
        let open = self.requests.iter().enumerate();
        open.filter_map(|(index, request)| Some((index, request.as_ref()?.pending()))).unzip()
    }

    /// Returns a request's carrier.
    fn carrier(&self) -> Option<&dyn Carrier> {
        self.requests.iter().flatten().next().map(|request| request.pending().carrier())
    }

    /// Logs the completed requests, where MPI had a choice.
    fn record(&self, completed: &[(usize, Outcome)]) {
        let Some(carrier) = self.carrier() else { return };
        if completed.is_empty() {
            carrier.count_failed_poll();
        } else if self.requests.len() > 1 {
            completed.iter().for_each(|(index, _)| carrier.record(Determinant::Completed { index: *index as u32 }));
        }
    }

    /// Removes the completed requests and adds their results to `result`; returns the first failure.
    fn finish(&mut self, completed: Vec<(usize, Outcome)>, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        let mut failed = Ok(());
        for (index, completion) in completed {
            let Some(request) = self.requests.get_mut(index).and_then(Option::take) else { continue };
            self.incomplete -= 1;
            match request.finish(completion) {
                Ok(output) => result.push((index, output)),
                Err(error) => failed = failed.and(Err(LoggedError::Request { index, error: Box::new(error) })),
            }
        }
        failed
    }

    fn any(&mut self, wait: bool) -> Result<Option<(usize, O)>, LoggedError> {
        let (indices, pending) = self.open();
        let completed = completion::any(&pending, wait)?;
        let completed: Vec<_> = completed.into_iter().map(|(at, completion)| (indices[at], completion)).collect();
        self.record(&completed);
        let mut result = Vec::new();
        self.finish(completed, &mut result)?;
        Ok(result.pop())
    }

    fn some(&mut self, wait: bool, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        result.clear();
        let (indices, pending) = self.open();
        let completed = completion::some(&pending, wait)?;
        let completed: Vec<_> = completed.into_iter().map(|(at, completion)| (indices[at], completion)).collect();
        self.record(&completed);
        self.finish(completed, result)
    }

    /// Completes all requests by one call; `None` if the call has completed none.
    fn all(&mut self, wait: bool, result: &mut Vec<(usize, O)>) -> Result<Option<()>, LoggedError> {
        let (indices, pending) = self.open();
        let Some(completed) = completion::all(&pending, wait)? else { return Ok(None) };
        let completed: Vec<_> =
            indices.into_iter().zip(completed).filter_map(|(index, completion)| Some((index, completion?))).collect();
        let progressed = !completed.is_empty();
        self.finish(completed, result)?;
        Ok(progressed.then_some(()))
    }

    /// Waits until a request completes; returns its index and result, or `None` if the collection has no request left.
    ///
    /// # Errors
    /// [`LoggedError::Request`]; another [`LoggedError`] concerns the call itself, and no request is removed.
    pub fn wait_any(&mut self) -> Result<Option<(usize, O)>, LoggedError> {
        if self.incomplete == 0 { Ok(None) } else { self.any(true) }
    }

    /// Returns a completed request's index and result, if there is one.
    ///
    /// # Errors
    /// Same as [`wait_any`](Self::wait_any).
    pub fn test_any(&mut self) -> Result<Option<(usize, O)>, LoggedError> {
        if self.incomplete == 0 { Ok(None) } else { self.any(false) }
    }

    /// Waits until at least one request completes, and replaces `result` by the indices and results of the completed
    /// ones.
    ///
    /// It is empty if the collection has no request left.
    ///
    /// # Errors
    /// Same as [`wait_any`](Self::wait_any); requests that did not fail are in `result`.
    pub fn wait_some(&mut self, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        self.some(true, result)
    }

    /// Replaces `result` by the indices and results of the completed requests, without waiting.
    ///
    /// # Errors
    /// Same as [`wait_some`](Self::wait_some).
    pub fn test_some(&mut self, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        self.some(false, result)
    }

    /// Waits until all requests complete, and replaces `result` by their indices and results.
    ///
    /// # Errors
    /// Same as [`wait_some`](Self::wait_some); the first failure of several.
    pub fn wait_all(&mut self, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        result.clear();
        let mut failed = Ok(());
        while self.incomplete > 0 {
            let left = self.incomplete;
            failed = failed.and(self.all(true, result).map(drop));
            if self.incomplete == left {
                break;
            }
        }
        failed
    }

    /// Returns `true` if all requests are complete, with their indices and results in `result`; otherwise `result` is
    /// empty.
    ///
    /// # Errors
    /// Same as [`wait_all`](Self::wait_all).
    pub fn test_all(&mut self, result: &mut Vec<(usize, O)>) -> Result<bool, LoggedError> {
        result.clear();
        if self.incomplete > 0 && self.all(false, result)?.is_none() {
            if let Some(carrier) = self.carrier() {
                carrier.count_failed_poll();
            }
            return Ok(false);
        }
        Ok(self.incomplete == 0)
    }
}

/// Waits until one of `requests` completes, removes it, and returns its index and result.
///
/// `None` if there are no requests.
///
/// # Errors
/// [`LoggedError::Request`] if the request failed; it is removed. Another [`LoggedError`] concerns the call itself, and
/// no request is removed.
pub fn wait_any<R: Request>(requests: &mut Vec<R>) -> Result<Option<(usize, R::Output)>, LoggedError> {
    let pending: Vec<_> = requests.iter().map(Pend::pending).collect();
    let Some((index, completion)) = completion::any(&pending, true)? else { return Ok(None) };
    let several = requests.len() > 1;
    let request = requests.remove(index);
    if several {
        Pend::pending(&request).carrier().record(Determinant::Completed { index: index as u32 });
    }
    let output =
        Pend::finish(request, completion).map_err(|error| LoggedError::Request { index, error: Box::new(error) })?;
    Ok(Some((index, output)))
}

//! Several operations that are waited for together.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::choices::Choice;
use super::engine::Engine;
use super::error::LoggedError;
use super::request::Request;
use super::request::sealed::UnderWay;
use crate::completion;
use crate::request::{Ended, LocalScope, Pending, scope};

/// A request whose kind is forgotten.
trait Slot<O> {
    fn pending(&self) -> &Pending;
    fn engine(&self) -> &Rc<RefCell<Engine>>;
    fn end(self: Box<Self>, ended: Ended) -> Result<O, LoggedError>;
}

impl<R: Request> Slot<R::Output> for R {
    fn pending(&self) -> &Pending {
        UnderWay::pending(self)
    }

    fn engine(&self) -> &Rc<RefCell<Engine>> {
        UnderWay::engine(self)
    }

    fn end(self: Box<Self>, ended: Ended) -> Result<R::Output, LoggedError> {
        UnderWay::end(*self, ended)
    }
}

/// Requests that give the same kind of thing, each known by the number that [`add`](Self::add) has given it. [`Request::map`] makes
/// requests of several kinds alike. Dropping it drops each of them.
///
/// A method that finds that a request has failed says so with [`LoggedError::Request`], which has its number: that one is out of the
/// collection then, and the others can be waited for.
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

/// As [`scope`], with room for `reserve` requests in a collection. What is in it when `f` returns is dropped before the scope ends.
pub fn multiple_scope<'a, F, R, O>(reserve: usize, f: F) -> R
where
    F: FnOnce(&LocalScope<'a>, &mut RequestCollection<'a, O>) -> R,
{
    scope(|scope| f(scope, &mut RequestCollection::with_capacity(reserve)))
}

impl<'r, O> RequestCollection<'r, O> {
    /// An empty one, with room for so many requests.
    pub fn with_capacity(requests: usize) -> RequestCollection<'r, O> {
        RequestCollection { requests: Vec::with_capacity(requests), incomplete: 0 }
    }

    /// Takes a request in, and gives its number: from 0, one for each.
    pub fn add(&mut self, request: impl Request<Output = O> + 'r) -> usize {
        self.requests.push(Some(Box::new(request)));
        self.incomplete += 1;
        self.requests.len() - 1
    }

    /// How many have not ended yet.
    pub fn incomplete(&self) -> usize {
        self.incomplete
    }

    /// The numbers of those that have not ended, and what they do.
    fn open(&self) -> (Vec<usize>, Vec<&Pending>) {
        let open = self.requests.iter().enumerate();
        open.filter_map(|(number, request)| Some((number, request.as_ref()?.pending()))).unzip()
    }

    fn engine(&self) -> Option<Rc<RefCell<Engine>>> {
        self.requests.iter().flatten().next().map(|request| Rc::clone(request.engine()))
    }

    /// Records which have ended, where that was left to MPI.
    fn decide(&self, engine: Option<&Rc<RefCell<Engine>>>, ended: &[(usize, Ended)]) -> Result<(), LoggedError> {
        let Some(engine) = engine else { return Ok(()) };
        let mut engine = engine.borrow_mut();
        if ended.is_empty() {
            engine.missed();
        } else if self.requests.len() > 1 {
            ended.iter().try_for_each(|(index, _)| engine.decide(Choice::Ended { index: *index }))?;
        }
        Ok(())
    }

    /// Takes those out that have ended; the first failure, if one has failed.
    fn end(&mut self, ended: Vec<(usize, Ended)>, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        let mut failed = Ok(());
        for (index, how) in ended {
            let Some(request) = self.requests.get_mut(index).and_then(Option::take) else { continue };
            self.incomplete -= 1;
            match request.end(how) {
                Ok(output) => result.push((index, output)),
                Err(error) => failed = failed.and(Err(LoggedError::Request { index, error: Box::new(error) })),
            }
        }
        failed
    }

    fn any(&mut self, wait: bool) -> Result<Option<(usize, O)>, LoggedError> {
        let (numbers, pending) = self.open();
        let ended = completion::any(&pending, wait)?;
        let ended: Vec<_> = ended.into_iter().map(|(at, ended)| (numbers[at], ended)).collect();
        let (decided, mut result) = (self.decide(self.engine().as_ref(), &ended), Vec::new());
        self.end(ended, &mut result).and(decided)?;
        Ok(result.pop())
    }

    fn some(&mut self, wait: bool, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        result.clear();
        let (numbers, pending) = self.open();
        let ended = completion::some(&pending, wait)?;
        let ended: Vec<_> = ended.into_iter().map(|(at, ended)| (numbers[at], ended)).collect();
        let decided = self.decide(self.engine().as_ref(), &ended);
        self.end(ended, result).and(decided)
    }

    /// Those that a call for all of them has ended; `None` if it has ended none.
    fn all(&mut self, wait: bool, result: &mut Vec<(usize, O)>) -> Result<Option<()>, LoggedError> {
        let (numbers, pending) = self.open();
        let Some(ended) = completion::all(&pending, wait)? else { return Ok(None) };
        let ended: Vec<_> = numbers.into_iter().zip(ended).filter_map(|(at, ended)| Some((at, ended?))).collect();
        let has_ended = !ended.is_empty();
        self.end(ended, result)?;
        Ok(has_ended.then_some(()))
    }

    /// Waits until one has ended: its number, and what it gives. `None` if all have ended before.
    ///
    /// # Errors
    /// [`LoggedError::Request`]; [`LoggedError`] of all of them, and none has been taken out.
    pub fn wait_any(&mut self) -> Result<Option<(usize, O)>, LoggedError> {
        if self.incomplete == 0 { Ok(None) } else { self.any(true) }
    }

    /// One that has ended, if one has.
    ///
    /// # Errors
    /// As of [`wait_any`](Self::wait_any).
    pub fn test_any(&mut self) -> Result<Option<(usize, O)>, LoggedError> {
        if self.incomplete == 0 { Ok(None) } else { self.any(false) }
    }

    /// Waits until at least one has ended; `result` has those that have, and what they give, in place of what was in it. It stays empty if
    /// all have ended before.
    ///
    /// # Errors
    /// As of [`wait_any`](Self::wait_any); those that did not fail are in `result`.
    pub fn wait_some(&mut self, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        self.some(true, result)
    }

    /// `result` has those that have ended, and what they give, in place of what was in it.
    ///
    /// # Errors
    /// As of [`wait_some`](Self::wait_some).
    pub fn test_some(&mut self, result: &mut Vec<(usize, O)>) -> Result<(), LoggedError> {
        self.some(false, result)
    }

    /// Waits until all have ended; `result` has what they give, in place of what was in it.
    ///
    /// # Errors
    /// As of [`wait_some`](Self::wait_some); the first failure of several.
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

    /// Whether all have ended; `result` has what they give then, and nothing before.
    ///
    /// # Errors
    /// As of [`wait_all`](Self::wait_all).
    pub fn test_all(&mut self, result: &mut Vec<(usize, O)>) -> Result<bool, LoggedError> {
        result.clear();
        if self.incomplete > 0 && self.all(false, result)?.is_none() {
            if let Some(engine) = self.engine() {
                engine.borrow_mut().missed();
            }
            return Ok(false);
        }
        Ok(self.incomplete == 0)
    }
}

/// Waits until one of several has ended, and takes it out: its place, and what it gives. `None` if there is none.
///
/// # Errors
/// [`LoggedError::Request`], and it is taken out; [`LoggedError`], and none is.
pub fn wait_any<R: Request>(requests: &mut Vec<R>) -> Result<Option<(usize, R::Output)>, LoggedError> {
    let pending: Vec<_> = requests.iter().map(UnderWay::pending).collect();
    let Some((index, ended)) = completion::any(&pending, true)? else { return Ok(None) };
    let several = requests.len() > 1;
    let request = requests.remove(index);
    let engine = Rc::clone(UnderWay::engine(&request));
    let decided = if several { engine.borrow_mut().decide(Choice::Ended { index }) } else { Ok(()) };
    let output =
        UnderWay::end(request, ended).map_err(|error| LoggedError::Request { index, error: Box::new(error) })?;
    decided.map(|()| Some((index, output)))
}

//! Requests of the program: what is pending, and what has its outcome.
//!
//! An outcome that depends on timing is the endpoint's: `wait_any` and `test_any` record it before the program sees it.
//! A request that is complete without the endpoint (a send, an operation whose outcome was taken before) is found in
//! the order of the program's array, which a repetition repeats.
//!
//! # Safety
//! The unsafe functions take the program's own arguments, given in an MPI call that has not returned. They point to
//! what MPI demands, until the call, or the request that it makes, has ended.

mod wait;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

use bytes::Bytes;
use counterfoil_runtime::communicator::{Communicator, Request, Status};
use mpi_sys as ffi;

use crate::comms::Comm;
use crate::failure::Failure;
use crate::front::Front;
use crate::handle::{number_of, of_number};
use crate::memory::Kept;
use crate::slab::Slab;
use crate::status::Outcome;

pub(crate) use wait::{request_status, test, test_all, test_any, test_some, wait, wait_all, wait_any, wait_some};

/// Number of the handle of sends that are complete from the start.
const SENT: u32 = (1 << 28) - 1;
/// Begins the operation of a persistent request.
pub(crate) type Begin = Rc<dyn Fn(&Front) -> Result<State, Failure>>;
/// Sends the message of a partitioned send.
type Send = Rc<dyn Fn(&Front) -> Result<(), Failure>>;
/// Stores the messages of an operation.
type Store = Box<dyn FnOnce(&Front, &[Bytes]) -> Result<(), Failure>>;

/// What becomes of the messages of an operation.
pub(crate) enum Finish {
    /// The operation is a send.
    Sent,
    /// Its message goes to the program's memory.
    Receive(Rc<Comm>, Kept),
    /// Its messages are those of a collective operation.
    Collective(Store),
}

/// An operation under way.
pub(crate) struct Pending {
    /// The endpoint's requests, in the order in which their messages are wanted.
    pub(crate) requests: Vec<Request>,
    pub(crate) finish: Finish,
}

/// A partitioned send under way.
pub(crate) struct Parts {
    is_ready: Vec<bool>,
    left: usize,
    send: Send,
}

/// A generalized request, which the program completes.
pub(crate) struct Generalized {
    query: ffi::MPI_Grequest_query_function,
    free: ffi::MPI_Grequest_free_function,
    cancel: ffi::MPI_Grequest_cancel_function,
    state: *mut c_void,
    is_complete: Rc<Cell<bool>>,
}

/// State of a request.
pub(crate) enum State {
    /// Persistent, and not started.
    Inactive,
    /// Complete.
    Done(Outcome),
    Pending(Pending),
    Parts(Parts),
    Generalized(Generalized),
}

/// A request.
struct Entry {
    /// Communicator whose error handler gets its errors.
    comm: ffi::MPI_Comm,
    /// What a persistent request starts.
    begin: Option<Begin>,
    state: State,
}

/// Requests of the program.
#[derive(Default)]
pub(crate) struct Requests {
    entries: Slab<Entry>,
    /// Receives that the program has freed, and that still write to its memory.
    orphans: Vec<Pending>,
    /// Persistent ones that the program had when it was set up, and has not freed: a replacement has them.
    of_set_up: BTreeSet<u32>,
}

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Null,
    Sent,
    Entry(u32),
}

fn null() -> ffi::MPI_Request {
    // SAFETY: a constant of the shim.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// Returns the handle of a send that is complete.
pub(crate) fn sent() -> ffi::MPI_Request {
    of_number(SENT)
}

/// Returns a state for what is complete from the start.
pub(crate) fn done() -> State {
    State::Done(Outcome::empty())
}

impl Requests {
    /// Notes that the program is set up.
    pub(crate) fn end_set_up(&mut self) {
        self.of_set_up = self.entries.numbers().collect();
    }

    /// Returns `true` if all are persistent ones from the set-up, and none is started.
    pub(crate) fn are_those_of_set_up(&self) -> bool {
        let is_kept = |number: u32| {
            let entry = self.entries.get(number);
            self.of_set_up.contains(&number) && entry.is_some_and(|entry| matches!(entry.state, State::Inactive))
        };
        self.orphans.is_empty() && self.entries.numbers().all(is_kept)
    }

    /// Leaves what a checkpoint has: persistent requests that aren't started.
    pub(crate) fn resume(&mut self) {
        self.orphans.clear();
        for number in self.entries.numbers().collect::<Vec<_>>() {
            match self.entries.get_mut(number) {
                Some(entry) if entry.begin.is_some() => entry.state = State::Inactive,
                _ => drop(self.remove(number)),
            }
        }
    }

    fn remove(&mut self, number: u32) -> Option<Entry> {
        self.of_set_up.remove(&number);
        self.entries.remove(number)
    }

    fn find(&self, handle: ffi::MPI_Request) -> Result<Named, Failure> {
        match number_of(handle) {
            _ if handle == null() => Ok(Named::Null),
            Some(SENT) => Ok(Named::Sent),
            Some(number) if self.entries.get(number).is_some() => Ok(Named::Entry(number)),
            _ => Err(Failure::class(ffi::MPI_ERR_REQUEST)),
        }
    }

    fn state(&self, named: Named) -> Option<&State> {
        match named {
            Named::Entry(number) => self.entries.get(number).map(|entry| &entry.state),
            Named::Null | Named::Sent => None,
        }
    }

    /// Returns `true` if the request takes no part in a wait: null, or persistent and not started.
    fn is_inactive(&self, named: Named) -> bool {
        named == Named::Null || matches!(self.state(named), Some(State::Inactive))
    }

    /// Returns `true` if the request is complete, whatever arrives.
    fn is_done(&self, named: Named) -> bool {
        match self.state(named) {
            Some(State::Done(_)) => true,
            Some(State::Generalized(generalized)) => generalized.is_complete.get(),
            Some(_) => false,
            None => named == Named::Sent,
        }
    }

    /// Returns the endpoint's requests of a pending one.
    fn pending(&self, named: Named) -> Option<&[Request]> {
        match self.state(named) {
            Some(State::Pending(pending)) => Some(&pending.requests),
            _ => None,
        }
    }
}

impl Front {
    /// Adds a request; returns its handle.
    pub(crate) fn add_request(&self, comm: ffi::MPI_Comm, state: State) -> ffi::MPI_Request {
        of_number(self.requests.borrow_mut().entries.add(Entry { comm, begin: None, state }))
    }

    /// Adds a persistent request; returns its handle.
    pub(crate) fn add_persistent(&self, comm: ffi::MPI_Comm, begin: Begin) -> ffi::MPI_Request {
        let entry = Entry { comm, begin: Some(begin), state: State::Inactive };
        of_number(self.requests.borrow_mut().entries.add(entry))
    }

    /// Returns the outcome of an operation, after it has ended.
    pub(crate) fn complete(&self, pending: Pending) -> Result<Outcome, Failure> {
        let Pending { requests, finish } = pending;
        let mut received = requests.into_iter().map(|request| self.process.call(|endpoint| endpoint.wait(request)));
        match finish {
            Finish::Sent => received.try_for_each(|one| one.map(drop))?,
            Finish::Receive(comm, kept) => {
                let Some(one) = received.next() else { return Ok(Outcome::empty()) };
                let (status, message) = one?;
                return self.store(&comm, &kept, status, &message);
            }
            Finish::Collective(store) => {
                let messages: Vec<Bytes> =
                    received.map(|one| one.map(|(_, message)| message)).collect::<Result<_, _>>()?;
                if let Err(failure) = store(self, &messages) {
                    return match failure {
                        Failure::Mpi { code, .. } => Ok(Outcome { code, ..Outcome::empty() }),
                        other => Err(other),
                    };
                }
            }
        }
        Ok(Outcome::empty())
    }

    /// Stores a received message; one that is too long is truncated, which is an error.
    pub(crate) fn store(&self, comm: &Comm, kept: &Kept, status: Status, message: &[u8]) -> Result<Outcome, Failure> {
        // SAFETY: the program's memory, which it has given to a receive that ends now.
        let len = unsafe { kept.memory.unpack(message, self.private) }?;
        let code = if len < message.len() { ffi::MPI_ERR_TRUNCATE as c_int } else { 0 };
        let source = comm.context.rank_of(status.source) as c_int;
        Ok(Outcome { source, tag: status.tag, len, code, ..Outcome::empty() })
    }

    /// Returns the outcome of a request, after its operation has ended.
    pub(crate) fn outcome(&self, state: State) -> Result<Outcome, Failure> {
        match state {
            State::Inactive => Ok(Outcome::empty()),
            State::Done(outcome) => Ok(outcome),
            State::Pending(pending) => self.complete(pending),
            State::Parts(Parts { left, .. }) => Err(Failure::Fatal(format!(
                "a partitioned send is waited for, and {left} of its partitions are not ready"
            ))),
            State::Generalized(generalized) => Ok(generalized.take()),
        }
    }

    /// Takes a request that is complete or whose end is waited for: returns its outcome and the communicator for its
    /// errors. The handle becomes null, unless the request is persistent.
    fn take(&self, handle: &mut ffi::MPI_Request, named: Named) -> Result<(Outcome, ffi::MPI_Comm), Failure> {
        let Named::Entry(number) = named else {
            *handle = null();
            return Ok((Outcome::empty(), self.world.handle));
        };
        let mut requests = self.requests.borrow_mut();
        let Some(entry) = requests.entries.get_mut(number) else { return Err(Failure::class(ffi::MPI_ERR_REQUEST)) };
        let (comm, is_persistent) = (entry.comm, entry.begin.is_some());
        let state = std::mem::replace(&mut entry.state, State::Inactive);
        if !is_persistent {
            requests.remove(number);
            *handle = null();
        }
        drop(requests);
        Ok((self.outcome(state)?, comm))
    }

    /// Lets receives that the program has freed store what has arrived.
    pub(crate) fn settle_orphans(&self) -> Result<(), Failure> {
        loop {
            let mut requests = self.requests.borrow_mut();
            if requests.orphans.is_empty() {
                return Ok(());
            }
            let lists: Vec<Vec<&Request>> =
                requests.orphans.iter().map(|pending| pending.requests.iter().collect()).collect();
            let lists: Vec<&[&Request]> = lists.iter().map(Vec::as_slice).collect();
            let Some(index) = self.process.call(|endpoint| endpoint.test_any(&lists))? else { return Ok(()) };
            let ended = requests.orphans.swap_remove(index);
            drop(requests);
            self.complete(ended)?;
        }
    }
}

impl Generalized {
    /// Asks the program for the status, and lets it free its state.
    fn take(self) -> Outcome {
        // SAFETY: integers, for which zero is a value.
        let mut status: ffi::MPI_Status = unsafe { std::mem::zeroed() };
        let mut code = 0;
        Outcome::empty_into(&mut status);
        // SAFETY: the program's functions, with the state that it has given for them.
        unsafe {
            if let Some(query) = self.query {
                code = query(self.state, &raw mut status);
            }
            if let Some(free) = self.free {
                free(self.state);
            }
        }
        Outcome { code, own: Some(Box::new(status)), ..Outcome::empty() }
    }
}

impl Outcome {
    fn empty_into(status: &mut ffi::MPI_Status) {
        // SAFETY: a local status.
        unsafe { Outcome::empty().store(status) };
    }

    /// Stores it in the status of a call that completes one request.
    ///
    /// # Errors
    /// The error of the operation.
    ///
    /// # Safety
    /// The program's status.
    unsafe fn end(&self, status: *mut ffi::MPI_Status, comm: ffi::MPI_Comm) -> Result<(), Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.store(status) };
        Failure::check(self.code).map_err(|failure| failure.on(comm))
    }
}

/// Returns the program's array of handles.
///
/// # Safety
/// The array has that many.
unsafe fn handles<'a>(count: c_int, requests: *mut ffi::MPI_Request) -> Result<&'a mut [ffi::MPI_Request], Failure> {
    match usize::try_from(count) {
        Err(_) => Err(Failure::class(ffi::MPI_ERR_ARG)),
        Ok(0) => Ok(&mut []),
        // SAFETY: the caller's promise.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts_mut(requests, count) }),
    }
}

/// Calls of the class `start`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn start(front: &Front, request: *mut ffi::MPI_Request) -> Result<(), Failure> {
    // SAFETY: the program's handle.
    let named = front.requests.borrow().find(unsafe { *request })?;
    let wrong = || Failure::class(ffi::MPI_ERR_REQUEST);
    let Named::Entry(number) = named else { return Err(wrong()) };
    let begin = match front.requests.borrow().entries.get(number) {
        Some(Entry { begin: Some(begin), state: State::Inactive, .. }) => Rc::clone(begin),
        _ => return Err(wrong()),
    };
    let state = begin(front)?;
    if let Some(entry) = front.requests.borrow_mut().entries.get_mut(number) {
        entry.state = state;
    }
    Ok(())
}

/// Calls of the class `start_all`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn start_all(front: &Front, count: c_int, requests: *mut ffi::MPI_Request) -> Result<(), Failure> {
    // SAFETY: the program's array.
    unsafe { handles(count, requests)?.iter_mut().try_for_each(|request| start(front, request)) }
}

/// Calls of the class `request_free`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn request_free(front: &Front, request: *mut ffi::MPI_Request) -> Result<(), Failure> {
    // SAFETY: the program's handle.
    unsafe {
        let named = front.requests.borrow().find(*request)?;
        if named == Named::Null {
            return Err(Failure::class(ffi::MPI_ERR_REQUEST));
        }
        *request = null();
        let Named::Entry(number) = named else { return Ok(()) };
        let removed = front.requests.borrow_mut().remove(number);
        match removed.map(|entry| entry.state) {
            Some(State::Pending(Pending { requests, finish: Finish::Sent })) => {
                for sent in requests {
                    front.process.call(|endpoint| {
                        endpoint.free_send(sent);
                        Ok(())
                    })?;
                }
            }
            Some(State::Pending(pending)) => front.requests.borrow_mut().orphans.push(pending),
            _ => {}
        }
        Ok(())
    }
}

/// Calls of the class `cancel`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn cancel(front: &Front, request: *mut ffi::MPI_Request) -> Result<(), Failure> {
    // SAFETY: the program's handle.
    let named = front.requests.borrow().find(unsafe { *request })?;
    let Named::Entry(number) = named else {
        return if named == Named::Null { Err(Failure::class(ffi::MPI_ERR_REQUEST)) } else { Ok(()) };
    };
    let mut requests = front.requests.borrow_mut();
    let Some(entry) = requests.entries.get_mut(number) else { return Ok(()) };
    match std::mem::replace(&mut entry.state, State::Inactive) {
        // A send and a collective operation aren't cancelled.
        State::Pending(Pending { requests: mut own, finish: Finish::Receive(comm, kept) }) if own.len() == 1 => {
            drop(requests);
            let taken = match own.pop() {
                Some(request) => front.process.call(|endpoint| endpoint.cancel(request))?,
                None => None,
            };
            let outcome = match taken {
                Some((status, message)) => front.store(&comm, &kept, status, &message)?,
                None => Outcome { is_cancelled: true, ..Outcome::empty() },
            };
            if let Some(entry) = front.requests.borrow_mut().entries.get_mut(number) {
                entry.state = State::Done(outcome);
            }
        }
        State::Generalized(generalized) => {
            let (cancel, state, is_complete) = (generalized.cancel, generalized.state, generalized.is_complete.get());
            entry.state = State::Generalized(generalized);
            drop(requests);
            if let Some(cancel) = cancel {
                // SAFETY: the program's function, with the state that it has given for it.
                Failure::check(unsafe { cancel(state, c_int::from(is_complete)) })?;
            }
        }
        other => entry.state = other,
    }
    Ok(())
}

/// # Safety
/// See the [module](self).
pub(crate) unsafe fn grequest_start(
    front: &Front,
    query: ffi::MPI_Grequest_query_function,
    free: ffi::MPI_Grequest_free_function,
    cancel: ffi::MPI_Grequest_cancel_function,
    state: *mut c_void,
    request: *mut ffi::MPI_Request,
) -> Result<(), Failure> {
    let generalized = Generalized { query, free, cancel, state, is_complete: Rc::default() };
    // SAFETY: the program's variable.
    unsafe { *request = front.add_request(front.world.handle, State::Generalized(generalized)) };
    Ok(())
}

/// `MPI_Grequest_complete`.
pub(crate) fn complete_generalized(front: &Front, request: ffi::MPI_Request) -> Result<(), Failure> {
    let requests = front.requests.borrow();
    match requests.state(requests.find(request)?) {
        Some(State::Generalized(generalized)) => {
            generalized.is_complete.set(true);
            Ok(())
        }
        _ => Err(Failure::class(ffi::MPI_ERR_REQUEST)),
    }
}

/// Returns the state of a partitioned send that is started.
pub(crate) fn partitions(number: usize, send: Send) -> State {
    State::Parts(Parts { is_ready: vec![false; number], left: number, send })
}

/// `MPI_Pready`: the message leaves when all its partitions are ready.
pub(crate) fn ready(front: &Front, partition: c_int, request: ffi::MPI_Request) -> Result<(), Failure> {
    let mut requests = front.requests.borrow_mut();
    let wrong = || Failure::class(ffi::MPI_ERR_REQUEST);
    let Named::Entry(number) = requests.find(request)? else { return Err(wrong()) };
    let Some(Entry { state: State::Parts(parts), .. }) = requests.entries.get_mut(number) else { return Err(wrong()) };
    let ready = usize::try_from(partition).ok().and_then(|partition| parts.is_ready.get_mut(partition));
    let Some(ready) = ready else { return Err(Failure::class(ffi::MPI_ERR_ARG)) };
    if !std::mem::replace(ready, true) {
        parts.left -= 1;
    }
    if parts.left > 0 {
        return Ok(());
    }
    let send = Rc::clone(&parts.send);
    drop(requests);
    send(front)?;
    if let Some(entry) = front.requests.borrow_mut().entries.get_mut(number) {
        entry.state = done();
    }
    Ok(())
}

/// `MPI_Parrived`: a partition has arrived with all others.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn arrived(front: &Front, request: ffi::MPI_Request, flag: *mut c_int) -> Result<(), Failure> {
    // SAFETY: the program's variable; and the status is ignored.
    unsafe { request_status(front, request, flag, ffi::RSMPI_STATUS_IGNORE) }
}

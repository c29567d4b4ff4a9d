//! The program's requests: pending ones, and those with an outcome.
//!
//! Outcomes depending on timing come from the endpoint: `wait_any` and `test_any` record them before the program sees
//! them. A request complete without the endpoint (a send, an operation whose outcome was taken before) is found in the
//! order of the program's array, which a repetition repeats.
//!
//! # Safety
//! The unsafe functions take the program's own arguments to an MPI call still in progress. Pointers are valid as MPI
//! demands, until the call, or the request made by it, has ended.

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

/// Handle number for sends complete from the start.
const SENT: u32 = (1 << 28) - 1;
/// Begins a persistent request's operation.
pub(crate) type Begin = Rc<dyn Fn(&Front) -> Result<State, Failure>>;
/// Sends a partitioned send's message.
type Send = Rc<dyn Fn(&Front) -> Result<(), Failure>>;
/// Stores an operation's messages.
type Store = Box<dyn FnOnce(&Front, &[Bytes]) -> Result<(), Failure>>;

/// Destination of an operation's messages.
pub(crate) enum Finish {
    /// The operation is a send.
    Sent,
    /// Its message goes to the program's memory.
    Receive(Rc<Comm>, Kept),
    /// Its messages belong to a collective operation.
    Collective(Store),
}

/// A pending operation.
pub(crate) struct Pending {
    /// The endpoint's requests, in the order of their expected messages.
    pub(crate) requests: Vec<Request>,
    pub(crate) finish: Finish,
}

/// A pending partitioned send.
pub(crate) struct Parts {
    is_ready: Vec<bool>,
    left: usize,
    send: Send,
}

/// A generalized request, completed by the program.
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
    /// Operation started by a persistent request.
    begin: Option<Begin>,
    state: State,
}

/// The program's requests.
#[derive(Default)]
pub(crate) struct Requests {
    entries: Slab<Entry>,
    /// Receives freed by the program that still write to its memory.
    orphans: Vec<Pending>,
    /// Persistent requests made before the program was set up and not freed: a replacement has them.
    of_set_up: BTreeSet<u32>,
}

/// Meaning of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Null,
    Sent,
    Entry(u32),
}

fn null() -> ffi::MPI_Request {
    // SAFETY: a shim constant.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// Returns the handle for a completed send.
pub(crate) fn sent() -> ffi::MPI_Request {
    of_number(SENT)
}

/// Returns the state for operations complete from the start.
pub(crate) fn done() -> State {
    State::Done(Outcome::empty())
}

impl Requests {
    /// Records that the program is set up.
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

    /// Leaves the contents of a checkpoint: persistent requests that aren't started.
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

    /// Returns a pending request's endpoint requests.
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

    /// Returns an operation's outcome, after it has ended.
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

    /// Stores a received message; a longer one is truncated, which is an error.
    pub(crate) fn store(&self, comm: &Comm, kept: &Kept, status: Status, message: &[u8]) -> Result<Outcome, Failure> {
        // SAFETY: the program's memory, given to a receive that ends now.
        let len = unsafe { kept.memory.unpack(message, self.private) }?;
        let code = if len < message.len() { ffi::MPI_ERR_TRUNCATE as c_int } else { 0 };
        let source = comm.context.rank_of(status.source) as c_int;
        Ok(Outcome { source, tag: status.tag, len, code, ..Outcome::empty() })
    }

    /// Returns a request's outcome, after its operation has ended.
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

    /// Takes a request that is complete or being waited for; returns its outcome and the communicator for its errors.
    ///
    /// The handle becomes null, unless the request is persistent.
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

    /// Lets receives freed by the program store arrived messages.
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
        // SAFETY: the program's functions, with the state given for them.
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

    /// Stores it in the status of a call completing one request.
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

/// Implements call class `start`.
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

/// Implements call class `start_all`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn start_all(front: &Front, count: c_int, requests: *mut ffi::MPI_Request) -> Result<(), Failure> {
    // SAFETY: the program's array.
    unsafe { handles(count, requests)?.iter_mut().try_for_each(|request| start(front, request)) }
}

/// Implements call class `request_free`.
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

/// Implements call class `cancel`.
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
                // SAFETY: the program's function, with the state given for it.
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
    // It may get the number of one that the last test counted as complete.
    front.last_test.forget();
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

/// Returns the state of a started partitioned send.
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

//! Requests that are waited for and tested.

use std::ffi::c_int;

use mpi_sys as ffi;
use smallvec::SmallVec;

use super::receive::{has_taken, taken};
use super::requests::outcome;
use super::status::{Statuses, blank, is_cancelled, statuses_wanted, wanted};
use crate::session::put_off::{PutOff, has_posted};
use crate::session::requests::{Pending, Persistent, Receiving, Repeated, are_receives, are_there, handles};
use crate::session::{
    Choice, FullError, Session, catch_up_if_due, enter, is_together, may_put_off, put_off, records_choices,
};

/// A request that a call may end, and what it stands for.
struct Held {
    /// Its place in the program's array.
    index: usize,
    request: ffi::MPI_Request,
    pending: Pending,
}

/// What a call may end, as it was before: the call takes the handles away of what has ended.
#[expect(clippy::large_enum_variant, reason = "it stays where it is made, on the stack of a call")]
enum Before {
    /// Nothing that is known.
    Nothing,
    /// A handle, where one thread at a time calls.
    Handle(ffi::MPI_Request),
    /// Several of them.
    Handles(SmallVec<[ffi::MPI_Request; 32]>),
    /// What is known, taken out: another thread may get the same handle for a new request as soon as the old one has ended.
    Held(Vec<Held>),
}

impl Session {
    fn hold(&mut self, requests: &[ffi::MPI_Request]) -> Vec<Held> {
        let mut held = Vec::new();
        for (index, &request) in requests.iter().enumerate() {
            if let Some(pending) = self.requests.end(request) {
                held.push(Held { index, request, pending });
            }
        }
        held
    }

    /// It hasn't ended.
    fn put_back(&mut self, held: Held) {
        self.requests.add(
            held.request,
            match held.pending {
                Pending::Persistent(persistent) => Pending::Persistent(Persistent { is_active: true, ..persistent }),
                pending => pending,
            },
        );
    }

    /// It has ended with this status.
    fn ended(&mut self, pending: &Pending, status: &ffi::MPI_Status) -> Result<(), (ffi::MPI_Comm, FullError)> {
        match pending {
            Pending::Receive(receiving) => self.ended_receive(*receiving, status),
            Pending::Comm { at, number } => {
                // SAFETY: the program has waited for the communicator, so MPI has put it there.
                let comm = unsafe { **at };
                if let Err(error) = self.comms.learn(comm, *number) {
                    self.give_up(&error);
                }
            }
            Pending::Persistent(Persistent { what: Repeated::Receive(receiving), .. }) => {
                self.ended_receive(*receiving, status);
            }
            // Only now all its parts are there.
            Pending::Persistent(Persistent { what: Repeated::SendPartitioned(out), .. }) => {
                // SAFETY: the program's message, which it may write again when this call returns.
                unsafe { self.begun(out, true, || 0) }.map_err(|full| (out.comm, full))?;
            }
            Pending::CalledOff | Pending::Persistent(Persistent { what: Repeated::Send(_), .. }) => {
                // Nobody will receive it, and its number is taken: from here on both ends count differently.
                if is_cancelled(status) {
                    self.give_up(
                        &"a send was called off by MPI_Cancel, and numbers of messages are not known any more",
                    );
                }
            }
            Pending::Persistent(_) => {}
        }
        Ok(())
    }

    /// It has ended, and nobody knows how: nothing was received.
    fn failed(&mut self, pending: &Pending) {
        if let Pending::Receive(receiving)
        | Pending::Persistent(Persistent { what: Repeated::Receive(receiving), .. }) = pending
        {
            self.end_receive(*receiving, None);
        }
    }

    /// What a request stood for has ended.
    fn conclude(&mut self, pending: &Pending, end: &End<'_>) -> Result<(), (ffi::MPI_Comm, FullError)> {
        match end {
            End::With(status) => self.ended(pending, status)?,
            End::Failed => self.failed(pending),
            End::Not => {}
        }
        Ok(())
    }

    pub(super) fn ended_receive(&mut self, receiving: Receiving, status: &ffi::MPI_Status) {
        self.end_receive(receiving, Some(status).filter(|status| !is_cancelled(status)));
    }
}

/// What a call says of a request.
enum End<'a> {
    /// It is under way.
    Not,
    /// It has ended with this status.
    With(&'a ffi::MPI_Status),
    /// It has ended with an error.
    Failed,
}

impl End<'_> {
    /// Of a request that has ended with this code.
    fn of(code: c_int, status: &ffi::MPI_Status) -> End<'_> {
        // A message that is too long is an error, and was received.
        if has_taken(code) { End::With(status) } else { End::Failed }
    }
}

/// Remembers what a call may end. Programs ask again and again: little is done here.
///
/// # Safety
/// `requests` has `count`.
#[inline(always)]
unsafe fn before(count: c_int, requests: *const ffi::MPI_Request) -> Before {
    catch_up_if_due();
    if !are_there() && !has_posted() {
        Before::Nothing
    } else if count == 1 && !is_together() {
        // SAFETY: the caller's promise.
        Before::Handle(unsafe { *requests })
    } else {
        // SAFETY: the caller's promise.
        before_several(unsafe { handles(count, requests) })
    }
}

#[inline(never)]
fn before_several(requests: &[ffi::MPI_Request]) -> Before {
    if is_together() {
        enter(|session| Before::Held(session.hold(requests))).unwrap_or(Before::Nothing)
    } else {
        Before::Handles(requests.into())
    }
}

impl Before {
    fn is_nothing(&self) -> bool {
        match self {
            Before::Nothing => true,
            Before::Handle(_) | Before::Handles(_) => false,
            Before::Held(held) => held.is_empty(),
        }
    }

    /// The call has ended none of them; the program asked whether one had.
    #[inline]
    fn none(&mut self) {
        if records_choices() || matches!(self, Before::Held(_)) {
            self.missed();
        }
    }

    #[inline(never)]
    fn missed(&mut self) {
        enter(|session| {
            session.missed();
            if let Before::Held(held) = self {
                held.drain(..).for_each(|held| session.put_back(held));
            }
        });
    }

    /// Each has ended as `end` says, or not.
    #[inline]
    fn settle<'a>(&mut self, end: impl Fn(usize) -> End<'a>) -> c_int {
        match self {
            Before::Nothing => 0,
            Before::Handle(request) => settle_one(*request, &end(0)),
            Before::Handles(requests) => requests
                .iter()
                .enumerate()
                .fold(0, |code, (index, &request)| first(code, settle_one(request, &end(index)))),
            Before::Held(held) => put_back_or_conclude(std::mem::take(held), end),
        }
    }
}

/// A request has ended as `end` says, or not.
#[inline]
fn settle_one(request: ffi::MPI_Request, end: &End<'_>) -> c_int {
    match end {
        End::Not => 0,
        End::With(status) if may_put_off() && are_receives() => {
            put_off(PutOff::Ended { request, taken: taken(status) });
            0
        }
        end => conclude(request, end),
    }
}

/// What a request stood for, if it is known, has ended.
fn conclude(request: ffi::MPI_Request, end: &End<'_>) -> c_int {
    let result = enter(|session| match session.requests.end(request) {
        Some(pending) => session.conclude(&pending, end).map(|()| 0),
        None => Ok(0),
    });
    outcome(result, || 0)
}

/// What was held has ended as `end` says, or not.
fn put_back_or_conclude<'a>(held: Vec<Held>, end: impl Fn(usize) -> End<'a>) -> c_int {
    if held.is_empty() {
        return 0;
    }
    let result = enter(|session| {
        let mut result = Ok(0);
        for held in held {
            match end(held.index) {
                End::Not => session.put_back(held),
                end => result = session.conclude(&held.pending, &end).map(|()| 0).and(result),
            }
        }
        result
    });
    outcome(result, || 0)
}

/// MPI's code, or ours where MPI has none.
fn first(code: c_int, other: c_int) -> c_int {
    if code == 0 { other } else { code }
}

/// One request, which has ended after `call` if `has_ended` says so of its code.
///
/// # Safety
/// As for [`wait`].
#[inline]
unsafe fn one(
    request: *mut ffi::MPI_Request,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    has_ended: impl FnOnce(c_int) -> bool,
) -> c_int {
    // SAFETY: the program's request.
    let mut before = unsafe { before(1, request) };
    if before.is_nothing() {
        return call(status);
    }
    let mut ours = blank();
    let status = wanted(status, &raw mut ours);
    let code = call(status);
    // SAFETY: ours, or what the program has given for a status; the call is done with it.
    let status = unsafe { &*status };
    if !has_ended(code) {
        before.none();
        return code;
    }
    first(code, before.settle(|_| End::of(code, status)))
}

/// One request has ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait(
    request: *mut ffi::MPI_Request,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { one(request, status, call, |_| true) }
}

/// One request may have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test(
    request: *mut ffi::MPI_Request,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function; the call has said whether it has ended.
    unsafe { one(request, status, call, |code| code != 0 || *flag != 0) }
}

/// Records which of several requests ended, where the program leaves that to MPI.
fn decided(count: c_int, index: c_int) {
    if count > 1
        && let Ok(index) = u32::try_from(index)
    {
        enter(|session| session.decide(Choice::Ended { index }));
    }
}

/// At most one of several requests, which has ended after `call` if `has_ended` says so of its code.
///
/// # Safety
/// As for [`wait_any`].
#[inline]
unsafe fn any(
    (count, requests): (c_int, *mut ffi::MPI_Request),
    index: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    has_ended: impl FnOnce(c_int) -> bool,
) -> c_int {
    // SAFETY: the program's requests.
    let mut before = unsafe { before(count, requests) };
    let mut ours = blank();
    let status = wanted(status, &raw mut ours);
    let code = call(status);
    // SAFETY: ours, or what the program has given for a status; the call is done with it.
    let status = unsafe { &*status };
    let has_ended = has_ended(code);
    // SAFETY: the call has said which one.
    let at = unsafe { *index };
    if !has_ended {
        before.none();
        return code;
    }
    if code == 0 {
        decided(count, at);
    }
    first(code, before.settle(|index| if usize::try_from(at) == Ok(index) { End::of(code, status) } else { End::Not }))
}

/// One of several requests has ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait_any(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    index: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { any((count, requests), index, status, call, |_| true) }
}

/// One of several requests may have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test_any(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function; the call has said whether one has ended.
    unsafe { any((count, requests), index, status, call, |code| code != 0 || *flag != 0) }
}

/// What the array says of one of several requests.
///
/// # Safety
/// `statuses` has one at `index`, filled in by a call that returned `code`.
unsafe fn of_several<'a>(code: c_int, statuses: *const ffi::MPI_Status, index: usize) -> End<'a> {
    // SAFETY: the caller's promise.
    let status = unsafe { &*statuses.add(index) };
    if code == 0 {
        End::With(status)
    } else if code != ffi::MPI_ERR_IN_STATUS as c_int || status.MPI_ERROR == ffi::MPI_ERR_PENDING as c_int {
        End::Not
    } else {
        End::of(status.MPI_ERROR, status)
    }
}

/// All of several requests, which have ended after `call` if `have_ended` says so of its code.
///
/// # Safety
/// As for [`wait_all`].
#[inline]
unsafe fn all(
    (count, requests): (c_int, *mut ffi::MPI_Request),
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
    have_ended: impl FnOnce(c_int) -> bool,
) -> c_int {
    // SAFETY: the program's requests.
    let mut before = unsafe { before(count, requests) };
    if before.is_nothing() {
        return call(statuses);
    }
    let mut ours = Statuses::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    if !have_ended(code) {
        before.none();
        return code;
    }
    // SAFETY: as they have ended, the call has filled in as many statuses as requests.
    first(code, before.settle(|index| unsafe { of_several(code, statuses, index) }))
}

/// All of several requests have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait_all(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { all((count, requests), statuses, call, |_| true) }
}

/// All of several requests may have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test_all(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    flag: *mut c_int,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function; the call has said whether they have ended.
    unsafe { all((count, requests), statuses, call, |code| *flag != 0 || code == ffi::MPI_ERR_IN_STATUS as c_int) }
}

/// Some of several requests have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn wait_some(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's requests.
    let mut before = unsafe { before(count, requests) };
    let mut ours = Statuses::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    // SAFETY: the call has said how many have ended, if any was active.
    let ended = usize::try_from(unsafe { *outcount }).unwrap_or(0);
    let is_said = code == 0 || code == ffi::MPI_ERR_IN_STATUS as c_int;
    let ended = if is_said && ended > 0 && ended <= usize::try_from(count).unwrap_or(0) {
        // SAFETY: of as many the call has filled in which, and with what status.
        unsafe { std::slice::from_raw_parts(indices, ended) }
    } else {
        &[]
    };
    if ended.is_empty() {
        before.none();
        return code;
    }
    for index in ended {
        decided(count, *index);
    }
    let place = |index: usize| ended.iter().position(|&at| usize::try_from(at) == Ok(index));
    // SAFETY: as above.
    first(code, before.settle(|index| place(index).map_or(End::Not, |at| unsafe { of_several(code, statuses, at) })))
}

/// Some of several requests may have ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn test_some(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { wait_some(count, requests, outcount, indices, statuses, call) }
}

/// A request is looked at and stays as it is.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn request_status(
    _: ffi::MPI_Request,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let code = call(status);
    // SAFETY: the call has said whether it has ended. It stays: whoever waits for it later is told.
    if code == 0 && unsafe { *flag } == 0 {
        enter(Session::missed);
    }
    code
}

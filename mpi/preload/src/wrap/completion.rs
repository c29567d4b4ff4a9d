//! Requests that are waited for and tested.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::receive::has_taken;
use super::requests::outcome;
use super::status::{is_cancelled, statuses_wanted, with_status};
use crate::session::requests::{Pending, Persistent, Receiving, Repeated, handles};
use crate::session::{Choice, FullError, Session, enter};

/// A request that a call may end, and what it stands for. It is taken out before the call: another thread may get the same handle
/// for a new request as soon as the old one has ended.
struct Held {
    /// Its place in the program's array.
    index: usize,
    request: ffi::MPI_Request,
    pending: Pending,
}

impl Session {
    fn hold(&mut self, requests: &[ffi::MPI_Request]) -> Vec<Held> {
        if self.requests.is_empty() {
            return Vec::new();
        }
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
    fn ended(&mut self, held: &Held, status: &ffi::MPI_Status) -> Result<(), (ffi::MPI_Comm, FullError)> {
        match &held.pending {
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
    fn failed(&mut self, held: &Held) {
        if let Pending::Receive(receiving)
        | Pending::Persistent(Persistent { what: Repeated::Receive(receiving), .. }) = held.pending
        {
            self.end_receive(receiving, None);
        }
    }

    pub(super) fn ended_receive(&mut self, receiving: Receiving, status: &ffi::MPI_Status) {
        self.end_receive(receiving, Some(status).filter(|status| !is_cancelled(status)));
    }
}

/// What a call says of a request.
enum End {
    /// It is under way.
    Not,
    /// It has ended with this status.
    With(ffi::MPI_Status),
    /// It has ended with an error.
    Failed,
}

impl End {
    /// Of a request that has ended with this code.
    fn of(code: c_int, status: ffi::MPI_Status) -> End {
        // A message that is too long is an error, and was received.
        if has_taken(code) { End::With(status) } else { End::Failed }
    }
}

/// Takes out what a call may end.
fn hold(requests: &[ffi::MPI_Request]) -> Vec<Held> {
    enter(|session| session.hold(requests)).unwrap_or_default()
}

/// Each of `held` has ended as `end` says; those that haven't are put back.
fn settle(held: Vec<Held>, end: impl Fn(usize) -> End) -> c_int {
    if held.is_empty() {
        return 0;
    }
    let result = enter(|session| {
        let mut result = Ok(0);
        for held in held {
            match end(held.index) {
                End::With(status) => result = session.ended(&held, &status).map(|()| 0).and(result),
                End::Failed => session.failed(&held),
                End::Not => session.put_back(held),
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
    let held = hold(&[unsafe { *request }]);
    if held.is_empty() {
        return call(status);
    }
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    let has_ended = has_ended(code);
    if !has_ended {
        enter(Session::missed);
    }
    first(code, settle(held, |_| if has_ended { End::of(code, status) } else { End::Not }))
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
    let held = hold(&handles(count, requests));
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    let has_ended = has_ended(code);
    // SAFETY: the call has said which one.
    let at = unsafe { *index };
    if !has_ended {
        enter(Session::missed);
    } else if code == 0 {
        decided(count, at);
    }
    let is_it = |index| has_ended && usize::try_from(at) == Ok(index);
    first(code, settle(held, |index| if is_it(index) { End::of(code, status) } else { End::Not }))
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
unsafe fn of_several(code: c_int, statuses: *const ffi::MPI_Status, index: usize) -> End {
    // SAFETY: the caller's promise.
    let status = unsafe { *statuses.add(index) };
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
    let held = hold(&handles(count, requests));
    if held.is_empty() {
        return call(statuses);
    }
    let mut ours = Vec::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    let have_ended = have_ended(code);
    if code == 0 && !have_ended {
        enter(Session::missed);
    }
    // SAFETY: if they have ended, the call has filled in as many statuses as requests.
    first(code, settle(held, |index| if have_ended { unsafe { of_several(code, statuses, index) } } else { End::Not }))
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
    let held = hold(&handles(count, requests));
    let mut ours = Vec::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    // SAFETY: the call has said how many have ended, if any was active.
    let ended = usize::try_from(unsafe { *outcount }).unwrap_or(0);
    let is_said = code == 0 || code == ffi::MPI_ERR_IN_STATUS as c_int;
    let ended: Vec<c_int> = if is_said && ended > 0 && ended <= usize::try_from(count).unwrap_or(0) {
        // SAFETY: of as many the call has filled in which, and with what status.
        unsafe { std::slice::from_raw_parts(indices, ended) }.to_vec()
    } else {
        Vec::new()
    };
    for index in &ended {
        decided(count, *index);
    }
    if ended.is_empty() && code == 0 {
        enter(Session::missed);
    }
    let place = |index: usize| ended.iter().position(|&at| usize::try_from(at) == Ok(index));
    // SAFETY: as above.
    first(code, settle(held, |index| place(index).map_or(End::Not, |at| unsafe { of_several(code, statuses, at) })))
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

//! Requests that are waited for and tested.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::requests::outcome;
use super::send::{blank, with_status};
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
            Pending::Persistent(_) => {}
        }
        Ok(())
    }

    pub(super) fn ended_receive(&mut self, receiving: Receiving, status: &ffi::MPI_Status) {
        let mut is_cancelled = 0;
        // SAFETY: a status that MPI filled in, and a pointer to a local variable.
        unsafe { ffi::PMPI_Test_cancelled(status, &raw mut is_cancelled) };
        if is_cancelled == 0 {
            self.note_receive(receiving, status);
        }
    }
}

/// Takes out what a call may end.
fn hold(requests: &[ffi::MPI_Request]) -> Vec<Held> {
    enter(|session| session.hold(requests)).unwrap_or_default()
}

/// Those of `held` have ended that `status` has a status for; the others are put back.
fn settle(held: Vec<Held>, status: impl Fn(usize) -> Option<ffi::MPI_Status>) -> c_int {
    if held.is_empty() {
        return 0;
    }
    let result = enter(|session| {
        let mut result = Ok(0);
        for held in held {
            match status(held.index) {
                Some(status) => result = session.ended(&held, &status).map(|()| 0).and(result),
                None => session.put_back(held),
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

pub(crate) unsafe fn wait(
    request: *mut ffi::MPI_Request,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's request.
    let held = hold(&[unsafe { *request }]);
    if held.is_empty() {
        return call(status);
    }
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    // Of one that failed nothing is known: it has not been received.
    first(code, settle(held, |_| Some(status).filter(|_| code == 0)))
}

pub(crate) unsafe fn test(
    request: *mut ffi::MPI_Request,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's request.
    let held = hold(&[unsafe { *request }]);
    if held.is_empty() {
        return call(status);
    }
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    // SAFETY: the call has said whether it has ended.
    let has_ended = code == 0 && unsafe { *flag } != 0;
    if code == 0 && !has_ended {
        enter(Session::missed);
    }
    first(code, settle(held, |_| Some(status).filter(|_| has_ended)))
}

/// Records which of several requests ended, where the program leaves that to MPI.
fn decided(count: c_int, index: c_int) {
    if count > 1
        && let Ok(index) = u32::try_from(index)
    {
        enter(|session| session.decide(Choice::Ended { index }));
    }
}

pub(crate) unsafe fn wait_any(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    index: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let held = hold(&handles(count, requests));
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    // SAFETY: the call has said which one.
    let at = unsafe { *index };
    if code == 0 {
        decided(count, at);
    }
    first(code, settle(held, |index| Some(status).filter(|_| code == 0 && usize::try_from(at) == Ok(index))))
}

pub(crate) unsafe fn test_any(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let held = hold(&handles(count, requests));
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    // SAFETY: the call has said whether one has ended, and which.
    let (has_ended, at) = unsafe { (code == 0 && *flag != 0, *index) };
    if has_ended {
        decided(count, at);
    } else if code == 0 {
        enter(Session::missed);
    }
    first(code, settle(held, |index| Some(status).filter(|_| has_ended && usize::try_from(at) == Ok(index))))
}

/// Statuses to be filled in: the program's, or ours where it wants none.
fn statuses_wanted(
    count: c_int,
    statuses: *mut ffi::MPI_Status,
    ours: &mut Vec<ffi::MPI_Status>,
) -> *mut ffi::MPI_Status {
    // SAFETY: a constant of the shim.
    if statuses == unsafe { ffi::RSMPI_STATUSES_IGNORE } {
        ours.resize(usize::try_from(count).unwrap_or(0).max(1), blank());
        ours.as_mut_ptr()
    } else {
        statuses
    }
}

/// What the array says of one of several requests: its status, if it has ended well.
///
/// # Safety
/// `statuses` has one at `index`, filled in by a call that returned `code`.
unsafe fn of_several(code: c_int, statuses: *const ffi::MPI_Status, index: usize) -> Option<ffi::MPI_Status> {
    // SAFETY: the caller's promise.
    let status = unsafe { *statuses.add(index) };
    let is_said = code == ffi::MPI_ERR_IN_STATUS as c_int;
    Some(status).filter(|status| code == 0 || is_said && status.MPI_ERROR == 0)
}

pub(crate) unsafe fn wait_all(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let held = hold(&handles(count, requests));
    if held.is_empty() {
        return call(statuses);
    }
    let mut ours = Vec::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    // SAFETY: as many statuses as requests, filled in by the call.
    first(code, settle(held, |index| unsafe { of_several(code, statuses, index) }))
}

pub(crate) unsafe fn test_all(
    count: c_int,
    requests: *mut ffi::MPI_Request,
    flag: *mut c_int,
    statuses: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let held = hold(&handles(count, requests));
    if held.is_empty() {
        return call(statuses);
    }
    let mut ours = Vec::new();
    let statuses = statuses_wanted(count, statuses, &mut ours);
    let code = call(statuses);
    // SAFETY: the call has said whether they have ended, and filled in as many statuses as requests if so.
    let have_ended = unsafe { *flag } != 0 || code == ffi::MPI_ERR_IN_STATUS as c_int;
    if code == 0 && !have_ended {
        enter(Session::missed);
    }
    // SAFETY: as above.
    first(code, settle(held, |index| if have_ended { unsafe { of_several(code, statuses, index) } } else { None }))
}

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
    first(code, settle(held, |index| place(index).and_then(|at| unsafe { of_several(code, statuses, at) })))
}

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

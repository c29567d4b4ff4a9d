//! Requests: started, given up, called off.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::receive::partitioned;
use super::send::refuse;
use super::status::blank;
use crate::message::Outgoing;
use crate::pass;
use crate::session::requests::{Pending, Persistent, Repeated, handles, is_null};
use crate::session::{Copied, FullError, Session, enter, enter_for_room, sends_first};

impl Session {
    /// Logs a message that `call` begins to send.
    ///
    /// # Safety
    /// `out` has as many elements as it says, and the program doesn't write them before the send has ended.
    pub(super) unsafe fn begun(
        &mut self,
        out: &Outgoing,
        is_partitioned: bool,
        call: impl FnOnce() -> c_int,
    ) -> Result<c_int, FullError> {
        let Some(mut lane) = self.lane(out) else { return Ok(call()) };
        if is_partitioned {
            lane.comm = partitioned(lane.comm);
        }
        // SAFETY: the caller's promise.
        unsafe { self.log(lane, (out.buf, out.count, out.datatype), Copied::Behind, call) }
    }

    /// Whether something is logged before a persistent request can be started.
    fn needs_room(&mut self, request: ffi::MPI_Request) -> bool {
        let what = match self.requests.get_mut(request) {
            Some(Pending::Persistent(Persistent { what, .. })) => what,
            _ => return false,
        };
        matches!(what, Repeated::Send(_) | Repeated::Collective(_))
    }

    /// A persistent request is started by `call`. `number` is that of a collective operation, once it has one.
    fn start(
        &mut self,
        request: ffi::MPI_Request,
        number: &mut Option<u64>,
        call: &mut dyn FnMut() -> c_int,
    ) -> Result<c_int, (ffi::MPI_Comm, FullError)> {
        let what = match self.requests.get_mut(request) {
            Some(Pending::Persistent(persistent)) => {
                persistent.is_active = true;
                persistent.what
            }
            _ => return Ok(call()),
        };
        match what {
            // SAFETY: the program's message, which it may write again when the request has ended.
            Repeated::Send(out) => unsafe { self.begun(&out, false, call) }.map_err(|full| (out.comm, full)),
            Repeated::Collective(collective) => {
                // SAFETY: as above.
                unsafe { self.contribute(&collective, number, false) }.map_err(|full| (collective.comm, full))?;
                Ok(call())
            }
            Repeated::Receive(receiving) => {
                let code = call();
                if code == 0 {
                    let what = Repeated::Receive(self.post(receiving));
                    self.requests.add(request, Pending::Persistent(Persistent { what, is_active: true }));
                }
                Ok(code)
            }
            Repeated::SendPartitioned(_) => Ok(call()),
        }
    }
}

/// What a call that logs comes to.
pub(super) fn outcome(
    result: Option<Result<c_int, (ffi::MPI_Comm, FullError)>>,
    otherwise: impl FnOnce() -> c_int,
) -> c_int {
    match result {
        Some(Ok(code)) => code,
        Some(Err((comm, full))) => refuse(comm, &full),
        None => otherwise(),
    }
}

/// A persistent request is started.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn start(request: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let mut number = None;
    // SAFETY: the program's request, and a constant of the shim.
    let (request, mut comm) = unsafe { (*request, ffi::RSMPI_COMM_NULL) };
    let result = enter_for_room(|session| {
        session.start(request, &mut number, &mut now).map_err(|(of, full)| {
            comm = of;
            full
        })
    });
    outcome(result.map(|result| result.map_err(|full| (comm, full))), &mut now)
}

/// Several persistent requests are started.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn start_all(count: c_int, requests: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    if !sends_first() {
        // SAFETY: as for this function.
        return unsafe { start_each(count, requests, call) };
    }
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let result = enter(|session| {
        let code = now();
        // SAFETY: the program's requests, which keep their handles when they are started.
        for request in unsafe { handles(count, requests) } {
            if code == 0 {
                session.start(*request, &mut None, &mut || 0)?;
            }
        }
        Ok(code)
    });
    outcome(result, &mut now)
}

/// [`start_all`] where a message doesn't leave before there is room for it: one after the other. What needs no room comes first, for others may
/// wait for it; MPI leaves the order open.
///
/// # Safety
/// The program's arguments: see the [module](super).
unsafe fn start_each(count: c_int, requests: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's requests, which keep their handles when they are started.
    let handles = unsafe { handles(count, requests) };
    let sorted: Option<(Vec<usize>, Vec<usize>)> =
        enter(|session| (0..handles.len()).partition(|&at| !session.needs_room(handles[at])));
    let Some((first, last)) = sorted else { return call() };
    for at in first.into_iter().chain(last) {
        // SAFETY: one of the program's requests.
        let code = unsafe {
            let request = requests.add(at);
            start(request, || (pass::Start.get())(request))
        };
        if code != 0 {
            return code;
        }
    }
    0
}

/// The program gives a request up; what it stands for goes on.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn request_free(request: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's request.
    let handle = unsafe { *request };
    let kept = enter(|session| {
        let pending = session.requests.forget(handle)?;
        let (receiving, is_persistent) = match pending {
            Pending::Receive(receiving) => (receiving, false),
            Pending::Persistent(Persistent { what: Repeated::Receive(receiving), is_active: true }) => {
                (receiving, true)
            }
            _ => return None,
        };
        // It goes on, and its message counts: it is kept until it has ended.
        session.given_up.push((handle, receiving, is_persistent));
        Some(())
    });
    match kept.flatten() {
        Some(()) => {
            // SAFETY: the program's request, and a constant of the shim.
            unsafe { *request = ffi::RSMPI_REQUEST_NULL };
            0
        }
        None => call(),
    }
}

/// The program calls a request off, if it is not too late.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn cancel(request: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's request.
    let request = unsafe { *request };
    // Whether it was, its status says when it has ended. What isn't known is a send.
    enter(|session| {
        session.requests.may_be_called_off();
        if session.requests.get_mut(request).is_none() {
            session.requests.add(request, Pending::CalledOff);
        }
    });
    call()
}

impl Session {
    /// Looks after receives that the program gave up.
    pub(crate) fn sweep_given_up(&mut self) {
        let mut at = 0;
        while let Some(&mut (ref mut request, receiving, is_persistent)) = self.given_up.get_mut(at) {
            let (mut flag, mut status) = (0, blank());
            // SAFETY: a request that the program has left to us, and pointers to local variables.
            let code = unsafe { ffi::PMPI_Test(request, &raw mut flag, &raw mut status) };
            if code == 0 && flag == 0 {
                at += 1;
                continue;
            }
            if is_persistent && !is_null(*request) {
                // SAFETY: as above; it has ended.
                unsafe { ffi::PMPI_Request_free(request) };
            }
            self.given_up.swap_remove(at);
            if code == 0 {
                self.ended_receive(receiving, &status);
            } else {
                self.end_receive(receiving, None);
            }
        }
    }
}

//! Requests: start, free and cancel.

use std::ffi::c_int;
use std::sync::Arc;

use mpi_sys as ffi;

use super::send::refuse;
use crate::global::{enter, enter_for_space, logs_after_send};
use crate::next;
use crate::session::requests::{Pending, Persistent, PersistentCollective, PersistentKind, handles};
use crate::session::{BegunCollective, FullError, Session};

impl Session {
    /// Returns `true` if a persistent request can't be started before its record is in the log.
    fn needs_space(&mut self, request: ffi::MPI_Request) -> bool {
        match self.requests.get_mut(request) {
            Some(Pending::Persistent(Persistent { kind, .. })) => {
                matches!(kind, PersistentKind::Send(_) | PersistentKind::Collective(_))
            }
            _ => false,
        }
    }

    /// Starts a persistent request by `call`; `begun` is a collective operation's.
    fn start(
        &mut self,
        request: ffi::MPI_Request,
        begun: &mut BegunCollective,
        call: &mut dyn FnMut() -> c_int,
    ) -> Result<c_int, (ffi::MPI_Comm, FullError)> {
        let kind = match self.requests.get_mut(request) {
            Some(Pending::Persistent(persistent)) => {
                persistent.is_active = true;
                persistent.kind.clone()
            }
            _ => return Ok(call()),
        };
        match kind {
            PersistentKind::Send(out) => {
                // SAFETY: the program's message, which it may write again when the request has ended.
                unsafe { self.log_outgoing(&out, call) }.map_err(|full| (out.comm, full))
            }
            PersistentKind::Collective(collective) => {
                let PersistentCollective { operation, comm, pieces } = &*collective;
                // SAFETY: as above.
                unsafe { self.begin_with(*operation, *comm, pieces.as_deref(), begun, false) }
                    .map_err(|full| (*comm, full))?;
                let code = call();
                self.collective_answered(*comm, *begun, code);
                Ok(code)
            }
            PersistentKind::Receive(receiving) => {
                let code = call();
                if code == 0 {
                    let kind = PersistentKind::Receive(self.post(receiving));
                    self.requests.add(request, Pending::Persistent(Persistent { kind, is_active: true }));
                }
                Ok(code)
            }
            PersistentKind::SendPartitioned(..) | PersistentKind::ReceivePartitioned(_) => Ok(call()),
        }
    }

    /// Logs the contributions of persistent collective operations among requests about to be started.
    ///
    /// An operation in place overwrites them. Returns the operations with their numbers.
    fn contribute_all(
        &mut self,
        requests: &[ffi::MPI_Request],
    ) -> Result<Vec<(ffi::MPI_Comm, BegunCollective)>, (ffi::MPI_Comm, FullError)> {
        let mut all = Vec::new();
        for &request in requests {
            let Some(Pending::Persistent(Persistent { kind: PersistentKind::Collective(collective), is_active })) =
                self.requests.get_mut(request)
            else {
                continue;
            };
            *is_active = true;
            let (collective, mut begun) = (Arc::clone(collective), BegunCollective::default());
            let PersistentCollective { operation, comm, pieces } = &*collective;
            // SAFETY: the program's message, which it may write again when the request has ended.
            unsafe { self.begin_with(*operation, *comm, pieces.as_deref(), &mut begun, false) }
                .map_err(|full| (*comm, full))?;
            all.push((*comm, begun));
        }
        Ok(all)
    }
}

impl Session {
    /// Releases the datatypes of a persistent request freed by the program.
    fn release_persistent(&mut self, kind: &PersistentKind) {
        match kind {
            PersistentKind::Send(out) | PersistentKind::SendPartitioned(out, _) => self.datatypes.release(out.datatype),
            PersistentKind::Collective(collective) => {
                for piece in collective.pieces.iter().flatten() {
                    piece.release(&mut self.datatypes);
                }
            }
            PersistentKind::Receive(_) | PersistentKind::ReceivePartitioned(_) => {}
        }
    }
}

/// Returns the code of a logging call, or refuses it.
pub(super) fn finish(
    result: Option<Result<c_int, (ffi::MPI_Comm, FullError)>>,
    otherwise: impl FnOnce() -> c_int,
) -> c_int {
    match result {
        Some(Ok(code)) => code,
        Some(Err((comm, full))) => refuse(comm, &full),
        None => otherwise(),
    }
}

/// Starts a persistent request.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn start(request: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    if request.is_null() {
        // An error, which MPI handles.
        return call();
    }
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let mut begun = BegunCollective::default();
    // SAFETY: the program's request, and a constant of the shim.
    let (request, mut comm) = unsafe { (*request, ffi::RSMPI_COMM_NULL) };
    let result = enter_for_space(|session| {
        session.start(request, &mut begun, &mut now).map_err(|(of, full)| {
            comm = of;
            full
        })
    });
    finish(result.map(|result| result.map_err(|full| (comm, full))), &mut now)
}

/// Starts several persistent requests.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn start_all(count: c_int, requests: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    if !logs_after_send() {
        // SAFETY: as for this function.
        return unsafe { start_each(count, requests, call) };
    }
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    // SAFETY: the program's requests, which keep their handles when they are started.
    let handles = unsafe { handles(count, requests) };
    let result = enter(|session| {
        let begun = session.contribute_all(handles)?;
        let code = now();
        // The last operation begun gives its number back first.
        for (comm, begun) in begun.iter().rev() {
            session.collective_answered(*comm, *begun, code);
        }
        if code != 0 {
            return Ok(code);
        }
        session.has_uncounted = true;
        let mut started = Ok(0);
        for &request in handles {
            let is_collective = matches!(
                session.requests.get_mut(request),
                Some(Pending::Persistent(Persistent { kind: PersistentKind::Collective(_), .. }))
            );
            if !is_collective && started.is_ok() {
                started = session.start(request, &mut BegunCollective::default(), &mut || 0);
            }
        }
        session.has_uncounted = false;
        started
    });
    finish(result, &mut now)
}

/// [`start_all`] where messages are sent only once there is space for them: one request after the other.
///
/// Requests that need no space come first, since other ranks may wait for them; MPI leaves the order open.
///
/// # Safety
/// The program's arguments: see the [module](super).
unsafe fn start_each(count: c_int, requests: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's requests, which keep their handles when they are started.
    let handles = unsafe { handles(count, requests) };
    let sorted: Option<(Vec<usize>, Vec<usize>)> =
        enter(|session| (0..handles.len()).partition(|&at| !session.needs_space(handles[at])));
    let Some((first, last)) = sorted.filter(|_| !handles.is_empty()) else { return call() };
    for at in first.into_iter().chain(last) {
        // SAFETY: one of the program's requests.
        let code = unsafe {
            let request = requests.add(at);
            start(request, || (next::Start.get())(request))
        };
        if code != 0 {
            return code;
        }
    }
    0
}

/// Frees a request; its operation goes on.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn request_free(request: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    if request.is_null() {
        // An error, which MPI handles.
        return call();
    }
    // SAFETY: the program's request.
    let handle = unsafe { *request };
    let kept = enter(|session| {
        let (receiving, is_persistent) = match session.requests.forget(handle)? {
            Pending::Receive(receiving) => (receiving, false),
            Pending::Persistent(Persistent { kind: PersistentKind::Receive(receiving), is_active: true }) => {
                (receiving, true)
            }
            Pending::Persistent(persistent) => {
                session.release_persistent(&persistent.kind);
                return None;
            }
            Pending::Counted(Some(outcome)) => {
                session.record(outcome);
                return None;
            }
            _ => return None,
        };
        session.keep_freed(handle, receiving, is_persistent);
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

/// Begins a generalized request, which the program completes and may cancel.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn request_generalized(request: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    let code = call();
    if code == 0 {
        // SAFETY: the call has put a request there.
        enter(|session| session.requests.add(unsafe { *request }, Pending::Generalized));
    }
    code
}

/// Cancels a request, if it is not too late.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn cancel(request: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    if request.is_null() {
        // An error, which MPI handles.
        return call();
    }
    // SAFETY: the program's request.
    let request = unsafe { *request };
    // Once it has ended, its status tells whether it was cancelled.
    enter(|session| session.requests.cancel(request));
    call()
}

//! Receives.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::completion::wait;
use super::send::add_persistent;
use crate::awaited::{note_persistent, note_posted};
use crate::deferred::Event;
use crate::global::{can_defer, catch_up, defer, enter, is_multiple};
use crate::session::Session;
use crate::session::requests::PersistentKind;
use crate::status::{arrival, blank, has_taken, is_cancelled, with_status};
use crate::{handlers, next};
use counterfoil_mpi_core::arguments::{Incoming, is_proc_null, is_wildcard};
use counterfoil_mpi_core::control::failures::{failed_code, is_pending};

/// Handles a receive returned with this code, after which nothing was posted; returns the code.
#[inline]
pub(super) fn received(incoming: &Incoming, status: &ffi::MPI_Status, code: c_int) -> c_int {
    let (comm, is_wildcard) = (incoming.comm, incoming.is_wildcard());
    if code == 0 && can_defer() {
        defer(Event::Received { comm, is_wildcard, arrival: arrival(status) });
    } else {
        received_now(comm, is_wildcard, status, code);
    }
    code
}

/// Receives and blocks, where the event [can be deferred](can_defer).
///
/// Code after the call delays the answer, so it only notes the message.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(always)]
pub(crate) unsafe fn receive_deferred(
    (comm, source, tag): (ffi::MPI_Comm, c_int, c_int),
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    catch_up();
    let is_wildcard = is_wildcard(source, tag);
    let then = |code, status: &ffi::MPI_Status| {
        if code == 0 {
            defer(Event::Received { comm, is_wildcard, arrival: arrival(status) });
        } else {
            received_now(comm, is_wildcard, status, code);
        }
        code
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// Handles a receive returned with this code, without deferring it.
#[inline(never)]
fn received_now(comm: ffi::MPI_Comm, is_wildcard: bool, status: &ffi::MPI_Status, code: c_int) {
    if has_taken(code) {
        enter(|session| session.handle_received(comm, is_wildcard, arrival(status)));
    }
}

/// Receives and blocks.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(never)]
pub(crate) unsafe fn receive(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    if is_multiple() && !is_proc_null(incoming.source) {
        // SAFETY: as for this function.
        return unsafe { receive_multiple(incoming, status, call) };
    }
    // SAFETY: the program's status.
    unsafe { with_status(status, call, |code, status| received(incoming, status, code)) }
}

/// Receives and blocks, with several threads: its post is one step, in which no thread waits.
///
/// # Safety
/// The program's arguments: see the [module](super).
unsafe fn receive_multiple(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let Incoming { buf, count, datatype, source, tag, comm } = *incoming;
    let Ok(count) = c_int::try_from(count) else {
        let posted = enter(|session| session.receiving(incoming).map(|receiving| session.post(receiving)));
        let then = |code, status: &ffi::MPI_Status| {
            if let Some(receiving) = posted.flatten() {
                enter(|session| session.end_receive(receiving, Some(status).filter(|_| has_taken(code))));
            }
            code
        };
        // SAFETY: the program's status.
        return unsafe { with_status(status, call, then) };
    };
    let begin = next::Irecv.get();
    // SAFETY: the program's arguments, and a request of the library's that is waited for.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let at = &raw mut request;
        let code = post(incoming, at, || begin(buf, count, datatype, source, tag, comm, at));
        if code == 0 { wait(at, status, |status| wait_or_withdraw(at, status)) } else { code }
    }
}

/// Waits for the library's own request in a blocking receive, and returns the receive's code.
///
/// One from any source left pending by a failure is withdrawn: for the program, the call has failed, unless it has
/// taken a message meanwhile.
///
/// # Safety
/// A pending receive request, and a status to write.
pub(super) unsafe fn wait_or_withdraw(request: *mut ffi::MPI_Request, status: *mut ffi::MPI_Status) -> c_int {
    let (mut flag, mut own) = (0, blank());
    // SAFETY: the caller's promise, and pointers to local variables.
    unsafe {
        let code = (next::Wait.get())(request, status);
        if !is_pending(code) {
            return code;
        }
        (next::Cancel.get())(request);
        // A wait would call the program's error handler once more.
        ffi::PMPI_Request_get_status(*request, &raw mut flag, &raw mut own);
        if flag != 0 && !is_cancelled(&own) {
            let code = (next::Wait.get())(request, status);
            handlers::change_code(code);
            return code;
        }
        ffi::PMPI_Request_free(request);
    }
    let code = failed_code();
    handlers::change_code(code);
    code
}

/// A non-blocking receive.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_immediate(
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if can_defer() {
        let code = call();
        if code == 0 {
            let Incoming { count, datatype, source, tag, comm, .. } = *incoming;
            // SAFETY: the call has put a request there.
            defer(Event::Posted { comm, source, tag, request: unsafe { *request } });
            note_posted(count, datatype);
        }
        return code;
    }
    // SAFETY: as for this function.
    let code = unsafe { post(incoming, request, call) };
    if code == 0 {
        note_posted(incoming.count, incoming.datatype);
    }
    code
}

/// Posts a receive, in the session.
///
/// # Safety
/// As for [`receive_immediate`].
unsafe fn post(incoming: &Incoming, request: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter(|session| {
        let receiving = session.receiving(incoming);
        let code = now();
        if let Some(receiving) = receiving.filter(|_| code == 0) {
            // SAFETY: the call has put a request there.
            session.post_request(receiving, unsafe { *request });
        }
        code
    });
    code.unwrap_or_else(now)
}

/// A persistent receive.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_persistent(
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let kind = |session: &mut Session| session.receiving(incoming).map(PersistentKind::Receive);
    let code = call();
    if code == 0 {
        note_persistent(incoming.count, incoming.datatype);
    }
    // SAFETY: the call puts a request there.
    unsafe { add_persistent(request, kind, code) }
}

/// A partitioned receive.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[cfg(wraps = "receive_partitioned")]
pub(crate) unsafe fn receive_partitioned(
    incoming: &Incoming,
    _: c_int,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let kind = |session: &mut Session| session.open_receive_channel(incoming).map(PersistentKind::ReceivePartitioned);
    // SAFETY: the call puts a request there.
    unsafe { add_persistent(request, kind, call()) }
}

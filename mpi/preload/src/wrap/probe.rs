//! Probes and matched receives.

use std::cell::Cell;
use std::ffi::c_int;

use mpi_sys as ffi;

use crate::global::{count_failed_poll, enter, is_multiple, records_determinants};
use crate::next;
use crate::session::requests::{Pending, Receiving};
use crate::session::{Session, key};
use crate::status::{has_taken, with_status};
use counterfoil_mpi_core::arguments::{Incoming, is_proc_null};

/// Waits for a message without receiving it.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn probe(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let then = |code, status: &ffi::MPI_Status| {
        if code == 0 {
            enter(|session| session.record_probe(incoming, status));
        }
        code
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// Tests for a message without receiving it.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn probe_immediate(
    incoming: &Incoming,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let then = |code, status: &ffi::MPI_Status| {
        // SAFETY: the call has set the flag.
        if code == 0 && unsafe { *flag } == 0 {
            count_failed_poll();
        } else if code == 0 && records_determinants() {
            enter(|session| session.record_probe(incoming, status));
        }
        code
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// Waits for a message and matches it, so that no other receive takes it.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn match_message(
    incoming: &Incoming,
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's arguments, and a pointer to a local variable; the call puts a message there.
    unsafe {
        // With several threads, none may wait in the step where a message is numbered.
        while is_multiple() && !is_proc_null(incoming.source) {
            let (flag, begin) = (Cell::new(0), next::Improbe.get());
            let look = |status| begin(incoming.source, incoming.tag, incoming.comm, flag.as_ptr(), message, status);
            let step = enter(|session| {
                with_status(status, look, |code, status| {
                    if code == 0 && flag.get() != 0 {
                        session.handle_matched(incoming, *message, status);
                    }
                    code
                })
            });
            match step {
                None => break,
                Some(0) if flag.get() == 0 => std::thread::yield_now(),
                Some(code) => return code,
            }
        }
        with_status(status, call, |code, status| {
            if code == 0 {
                enter(|session| session.handle_matched(incoming, *message, status));
            }
            code
        })
    }
}

/// Tests for a message and matches it, so that no other receive takes it.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn match_immediate(
    incoming: &Incoming,
    flag: *mut c_int,
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let mut call = Some(call);
    let mut now = |status| call.take().map_or(0, |call| call(status));
    // SAFETY: the program's status; the call has put the message there if it has found one.
    let code = enter(|session| unsafe {
        with_status(status, &mut now, |code, status| {
            if code == 0 && *flag != 0 {
                session.handle_matched(incoming, *message, status);
            } else if code == 0 {
                count_failed_poll();
            }
            code
        })
    });
    code.unwrap_or_else(|| now(status))
}

/// Takes a matched message's receive; the call frees the handle unless it refuses its arguments.
///
/// # Safety
/// `message` points to a handle of the program's.
unsafe fn take_matched(message: *const ffi::MPI_Message) -> Option<(usize, Receiving)> {
    if message.is_null() {
        // An error, which MPI handles.
        return None;
    }
    // SAFETY: the program's message.
    let key = key(unsafe { *message });
    enter(|session| Some((key, session.messages.remove(&key)?)))?
}

/// Handles a call that took no message: it may have left the handle to the program.
///
/// # Safety
/// As for [`take_matched`], which has returned the rest.
unsafe fn not_taken(session: &mut Session, message: *const ffi::MPI_Message, (before, receiving): (usize, Receiving)) {
    // SAFETY: the caller's promise.
    if key(unsafe { *message }) == before {
        session.messages.insert(before, receiving);
    } else {
        session.end_receive(receiving, None);
    }
}

/// Receives a matched message.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_matched(
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's message.
    let matched = unsafe { take_matched(message) };
    let then = |code, status: &ffi::MPI_Status| {
        if let Some(matched) = matched {
            enter(|session| match has_taken(code) {
                true => session.end_receive(matched.1, Some(status)),
                // SAFETY: the program's message.
                false => unsafe { not_taken(session, message, matched) },
            });
        }
        code
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// Receives a matched message, non-blocking.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_matched_immediate(
    message: *mut ffi::MPI_Message,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program's message.
    let matched = unsafe { take_matched(message) };
    let code = call();
    if let Some(matched) = matched {
        enter(|session| {
            if code == 0 {
                // SAFETY: the call has put a request there.
                session.requests.add(unsafe { *request }, Pending::Receive(matched.1));
            } else {
                // SAFETY: the program's message.
                unsafe { not_taken(session, message, matched) };
            }
        });
    }
    code
}

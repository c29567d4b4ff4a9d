//! Messages that are looked for before they are received, and those that are taken by what was found.

use std::cell::Cell;
use std::ffi::c_int;

use mpi_sys as ffi;

use super::receive::{has_taken, is_open};
use super::status::with_status;
use crate::message::Incoming;
use crate::pass;
use crate::session::requests::{Pending, Receiving};
use crate::session::{Choice, Session, enter, is_together, key, missed, records_choices};

impl Session {
    /// A probe has found this message.
    fn note_probe(&mut self, incoming: &Incoming, status: &ffi::MPI_Status) {
        if !is_open(incoming) {
            return;
        }
        let Some(comm) = self.comms.get(incoming.comm) else { return };
        if let Some(source) = comm.world(status.MPI_SOURCE) {
            self.decide(Choice::Probe { source, tag: status.MPI_TAG });
        }
    }

    /// A message was matched: it has its turn now, in order with the receives that were posted.
    fn matched(&mut self, incoming: &Incoming, message: ffi::MPI_Message, status: &ffi::MPI_Status) {
        self.note_probe(incoming, status);
        if let Some(receiving) = self.receiving(incoming, false) {
            let (source, tag) = (Some(status.MPI_SOURCE), Some(status.MPI_TAG));
            // Whom it comes from was decided just now.
            let receiving = self.post(Receiving { source, tag, is_open: false, ..receiving });
            self.messages.insert(key(message), receiving);
        }
    }
}

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
            enter(|session| session.note_probe(incoming, status));
        }
        code
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// Looks for a message without receiving it.
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
        // SAFETY: the call has said whether there is a message.
        if code == 0 && unsafe { *flag } == 0 {
            missed();
        } else if code == 0 && records_choices() {
            enter(|session| session.note_probe(incoming, status));
        }
        code
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// Waits for a message, and takes it out of the others' way.
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
        // Where threads match at once, nobody may wait in the step in which a message gets its turn.
        while is_together() {
            let (flag, begin) = (Cell::new(0), pass::Improbe.get());
            let look = |status| begin(incoming.source, incoming.tag, incoming.comm, flag.as_ptr(), message, status);
            let step = enter(|session| {
                with_status(status, look, |code, status| {
                    if code == 0 && flag.get() != 0 {
                        session.matched(incoming, *message, status);
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
                enter(|session| session.matched(incoming, *message, status));
            }
            code
        })
    }
}

/// Looks for a message, and takes it out of the others' way.
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
    // SAFETY: the program's status; where the call has found a message, it has put it there.
    let code = enter(|session| unsafe {
        with_status(status, &mut now, |code, status| {
            if code == 0 && *flag != 0 {
                session.matched(incoming, *message, status);
            } else if code == 0 {
                missed();
            }
            code
        })
    });
    code.unwrap_or_else(|| now(status))
}

/// A matched message, whose handle the call takes away.
///
/// # Safety
/// `message` points to a handle of the program's.
unsafe fn claimed(message: *const ffi::MPI_Message) -> Option<Receiving> {
    // SAFETY: the program's message.
    enter(|session| session.messages.remove(&key(unsafe { *message })))?
}

/// Receives a message that was matched.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_matched(
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's message.
    let claimed = unsafe { claimed(message) };
    let then = |code, status: &ffi::MPI_Status| {
        if let Some(receiving) = claimed {
            enter(|session| session.end_receive(receiving, Some(status).filter(|_| has_taken(code))));
        }
        code
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// The same; it ends with its request.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_matched_immediate(
    message: *mut ffi::MPI_Message,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program's message.
    let claimed = unsafe { claimed(message) };
    let code = call();
    if let Some(receiving) = claimed {
        enter(|session| {
            if code == 0 {
                // SAFETY: the call has put a request there.
                session.requests.add(unsafe { *request }, Pending::Receive(receiving));
            } else {
                session.end_receive(receiving, None);
            }
        });
    }
    code
}

//! Messages that arrive.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::send::{blank, receiving, remember, wanted, with_status};
use crate::message::Incoming;
use crate::session::put_off::{Taken, take};
use crate::session::requests::{Pending, Receiving, Repeated};
use crate::session::{Choice, Lane, Session, catch_up, enter, key, may_put_off, put_off};

unsafe extern "C" {
    /// How many bytes were received, by a status that MPI filled in.
    fn counterfoil_bytes(status: *const ffi::MPI_Status) -> usize;
}

/// Whether the program leaves open whom it receives from, or which tag.
#[inline]
fn is_open(incoming: &Incoming) -> bool {
    // SAFETY: constants of the shim.
    unsafe { incoming.source == ffi::RSMPI_ANY_SOURCE || incoming.tag == ffi::RSMPI_ANY_TAG }
}

/// What a receive took, by the status that MPI filled in.
#[inline]
fn taken(comm: ffi::MPI_Comm, is_open: bool, status: &ffi::MPI_Status) -> Taken {
    // SAFETY: a status that MPI filled in.
    let bytes = unsafe { counterfoil_bytes(status) };
    Taken { comm, is_open, source: status.MPI_SOURCE, tag: status.MPI_TAG, bytes }
}

impl Receiving {
    pub(super) fn of(incoming: &Incoming) -> Receiving {
        Receiving { comm: incoming.comm, is_open: is_open(incoming), is_partitioned: false }
    }
}

impl Session {
    /// A receive has ended with this status.
    pub(super) fn note_receive(&mut self, receiving: Receiving, status: &ffi::MPI_Status) {
        self.note_taken(taken(receiving.comm, receiving.is_open, status), receiving.is_partitioned);
    }

    #[inline]
    fn note_taken(&mut self, taken: Taken, is_partitioned: bool) {
        let Taken { comm, is_open, source, tag, bytes } = taken;
        let Some(comm) = self.comms.get(comm) else { return };
        let (number, Some(peer)) = (comm.number, comm.world(source)) else { return };
        let comm = if is_partitioned { partitioned(number) } else { number };
        if is_open {
            self.decide(Choice::Receive { source: peer, tag });
        }
        self.received(Lane { peer, comm, tag }, bytes);
    }

    /// Sees to the receive that is put off.
    #[inline(never)]
    pub(crate) fn catch_up(&mut self) {
        if let Some(taken) = take() {
            self.note_taken(taken, false);
        }
    }

    /// A probe has found this message.
    fn note_probe(&mut self, incoming: &Incoming, status: &ffi::MPI_Status) {
        if !Receiving::of(incoming).is_open {
            return;
        }
        let Some(comm) = self.comms.get(incoming.comm) else { return };
        if let Some(source) = comm.world(status.MPI_SOURCE) {
            self.decide(Choice::Probe { source, tag: status.MPI_TAG });
        }
    }
}

/// Partitioned messages match partitioned ones only: a number of their own for the communicator.
pub(super) fn partitioned(number: u32) -> u32 {
    number ^ (1 << 30)
}

/// Whether a receive has taken a message, although it may have been too long.
fn has_taken(code: c_int) -> bool {
    let mut class = 0;
    // SAFETY: a code that MPI returned, and a pointer to a local variable.
    code == 0 || unsafe { ffi::PMPI_Error_class(code, &raw mut class) } == 0 && class == ffi::MPI_ERR_TRUNCATE as c_int
}

/// A receive has returned.
#[inline]
pub(super) fn received(incoming: &Incoming, status: &ffi::MPI_Status, code: c_int) {
    if has_taken(code) {
        enter(|session| session.note_receive(Receiving::of(incoming), status));
    }
}

#[inline]
pub(crate) unsafe fn receive(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    if !may_put_off() {
        // SAFETY: as for this function.
        return unsafe { receive_at_once(incoming, status, call) };
    }
    catch_up();
    let mut ours = blank();
    let status = wanted(status, &raw mut ours);
    let code = call(status);
    // SAFETY: ours, or what the program has given for a status; the call is done with it.
    let status = unsafe { &*status };
    if code == 0 {
        put_off(taken(incoming.comm, is_open(incoming), status));
    } else {
        received(incoming, status, code);
    }
    code
}

#[inline(never)]
unsafe fn receive_at_once(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    received(incoming, &status, code);
    code
}

pub(crate) unsafe fn receive_immediate(
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there.
    unsafe { receiving(incoming, request, call()) }
}

pub(crate) unsafe fn receive_persistent(
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there.
    unsafe { remember(request, Repeated::Receive(Receiving::of(incoming)), call()) }
}

pub(crate) unsafe fn receive_partitioned(
    incoming: &Incoming,
    _: c_int,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let receiving = Receiving { is_partitioned: true, ..Receiving::of(incoming) };
    // SAFETY: the call puts a request there.
    unsafe { remember(request, Repeated::Receive(receiving), call()) }
}

pub(crate) unsafe fn probe(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    if code == 0 {
        enter(|session| session.note_probe(incoming, &status));
    }
    code
}

pub(crate) unsafe fn probe_immediate(
    incoming: &Incoming,
    flag: *mut c_int,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    if code == 0 {
        // SAFETY: the call has said whether there is a message.
        let is_there = unsafe { *flag } != 0;
        enter(|session| if is_there { session.note_probe(incoming, &status) } else { session.missed() });
    }
    code
}

/// A matched message belongs to its communicator from now on.
unsafe fn matched(incoming: &Incoming, message: *const ffi::MPI_Message, status: &ffi::MPI_Status) {
    // SAFETY: the call has put a message there.
    let message = unsafe { *message };
    enter(|session| {
        session.note_probe(incoming, status);
        session.messages.insert(key(message), incoming.comm);
    });
}

pub(crate) unsafe fn match_message(
    incoming: &Incoming,
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    if code == 0 {
        // SAFETY: the call has put a message there.
        unsafe { matched(incoming, message, &status) };
    }
    code
}

pub(crate) unsafe fn match_immediate(
    incoming: &Incoming,
    flag: *mut c_int,
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    // SAFETY: where the call has found a message, it has put it there.
    unsafe {
        if code == 0 && *flag != 0 {
            matched(incoming, message, &status);
        } else if code == 0 {
            enter(Session::missed);
        }
    }
    code
}

/// The communicator of a matched message, whose handle the call takes away.
unsafe fn matched_before(message: *const ffi::MPI_Message) -> Option<Receiving> {
    // SAFETY: the program's message.
    let comm = enter(|session| session.messages.remove(&key(unsafe { *message })))??;
    // Whom it comes from was decided when it was matched.
    Some(Receiving { comm, is_open: false, is_partitioned: false })
}

pub(crate) unsafe fn receive_matched(
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's message and status.
    let (taken, (code, status)) = unsafe { (matched_before(message), with_status(status, call)) };
    if let Some(receiving) = taken.filter(|_| has_taken(code)) {
        enter(|session| session.note_receive(receiving, &status));
    }
    code
}

pub(crate) unsafe fn receive_matched_immediate(
    message: *mut ffi::MPI_Message,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program's message.
    let taken = unsafe { matched_before(message) };
    let code = call();
    if let Some(receiving) = taken.filter(|_| code == 0) {
        // SAFETY: the call has put a request there.
        let request = unsafe { *request };
        enter(|session| session.requests.add(request, Pending::Receive(receiving)));
    }
    code
}

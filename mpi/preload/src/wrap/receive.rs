//! Messages that arrive.

use std::cell::Cell;
use std::ffi::c_int;

use mpi_sys as ffi;

use super::completion::wait;
use super::send::{blank, wanted, with_status};
use crate::message::Incoming;
use crate::pass;
use crate::session::put_off::{PutOff, take};
use crate::session::requests::{Pending, Persistent, Receiving, Repeated};
use crate::session::{Choice, Lane, Session, catch_up, enter, is_together, key, may_put_off, put_off};
use counterfoil_mpi::matching::Taken;

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
fn taken(status: &ffi::MPI_Status) -> Taken {
    // SAFETY: a status that MPI filled in.
    let bytes = unsafe { counterfoil_bytes(status) };
    Taken { source: status.MPI_SOURCE, tag: status.MPI_TAG, bytes }
}

impl Session {
    /// What has to be known of a receive; `None` of one that takes no message that is logged.
    pub(super) fn receiving(&mut self, incoming: &Incoming, is_partitioned: bool) -> Option<Receiving> {
        // SAFETY: constants of the shim.
        let (any_source, any_tag, nobody) =
            unsafe { (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG, ffi::RSMPI_PROC_NULL) };
        if incoming.source == nobody {
            return None;
        }
        let comm = self.comms.place(incoming.comm)?;
        let source = Some(incoming.source).filter(|source| *source != any_source);
        let tag = Some(incoming.tag).filter(|tag| *tag != any_tag);
        Some(Receiving { comm, source, tag, posted: None, is_open: is_open(incoming), is_partitioned })
    }

    /// It is posted now: messages that it may take have no number before it has ended.
    pub(super) fn post(&mut self, receiving: Receiving) -> Receiving {
        let comm = self.comms.at(receiving.comm);
        let posted = comm.map(|comm| comm.matching(receiving.is_partitioned).post(receiving.source, receiving.tag));
        Receiving { posted, ..receiving }
    }

    /// It is posted now, and this is its request.
    ///
    /// # Safety
    /// `request` points to it.
    pub(super) unsafe fn posted(&mut self, receiving: Receiving, request: *const ffi::MPI_Request) {
        let receiving = self.post(receiving);
        // SAFETY: the caller's promise.
        self.requests.add(unsafe { *request }, Pending::Receive(receiving));
    }

    /// A receive that was posted has ended: with this status, or `None` without a message.
    pub(super) fn end_receive(&mut self, receiving: Receiving, status: Option<&ffi::MPI_Status>) {
        self.end_with(receiving, status.map(taken));
    }

    fn end_with(&mut self, receiving: Receiving, taken: Option<Taken>) {
        let Some(posted) = receiving.posted else { return };
        let Some(comm) = self.comms.at(receiving.comm) else { return };
        let peer = taken.and_then(|taken| comm.world(taken.source));
        comm.matching(receiving.is_partitioned).end(posted, taken, &mut self.numbered);
        if let (Some(peer), Some(taken)) = (peer, taken) {
            if receiving.is_open {
                self.decide(Choice::Receive { source: peer, tag: taken.tag });
            }
            self.ledger.received(peer, taken.bytes);
        }
        let mut numbered = std::mem::take(&mut self.numbered);
        for Taken { source, tag, bytes } in numbered.drain(..) {
            let Some(comm) = self.comms.at(receiving.comm) else { break };
            let Some(peer) = comm.world(source) else { continue };
            let comm = if receiving.is_partitioned { partitioned(comm.number) } else { comm.number };
            self.moved(Lane { peer, comm, tag }, bytes);
        }
        self.numbered = numbered;
        self.comms.settle(receiving.comm.0);
        self.look_now_and_then(taken.map_or(0, |taken| taken.bytes));
    }

    /// A receive has returned, which nothing was posted behind.
    #[inline]
    pub(super) fn received_at_once(&mut self, received: PutOff) {
        let PutOff { comm: handle, is_open, source, tag, bytes } = received;
        let Some(comm) = self.comms.get(handle) else { return };
        let (number, Some(peer)) = (comm.number, comm.world(source)) else { return };
        if comm.matching.is_idle() {
            if is_open {
                self.decide(Choice::Receive { source: peer, tag });
            }
            self.received(Lane { peer, comm: number, tag }, bytes);
        } else {
            self.received_behind_others(received);
        }
    }

    /// The same, where other receives are under way, of which one may have taken an earlier message of the stream.
    #[cold]
    fn received_behind_others(&mut self, received: PutOff) {
        let PutOff { comm, is_open, source, tag, bytes } = received;
        let Some(comm) = self.comms.place(comm) else { return };
        let (source, tag) = (Some(source), Some(tag));
        let receiving = self.post(Receiving { comm, source, tag, posted: None, is_open, is_partitioned: false });
        self.end_with(receiving, Some(Taken { source: received.source, tag: received.tag, bytes }));
    }

    /// Sees to the receive that is put off.
    #[inline(never)]
    pub(crate) fn catch_up(&mut self) {
        if let Some(put_off) = take() {
            self.received_at_once(put_off);
        }
    }

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
}

/// Partitioned messages match partitioned ones only: a number of their own for the communicator.
pub(super) fn partitioned(number: u32) -> u32 {
    number ^ (1 << 30)
}

/// Whether a receive has taken a message, although it may have been too long.
pub(super) fn has_taken(code: c_int) -> bool {
    let mut class = 0;
    // SAFETY: a code that MPI returned, and a pointer to a local variable.
    code == 0 || unsafe { ffi::PMPI_Error_class(code, &raw mut class) } == 0 && class == ffi::MPI_ERR_TRUNCATE as c_int
}

/// What a receive that has returned took.
#[inline]
pub(super) fn returned(incoming: &Incoming, status: &ffi::MPI_Status) -> PutOff {
    let Taken { source, tag, bytes } = taken(status);
    PutOff { comm: incoming.comm, is_open: is_open(incoming), source, tag, bytes }
}

/// A receive has returned, and nothing was posted behind it.
#[inline]
pub(super) fn received(incoming: &Incoming, status: &ffi::MPI_Status, code: c_int) {
    if has_taken(code) {
        enter(|session| session.received_at_once(returned(incoming, status)));
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
        put_off(returned(incoming, status));
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
    if is_together() {
        // SAFETY: as for this function.
        return unsafe { receive_together(incoming, status, call) };
    }
    // SAFETY: the program's status.
    let (code, status) = unsafe { with_status(status, call) };
    received(incoming, &status, code);
    code
}

/// Where threads receive at once, posting and knowing of it are one step, and nobody waits in it.
unsafe fn receive_together(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let Incoming { buf, count, datatype, source, tag, comm } = *incoming;
    let Ok(count) = c_int::try_from(count) else {
        let posted = enter(|session| session.receiving(incoming, false).map(|receiving| session.post(receiving)));
        // SAFETY: the program's status.
        let (code, status) = unsafe { with_status(status, call) };
        if let Some(receiving) = posted.flatten() {
            enter(|session| session.end_receive(receiving, Some(&status).filter(|_| has_taken(code))));
        }
        return code;
    };
    let begin = pass::Irecv.get();
    // SAFETY: the program's arguments, and a request of ours that is waited for.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let at = &raw mut request;
        let code = receive_immediate(incoming, at, || begin(buf, count, datatype, source, tag, comm, at));
        if code == 0 { wait(at, status, |status| (pass::Wait.get())(at, status)) } else { code }
    }
}

pub(crate) unsafe fn receive_immediate(
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter(|session| {
        let receiving = session.receiving(incoming, false);
        let code = now();
        if let Some(receiving) = receiving.filter(|_| code == 0) {
            // SAFETY: the call has put a request there.
            unsafe { session.posted(receiving, request) };
        }
        code
    });
    code.unwrap_or_else(now)
}

/// Knows a persistent receive.
unsafe fn receive_again(
    incoming: &Incoming,
    is_partitioned: bool,
    request: *const ffi::MPI_Request,
    code: c_int,
) -> c_int {
    if code == 0 {
        enter(|session| {
            let what = Repeated::Receive(session.receiving(incoming, is_partitioned)?);
            // SAFETY: the call has put a request there.
            session.requests.add(unsafe { *request }, Pending::Persistent(Persistent { what, is_active: false }));
            Some(())
        });
    }
    code
}

pub(crate) unsafe fn receive_persistent(
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there.
    unsafe { receive_again(incoming, false, request, call()) }
}

pub(crate) unsafe fn receive_partitioned(
    incoming: &Incoming,
    _: c_int,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there.
    unsafe { receive_again(incoming, true, request, call()) }
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

impl Session {
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
                let (code, status) = with_status(status, look);
                if code == 0 && flag.get() != 0 {
                    session.matched(incoming, *message, &status);
                }
                code
            });
            match step {
                None => break,
                Some(0) if flag.get() == 0 => std::thread::yield_now(),
                Some(code) => return code,
            }
        }
        let (code, status) = with_status(status, call);
        if code == 0 {
            enter(|session| session.matched(incoming, *message, &status));
        }
        code
    }
}

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
        let (code, status) = with_status(status, &mut now);
        if code == 0 && *flag != 0 {
            session.matched(incoming, *message, &status);
        } else if code == 0 {
            session.missed();
        }
        code
    });
    code.unwrap_or_else(|| now(status))
}

/// A matched message, whose handle the call takes away.
unsafe fn claimed(message: *const ffi::MPI_Message) -> Option<Receiving> {
    // SAFETY: the program's message.
    enter(|session| session.messages.remove(&key(unsafe { *message })))?
}

pub(crate) unsafe fn receive_matched(
    message: *mut ffi::MPI_Message,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's message and status.
    let (claimed, (code, status)) = unsafe { (claimed(message), with_status(status, call)) };
    if let Some(receiving) = claimed {
        enter(|session| session.end_receive(receiving, Some(&status).filter(|_| has_taken(code))));
    }
    code
}

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

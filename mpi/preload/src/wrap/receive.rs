//! Messages that arrive.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::completion::wait;
use super::status::with_status;
use crate::message::Incoming;
use crate::pass;
use crate::session::put_off::{PutOff, take, take_end};
use crate::session::requests::{Pending, Persistent, Receiving, Repeated};
use crate::session::{Choice, Lane, Name, Session, catch_up, enter, is_together, may_put_off, put_off};
use counterfoil_mpi::matching::Taken;

unsafe extern "C" {
    /// How many bytes were received, by a status that MPI filled in.
    fn counterfoil_bytes(status: *const ffi::MPI_Status) -> usize;
    /// Where in a status they are, if they are one `size_t` there; else negative.
    static counterfoil_bytes_at: isize;
}

/// Whether the program leaves open whom it receives from, or which tag.
#[inline]
fn leaves_open(source: c_int, tag: c_int) -> bool {
    // SAFETY: constants of the shim.
    unsafe { source == ffi::RSMPI_ANY_SOURCE || tag == ffi::RSMPI_ANY_TAG }
}

/// [`leaves_open`], of what a receive asks for.
#[inline]
pub(super) fn is_open(incoming: &Incoming) -> bool {
    leaves_open(incoming.source, incoming.tag)
}

/// What a receive took, by the status that MPI filled in.
#[inline]
pub(super) fn taken(status: &ffi::MPI_Status) -> Taken {
    // SAFETY: a status that MPI filled in, and a constant of a C file of this library, by the same `mpi.h`.
    let bytes = unsafe {
        match usize::try_from(counterfoil_bytes_at) {
            Ok(at) => (&raw const *status).byte_add(at).cast::<usize>().read(),
            Err(_) => counterfoil_bytes(status),
        }
    };
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
        let Receiving { comm, source, tag, is_partitioned, .. } = receiving;
        let posted = self.comms.post(comm, is_partitioned, source, tag);
        Receiving { posted, ..receiving }
    }

    /// It is posted now, and this is its request.
    pub(super) fn posted(&mut self, receiving: Receiving, request: ffi::MPI_Request) {
        let receiving = self.post(receiving);
        self.requests.add(request, Pending::Receive(receiving));
    }

    /// A receive that was posted has ended: with this status, or `None` without a message.
    pub(super) fn end_receive(&mut self, receiving: Receiving, status: Option<&ffi::MPI_Status>) {
        self.end_with(receiving, status.map(taken));
    }

    fn end_with(&mut self, receiving: Receiving, taken: Option<Taken>) {
        let Some(posted) = receiving.posted else { return };
        let Some(comm) = self.comms.at(receiving.comm) else { return };
        let peer = taken.and_then(|taken| comm.world(taken.source));
        self.comms.end(receiving.comm, receiving.is_partitioned, posted, taken, &mut self.numbered);
        if let (Some(peer), Some(taken)) = (peer, taken) {
            if receiving.is_open {
                self.decide(Choice::Receive { source: peer, tag: taken.tag });
            }
            self.ledger.received(peer, taken.bytes);
            self.ledger.has_arrived();
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
    pub(crate) fn received_at_once(&mut self, handle: ffi::MPI_Comm, is_open: bool, taken: Taken) {
        if self.count_received(handle, is_open, taken) {
            self.ledger.has_arrived();
            self.look_now_and_then(taken.bytes);
        }
    }

    /// Counts what a receive took that has returned. Says whether that was all: whether nothing was looked after with it.
    #[inline(always)]
    pub(crate) fn count_received(&mut self, handle: ffi::MPI_Comm, is_open: bool, taken: Taken) -> bool {
        let Taken { source, tag, bytes } = taken;
        let Some(route) = self.route_from(Name::new(handle, source, tag)) else { return false };
        if self.comms.is_idle((route.comm, route.lane.comm)) {
            if is_open {
                self.decide(Choice::Receive { source: route.lane.peer, tag });
            }
            self.received(route, bytes);
            return true;
        }
        self.received_behind_others(handle, is_open, source, tag, bytes);
        false
    }

    /// The same, where other receives are under way, of which one may have taken an earlier message of the stream.
    #[cold]
    fn received_behind_others(
        &mut self,
        handle: ffi::MPI_Comm,
        is_open: bool,
        source: c_int,
        tag: c_int,
        bytes: usize,
    ) {
        let Some(comm) = self.comms.place(handle) else { return };
        let (from, of) = (Some(source), Some(tag));
        let receiving = Receiving { comm, source: from, tag: of, posted: None, is_open, is_partitioned: false };
        let receiving = self.post(receiving);
        self.end_with(receiving, Some(Taken { source, tag, bytes }));
    }

    /// A receive was posted, and may have ended since.
    #[inline]
    fn posted_before(&mut self, incoming: &Incoming, request: ffi::MPI_Request) {
        let Some(receiving) = self.receiving(incoming, false) else { return };
        let is_next = !receiving.is_open && self.comms.is_idle(receiving.comm);
        match if is_next { take_end(request) } else { None } {
            Some(taken) => self.received_at_once(incoming.comm, false, taken),
            None => self.posted(receiving, request),
        }
    }

    /// Sees to what is put off.
    #[inline(never)]
    pub(crate) fn catch_up(&mut self) {
        while let Some(put_off) = take() {
            match put_off {
                PutOff::Received { comm, is_open, taken } => self.received_at_once(comm, is_open, taken),
                PutOff::Posted { comm, source, tag, request } => {
                    self.posted_before(&Incoming::asking(source, tag, comm), request);
                }
                PutOff::Ended { request, taken } => {
                    if let Some(Pending::Receive(receiving)) = self.requests.end(request) {
                        self.end_with(receiving, Some(taken));
                    }
                }
            }
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

/// A receive has returned this code, and nothing was posted behind it. Gives the code.
#[inline]
pub(super) fn received(incoming: &Incoming, status: &ffi::MPI_Status, code: c_int) -> c_int {
    let (comm, is_open) = (incoming.comm, is_open(incoming));
    if code == 0 && may_put_off() {
        put_off(PutOff::Received { comm, is_open, taken: taken(status) });
    } else {
        received_now(comm, is_open, status, code);
    }
    code
}

/// A receive that has ended when it returns, where what it does [may be put off](may_put_off). What stands behind the call delays the
/// answer: only what it took is noted there.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(always)]
pub(crate) unsafe fn receive_and_note(
    (comm, source, tag): (ffi::MPI_Comm, c_int, c_int),
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    catch_up();
    let is_open = leaves_open(source, tag);
    let then = |code, status: &ffi::MPI_Status| {
        if code == 0 {
            put_off(PutOff::Received { comm, is_open, taken: taken(status) });
        } else {
            received_now(comm, is_open, status, code);
        }
        code
    };
    // SAFETY: the program's status.
    unsafe { with_status(status, call, then) }
}

/// A receive has returned this code, and what it took, if it took something, isn't put off.
#[inline(never)]
fn received_now(comm: ffi::MPI_Comm, is_open: bool, status: &ffi::MPI_Status, code: c_int) {
    if has_taken(code) {
        enter(|session| session.received_at_once(comm, is_open, taken(status)));
    }
}

/// A receive that has ended when it returns.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(never)]
pub(crate) unsafe fn receive(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    if is_together() {
        // SAFETY: as for this function.
        return unsafe { receive_together(incoming, status, call) };
    }
    // SAFETY: the program's status.
    unsafe { with_status(status, call, |code, status| received(incoming, status, code)) }
}

/// Where threads receive at once, posting and knowing of it are one step, and nobody waits in it.
///
/// # Safety
/// The program's arguments: see the [module](super).
unsafe fn receive_together(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let Incoming { buf, count, datatype, source, tag, comm } = *incoming;
    let Ok(count) = c_int::try_from(count) else {
        let posted = enter(|session| session.receiving(incoming, false).map(|receiving| session.post(receiving)));
        let then = |code, status: &ffi::MPI_Status| {
            if let Some(receiving) = posted.flatten() {
                enter(|session| session.end_receive(receiving, Some(status).filter(|_| has_taken(code))));
            }
            code
        };
        // SAFETY: the program's status.
        return unsafe { with_status(status, call, then) };
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

/// A receive that ends with its request.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_immediate(
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if may_put_off() {
        let code = call();
        if code == 0 {
            let Incoming { source, tag, comm, .. } = *incoming;
            // SAFETY: the call has put a request there.
            put_off(PutOff::Posted { comm, source, tag, request: unsafe { *request } });
        }
        return code;
    }
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter(|session| {
        let receiving = session.receiving(incoming, false);
        let code = now();
        if let Some(receiving) = receiving.filter(|_| code == 0) {
            // SAFETY: the call has put a request there.
            session.posted(receiving, unsafe { *request });
        }
        code
    });
    code.unwrap_or_else(now)
}

/// Knows a persistent receive.
///
/// # Safety
/// If `code` is 0, `request` points to one.
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

/// A receive that begins when its request is started.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_persistent(
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there.
    unsafe { receive_again(incoming, false, request, call()) }
}

/// The same, of a message in parts.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn receive_partitioned(
    incoming: &Incoming,
    _: c_int,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there.
    unsafe { receive_again(incoming, true, request, call()) }
}

//! Messages that leave.

use std::ffi::c_int;

use mpi_sys as ffi;

use crate::message::Outgoing;
use crate::pass;
use crate::say::say;
use crate::session::requests::{Pending, Persistent, Repeated};
use crate::session::{
    Copied, FullError, Lane, Name, Route, Session, enter, enter_behind, enter_for_room, is_absent, is_together,
    likely_bytes, sends_first,
};

/// From this many bytes on a message is copied while it is under way: it is begun, copied, and waited for. Open MPI's blocking send of no
/// more than 256 bytes leaves at once where it can (`mca_pml_ob1_send_inline`), and of more it waits, through shared memory, until they are received.
const OVERLAP_BYTES: i64 = 257;
/// Bytes of an element of MPI's own datatypes, at most.
const LONGEST_ELEMENT: i64 = 32;

/// In which of MPI's ways a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Standard,
    Buffered,
    Synchronous,
    Ready,
}

impl Session {
    /// Where a message goes in the log; `None` if it isn't logged. To be called once a message.
    #[inline(always)]
    fn route(&mut self, name: Name) -> Option<Route> {
        let route = self.route_to(name)?;
        if self.is_on() {
            return Some(route);
        }
        // The receiver counts it, too.
        self.pass_by(route.lane);
        None
    }

    /// The same, in the log alone.
    pub(super) fn lane(&mut self, out: &Outgoing) -> Option<Lane> {
        self.route(out.name()).map(|route| route.lane)
    }
}

/// The send is refused: the program's error handler is told, as of any other error.
#[cold]
pub(super) fn refuse(comm: ffi::MPI_Comm, full: &FullError) -> c_int {
    let is_first = enter(|session| {
        session.ledger.sends_refused += 1;
        session.ledger.sends_refused == 1
    });
    if is_first == Some(true) {
        say(format_args!(
            "a send fails, as COUNTERFOIL_ON_FULL=fail asks: {full}; of others that fail there is a count at the end"
        ));
    }
    let code = ffi::MPI_ERR_OTHER as c_int;
    // SAFETY: the communicator of the program's own call.
    unsafe { ffi::PMPI_Comm_call_errhandler(comm, code) };
    code
}

/// Logs a message that `call` begins to send.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline]
pub(super) unsafe fn logged(out: &Outgoing, call: impl FnOnce() -> c_int) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter_for_room(|session| {
        let Some(lane) = session.lane(out) else { return Ok(None) };
        // SAFETY: the program's message.
        unsafe { session.log(lane, (out.buf, out.count, out.datatype), Copied::Behind, &mut now) }.map(Some)
    });
    match code.transpose().map(Option::flatten) {
        Ok(Some(code)) => code,
        Ok(None) => now(),
        Err(full) => refuse(out.comm, &full),
    }
}

/// Lets the processor finish what it has begun before it goes on. Where it runs ahead into what is done behind a send, and has to
/// wait there for a value that it has just stored, the message leaves later, by a sixth of the latency between two cores and more:
/// so it was measured, in this library and in others that do nothing but pass the call on. This takes a few nanoseconds.
#[inline]
fn finish() {
    // SAFETY: every x86-64 has SSE2; it changes nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

/// Whether the message is better begun, copied, and waited for. It may err, so that it takes next to no time.
#[inline]
pub(super) fn is_long(count: i64, datatype: ffi::MPI_Datatype) -> bool {
    count >= OVERLAP_BYTES / LONGEST_ELEMENT && likely_bytes(count, datatype) >= OVERLAP_BYTES
}

/// Logs a message that was just sent.
///
/// # Safety
/// `out` is the program's message, which it doesn't write meanwhile.
#[inline(always)]
unsafe fn log_here(out: Outgoing) {
    finish();
    let Some(mut session) = enter_behind() else { return };
    let (name, Outgoing { buf, count, datatype, .. }) = (out.name(), out);
    let Some(route) = session.route(name) else { return session.leave() };
    // SAFETY: the program's message, which it may not write before its call returns.
    unsafe {
        if !session.log_short(route, (buf, count, datatype)) {
            session.log_any_to(name, buf, count, datatype);
        }
    }
    session.leave_behind();
}

/// [`log_here`], for who is in less of a hurry.
///
/// # Safety
/// `out` is the program's message, which it doesn't write meanwhile.
#[inline(never)]
pub(super) unsafe fn log_sent(out: &Outgoing) {
    // SAFETY: as for this function.
    unsafe { log_here(*out) };
}

/// Logs a message that was just sent. `meanwhile` is called now and then while a long one is copied.
///
/// # Safety
/// `out` is the program's message, which it doesn't write meanwhile.
#[inline(never)]
pub(super) unsafe fn log_under_way(out: &Outgoing, meanwhile: &mut dyn FnMut()) {
    let Some(mut session) = enter_behind() else { return };
    let Some(route) = session.route(out.name()) else { return session.leave() };
    let message = (out.buf, out.count, out.datatype);
    // SAFETY: the program's message, which it may not write before its call returns.
    unsafe {
        if !session.log_short(route, message) {
            session.log_any(route, message, meanwhile);
        }
    }
    session.leave_behind();
}

/// Whether a message is sent, and then logged behind that.
#[inline(always)]
pub(crate) fn goes_first(mode: Mode, count: i64, datatype: ffi::MPI_Datatype) -> bool {
    sends_first() && (mode != Mode::Standard || !is_long(count, datatype))
}

/// A message that [goes first](goes_first) was sent, with this code. All of it stands in the program's call: what is handed over to
/// another function is stored behind the message.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(always)]
pub(crate) unsafe fn sent(code: c_int, out: Outgoing) -> c_int {
    if code == 0 {
        // SAFETY: the program's message, which it may not write before its call returns.
        unsafe { log_here(out) };
    }
    code
}

/// A send, of a message that doesn't [go first](goes_first), that has ended when it returns.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(never)]
pub(crate) unsafe fn send(out: &Outgoing, mode: Mode, call: impl FnOnce() -> c_int) -> c_int {
    if is_absent() {
        return call();
    }
    if !is_together() && (mode != Mode::Standard || !is_long(out.count, out.datatype)) {
        // SAFETY: as for this function.
        return unsafe { logged(out, call) };
    }
    // The copy is made while the message is under way. And where threads send at once, the order in the log is that of the sends:
    // nobody else sends from the first line to the last, so the send must not wait.
    let Ok(count) = c_int::try_from(out.count) else {
        // SAFETY: as above.
        return unsafe { logged(out, call) };
    };
    let begin = match mode {
        Mode::Standard => pass::Isend.get(),
        Mode::Buffered => pass::Ibsend.get(),
        Mode::Synchronous => pass::Issend.get(),
        Mode::Ready => pass::Irsend.get(),
    };
    // SAFETY: the program's arguments, a request of ours that is waited for, and constants of the shim.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let at = &raw mut request;
        let now = || begin(out.buf, count, out.datatype, out.dest, out.tag, out.comm, at);
        let mut code = if sends_first() { now() } else { logged(out, now) };
        if code == 0 && sends_first() {
            // Where the MPI moves the bytes only when it is called, it is.
            log_under_way(out, &mut || {
                let mut flag = 0;
                if code == 0 {
                    code = (pass::Test.get())(at, &raw mut flag, ffi::RSMPI_STATUS_IGNORE);
                }
            });
        }
        if code == 0 { (pass::Wait.get())(at, ffi::RSMPI_STATUS_IGNORE) } else { code }
    }
}

/// A send that ends with its request.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn send_immediate(out: &Outgoing, _: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    if !sends_first() {
        // SAFETY: as for this function; the program writes the message no more before the request has ended.
        return unsafe { logged(out, call) };
    }
    let code = call();
    if code == 0 {
        // SAFETY: as above.
        unsafe { log_sent(out) };
    }
    code
}

/// Remembers what a persistent request does.
///
/// # Safety
/// If `code` is 0, `request` points to one.
pub(super) unsafe fn remember(request: *mut ffi::MPI_Request, what: Repeated, code: c_int) -> c_int {
    if code == 0 {
        // SAFETY: the call has put a request there.
        let request = unsafe { *request };
        enter(|session| session.requests.add(request, Pending::Persistent(Persistent { what, is_active: false })));
    }
    code
}

/// A send that begins when its request is started.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn send_persistent(
    out: &Outgoing,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there.
    unsafe { remember(request, Repeated::Send(*out), call()) }
}

/// The same, of a message in parts.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn send_partitioned(
    out: &Outgoing,
    _: c_int,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there.
    unsafe { remember(request, Repeated::SendPartitioned(*out), call()) }
}

//! Messages that leave.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::receive::{receive, received};
use super::status::{blank, wanted};
use crate::message::{Incoming, Outgoing};
use crate::pass;
use crate::say::say;
use crate::session::requests::{Pending, Persistent, Repeated};
use crate::session::{FullError, Lane, Session, enter, enter_ahead, enter_for_room, is_together, sends_first};

/// From this many bytes on a message is copied while it is under way.
const OVERLAP_BYTES: i64 = 16 << 10;

unsafe extern "C" {
    static counterfoil_packed: ffi::MPI_Datatype;
}

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
    pub(super) fn lane(&mut self, out: &Outgoing) -> Option<Lane> {
        let comm = self.comms.get(out.comm)?;
        let lane = Lane { peer: comm.world(out.dest)?, comm: comm.number, tag: out.tag };
        if self.is_on() {
            return Some(lane);
        }
        // The receiver counts it, too.
        self.pass_by(lane);
        None
    }
}

/// The send is refused: the program's error handler is told, as of any other error.
#[cold]
pub(super) fn refuse(comm: ffi::MPI_Comm, full: &FullError) -> c_int {
    say(format_args!("a send fails, as COUNTERFOIL_ON_FULL=fail asks: {full}"));
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
unsafe fn logged(out: &Outgoing, call: impl FnOnce() -> c_int) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter_for_room(|session| {
        let Some(lane) = session.lane(out) else { return Ok(None) };
        // SAFETY: the program's message.
        unsafe { session.log(lane, (out.buf, out.count, out.datatype), &mut now) }.map(Some)
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

/// Logs a message that was just sent. `meanwhile` is called now and then while a long one is copied.
///
/// # Safety
/// `out` is the program's message, which it doesn't write meanwhile.
#[inline(never)]
unsafe fn log_sent(out: &Outgoing, meanwhile: &mut dyn FnMut()) {
    finish();
    enter_ahead(|session| {
        if let Some(lane) = session.lane(out) {
            // SAFETY: the program's message, which it may not write before its call returns.
            unsafe { session.log_sent(lane, (out.buf, out.count, out.datatype), meanwhile) };
        }
    });
}

/// A send that has ended when it returns.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline]
pub(crate) unsafe fn send(out: &Outgoing, mode: Mode, call: impl FnOnce() -> c_int) -> c_int {
    let is_long = mode == Mode::Standard && out.count >= OVERLAP_BYTES / 8;
    if is_long || !sends_first() {
        // SAFETY: as for this function.
        return unsafe { send_otherwise(out, mode, call) };
    }
    let code = call();
    if code == 0 {
        // SAFETY: as for this function.
        unsafe { log_sent(out, &mut || ()) };
    }
    code
}

/// [`send`] of a long message, and where it can't leave before it is logged.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(never)]
unsafe fn send_otherwise(out: &Outgoing, mode: Mode, call: impl FnOnce() -> c_int) -> c_int {
    let is_long = mode == Mode::Standard && out.count >= OVERLAP_BYTES / 8;
    if !is_long && !is_together() {
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
            log_sent(out, &mut || {
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
        unsafe { log_sent(out, &mut || ()) };
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

/// Receives what the program waits for, then waits for what was begun: for threads that must not keep others from sending.
///
/// # Safety
/// The program's arguments: see the [module](super). If `code` is 0, `request` was begun.
unsafe fn receive_then_wait(
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    request: &mut ffi::MPI_Request,
    code: c_int,
) -> c_int {
    if code != 0 {
        return code;
    }
    let Incoming { buf, count, datatype, source, tag, comm } = *incoming;
    // What has more elements than that is asked for in a large-count form, of which none is here: see `send`.
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    // SAFETY: the program's arguments, and a request that was begun.
    unsafe {
        let call = |status| (pass::Recv.get())(buf, count, datatype, source, tag, comm, status);
        let received = receive(incoming, status, call);
        let sent = (pass::Wait.get())(request, ffi::RSMPI_STATUS_IGNORE);
        if received == 0 { sent } else { received }
    }
}

/// A send and a receive that have ended when it returns.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn exchange(
    out: &Outgoing,
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let mut ours = blank();
    let status = wanted(status, &raw mut ours);
    // SAFETY: the program's message, which is not where the other one is received; a request that is waited for; and the status is
    // filled in behind.
    unsafe {
        match (c_int::try_from(out.count), c_int::try_from(incoming.count)) {
            (Ok(sends), Ok(receives)) if sends_first() => exchange_at_once((out, sends), (incoming, receives), status),
            (Ok(count), _) if is_together() => {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let begin = pass::Isend.get();
                let code =
                    logged(out, || begin(out.buf, count, out.datatype, out.dest, out.tag, out.comm, &raw mut request));
                receive_then_wait(incoming, status, &mut request, code)
            }
            // Others may need an answer from this rank while it waits, and get it where the session isn't entered.
            _ if sends_first() => {
                let code = call(status);
                received(incoming, &*status, code);
                if code == 0 {
                    log_sent(out, &mut || ());
                }
                code
            }
            _ => {
                let code = logged(out, || call(status));
                received(incoming, &*status, code);
                code
            }
        }
    }
}

/// Posts the receive, sends, and logs what was sent while both messages are under way.
///
/// # Safety
/// The program's messages, whose counts are `sends` and `receives`; `status` is there to be filled in.
unsafe fn exchange_at_once(
    (out, sends): (&Outgoing, c_int),
    (incoming, receives): (&Incoming, c_int),
    status: *mut ffi::MPI_Status,
) -> c_int {
    // SAFETY: the program's arguments, and requests of ours, each of which is waited for.
    unsafe {
        let (mut receiving, mut sending) = (ffi::RSMPI_REQUEST_NULL, ffi::RSMPI_REQUEST_NULL);
        let Incoming { buf, datatype, source, tag, comm, .. } = *incoming;
        let posted = (pass::Irecv.get())(buf, receives, datatype, source, tag, comm, &raw mut receiving);
        if posted != 0 {
            return posted;
        }
        let Outgoing { buf, datatype, dest, tag, comm, .. } = *out;
        let mut sent = if out.count < OVERLAP_BYTES / 8 {
            (pass::Send.get())(buf, sends, datatype, dest, tag, comm)
        } else {
            (pass::Isend.get())(buf, sends, datatype, dest, tag, comm, &raw mut sending)
        };
        if sent != 0 {
            // Nothing is received either where the message couldn't leave.
            (pass::Cancel.get())(&raw mut receiving);
            (pass::Wait.get())(&raw mut receiving, ffi::RSMPI_STATUS_IGNORE);
            return sent;
        }
        log_sent(out, &mut || {
            let mut flag = 0;
            if sent == 0 {
                sent = (pass::Test.get())(&raw mut sending, &raw mut flag, ffi::RSMPI_STATUS_IGNORE);
            }
        });
        let code = (pass::Wait.get())(&raw mut receiving, status);
        received(incoming, &*status, code);
        if sent == 0 {
            sent = (pass::Wait.get())(&raw mut sending, ffi::RSMPI_STATUS_IGNORE);
        }
        if code == 0 { sent } else { code }
    }
}

pub(super) fn log_bytes(lane: Lane, bytes: &[u8]) -> Result<(), FullError> {
    enter(|session| session.log_bytes(lane, bytes)).unwrap_or(Ok(()))
}

/// What is about to be overwritten, and where it goes.
///
/// # Safety
/// `out` is the program's message, which nobody writes meanwhile.
unsafe fn saved(out: &Outgoing) -> Option<(Lane, Vec<u8>)> {
    enter(|session| {
        let lane = session.lane(out)?;
        // SAFETY: the program's message.
        Some((lane, unsafe { session.pack(out.buf, out.count, out.datatype) }?))
    })?
}

/// [`exchange`] where what is received takes the place of what is sent.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn exchange_replace(
    out: &Outgoing,
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    let mut ours = blank();
    let status = wanted(status, &raw mut ours);
    // SAFETY: the program's message, which is packed before anything is received into it; packed bytes stay until they are sent; and
    // the status is filled in behind.
    unsafe {
        let saved = saved(out);
        let together = saved.as_ref().filter(|_| is_together());
        match together.and_then(|(_, bytes)| Some((bytes, c_int::try_from(bytes.len()).ok()?))) {
            Some((bytes, len)) => {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let begin = pass::Isend.get();
                let packed =
                    Outgoing { buf: bytes.as_ptr().cast(), count: len.into(), datatype: counterfoil_packed, ..*out };
                let code = logged(&packed, || {
                    begin(packed.buf, len, packed.datatype, packed.dest, packed.tag, packed.comm, &raw mut request)
                });
                receive_then_wait(incoming, status, &mut request, code)
            }
            None => {
                let code = call(status);
                received(incoming, &*status, code);
                match saved.filter(|_| code == 0).map(|(lane, bytes)| log_bytes(lane, &bytes)) {
                    Some(Err(full)) => refuse(out.comm, &full),
                    _ => code,
                }
            }
        }
    }
}

/// A send and a receive that end with their request.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn exchange_immediate(
    out: &Outgoing,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter_for_room(|session| {
        let receiving = session.receiving(incoming, false);
        let code = match session.lane(out) {
            // SAFETY: the program's message.
            Some(lane) => unsafe { session.log(lane, (out.buf, out.count, out.datatype), &mut now) },
            None => Ok(now()),
        };
        if let (Ok(0), Some(receiving)) = (&code, receiving) {
            // SAFETY: the call has put a request there.
            unsafe { session.posted(receiving, request) };
        }
        code
    });
    match code {
        Some(Ok(code)) => code,
        Some(Err(full)) => refuse(out.comm, &full),
        None => now(),
    }
}

/// [`exchange_immediate`] where what is received takes the place of what is sent.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn exchange_replace_immediate(
    out: &Outgoing,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter(|session| {
        let receiving = session.receiving(incoming, false);
        // SAFETY: the program's message, before anything is received into it.
        let saved =
            session.lane(out).and_then(|lane| Some((lane, unsafe { session.pack(out.buf, out.count, out.datatype) }?)));
        let code = now();
        if let Some(receiving) = receiving.filter(|_| code == 0) {
            // SAFETY: the call has put a request there.
            unsafe { session.posted(receiving, request) };
        }
        match saved.filter(|_| code == 0) {
            Some((lane, bytes)) => session.log_bytes(lane, &bytes).map(|()| 0),
            None => Ok(code),
        }
    });
    match code {
        Some(Ok(code)) => code,
        Some(Err(full)) => refuse(out.comm, &full),
        None => now(),
    }
}

//! Sends.
//!
//! The calls of an `MPI_Send`; each way to send and log ends in a record, its count, and the release of acknowledged
//! records:
//!
//! ```text
//! MPI_Send                      OUT_DIR/calls.rs, rendered by build/render.rs
//!   is_sent_first?              up to 256 bytes, one thread at a time
//!     next::Send                  the MPI's
//!     log_after_send > log_inline
//!   is_begun_first?             longer, and no error handler of the program's
//!     send_begun
//!       next::Isend
//!       log_inline
//!       next::Wait
//!   send                        else
//!     log_around > Session::log   several threads, or `--on-full fail`: claimed before the message leaves
//!     log_sent > log_inline       begun; the program has an error handler, or its call is MPI_Send_c
//!
//! log_inline
//!   global::enter_after_send    deferred events first, if they are due
//!   Session::logged_stream      session/stream_cache.rs
//!   Session::log_short          write_short_record: short, of a predefined datatype, and with space at once
//!   Session::log_any_to         else: write_record, or wait_for_space (session/space.rs)
//!     Session::progress_if_due  session/progress.rs, mpi-logger
//!   finish_after_send           counts the one message received before
//! ```

use std::ffi::c_int;
use std::ptr::null_mut;

use mpi_sys as ffi;

use crate::global::{enter, enter_after_send, enter_for_space, is_absent, is_multiple, logs_after_send};
use crate::say::say;
use crate::session::requests::{Pending, Persistent, PersistentKind};
use crate::session::{CopyTime, FullError, Session, StreamKey, likely_bytes};
use crate::{handlers, next};
use counterfoil_mpi_core::arguments::{Mode, Outgoing, is_proc_null};

/// Length in bytes from which a message is started, copied and waited for, so that it is copied while under way.
///
/// Open MPI's blocking send returns at once for at most 256 bytes where it can (`mca_pml_ob1_send_inline`); for more,
/// over shared memory, when they are received.
const OVERLAP_BYTES: i64 = 257;
/// Largest element of a predefined datatype, in bytes.
const LONGEST_ELEMENT: i64 = 32;

/// Refuses a send: calls the program's error handler, as for any other error.
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

/// Logs a message begun by `call`.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline]
pub(super) unsafe fn log_around(out: &Outgoing, call: impl FnOnce() -> c_int) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter_for_space(|session| {
        let Some(entry) = session.logged_stream(StreamKey::of(out)) else { return Ok(None) };
        // SAFETY: the program's message.
        unsafe { session.log(entry.stream, (out.buf, out.count, out.datatype), CopyTime::AfterSend, &mut now) }
            .map(Some)
    });
    match code.transpose().map(Option::flatten) {
        Ok(Some(code)) => code,
        // Not logged: sent outside the session.
        Ok(None) => now(),
        Err(full) => refuse(out.comm, &full),
    }
}

/// Waits until the processor has executed all earlier instructions.
///
/// Takes a few nanoseconds.
///
/// A processor running ahead into the code after a send, and waiting there for a value just stored, delays the message
/// by a sixth of the latency between two cores and more: measured in this library and in others that only pass calls
/// on.
#[inline]
fn fence() {
    // SAFETY: every x86-64 processor has SSE2; the instruction changes nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

/// Returns `true` for a message to be started, copied and waited for.
///
/// A guess, since it has to take next to no time.
#[inline]
pub(super) fn is_long(count: i64, datatype: ffi::MPI_Datatype) -> bool {
    count >= OVERLAP_BYTES / LONGEST_ELEMENT && likely_bytes(count, datatype) >= OVERLAP_BYTES
}

/// Logs a message just sent, or begun with `request`, which is tested as by [`log_any_to`](Session::log_any_to).
///
/// Returns the code of these tests. Inlined, since arguments passed to another function would be stored after the
/// message.
///
/// # Safety
/// `out` is the program's message, which it doesn't write meanwhile, and the request is the library's own.
#[inline(always)]
unsafe fn log_inline(out: Outgoing, request: *mut ffi::MPI_Request) -> c_int {
    fence();
    let Some(mut session) = enter_after_send() else { return 0 };
    let (key, Outgoing { buf, count, datatype, .. }) = (StreamKey::of(&out), out);
    let Some(stream) = session.logged_stream(key) else {
        session.finish_unlogged();
        return 0;
    };
    // SAFETY: the program's message, which it may not write before its call returns.
    let code = unsafe {
        if session.log_short(stream, (buf, count, datatype)) {
            0
        } else {
            session.log_any_to(key, buf, count, datatype, request)
        }
    };
    session.finish_after_send();
    code
}

/// [`log_inline`] as a call, where a few stores don't matter.
///
/// # Safety
/// See [`log_inline`].
#[inline(never)]
pub(super) unsafe fn log_sent(out: &Outgoing, request: *mut ffi::MPI_Request) -> c_int {
    // SAFETY: as for this function.
    unsafe { log_inline(*out, request) }
}

/// Returns `true` for a message sent by the program's own call and logged after it.
#[inline(always)]
pub(crate) fn is_sent_first(mode: Mode, count: i64, datatype: ffi::MPI_Datatype) -> bool {
    logs_after_send() && (mode != Mode::Standard || !is_long(count, datatype))
}

/// Logs a message that [was sent first](is_sent_first), unless MPI refused it.
///
/// Inlined into the program's call.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(always)]
pub(crate) unsafe fn log_after_send(code: c_int, out: Outgoing) -> c_int {
    if code == 0 {
        // SAFETY: the program's message, which it may not write before its call returns.
        unsafe { log_inline(out, null_mut()) };
    }
    code
}

/// Returns `true` for a message not [sent first](is_sent_first), but begun first.
///
/// Not if an error would call the program's error handler, which may not run while the message is logged.
#[inline(always)]
pub(crate) fn is_begun_first(dest: c_int) -> bool {
    logs_after_send() && !is_proc_null(dest) && !handlers::are_any()
}

/// Begins a send, logs its message while it is under way, and waits for it.
///
/// Inlined into the program's call: stores before the message is begun delay it, after MPI's last stores for the other
/// rank.
///
/// # Safety
/// The program's arguments: see the [module](super). `begin` puts a request at its argument.
#[inline(always)]
pub(crate) unsafe fn send_begun(out: Outgoing, begin: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> c_int {
    // SAFETY: the program's message, a request of the library's that is waited for or ended by MPI with an error, and
    // constants of the shim.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let at = &raw mut request;
        let mut code = begin(at);
        if code == 0 {
            code = log_inline(out, at);
        }
        if code == 0 { (next::Wait.get())(at, ffi::RSMPI_STATUS_IGNORE) } else { code }
    }
}

/// Sends a message not [sent](is_sent_first) or [begun](is_begun_first) first, and blocks.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[inline(never)]
pub(crate) unsafe fn send(out: &Outgoing, mode: Mode, call: impl FnOnce() -> c_int) -> c_int {
    // MPI may answer a message to nobody in another way than the calls made here.
    if is_absent() || is_proc_null(out.dest) {
        return call();
    }
    if !is_multiple() && (mode != Mode::Standard || !is_long(out.count, out.datatype)) {
        // SAFETY: as for this function.
        return unsafe { log_around(out, call) };
    }
    // The message is copied while it is under way. With several threads, the log has the order of the sends: no other
    // thread sends between the claim and the commit, so the send must not wait.
    let Ok(count) = c_int::try_from(out.count) else {
        // SAFETY: as above.
        return unsafe { log_around(out, call) };
    };
    let begin = match mode {
        Mode::Standard => next::Isend.get(),
        Mode::Buffered => next::Ibsend.get(),
        Mode::Synchronous => next::Issend.get(),
        Mode::Ready => next::Irsend.get(),
    };
    // SAFETY: the program's arguments, a request of the library's that is waited for, and constants of the shim.
    unsafe {
        let now = |request| begin(out.buf, count, out.datatype, out.dest, out.tag, out.comm, request);
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let at = &raw mut request;
        // The program has an error handler, or has called MPI_Send_c.
        let code = if logs_after_send() {
            match now(at) {
                0 => log_sent(out, at),
                code => code,
            }
        } else {
            log_around(out, || now(at))
        };
        if code == 0 { (next::Wait.get())(at, ffi::RSMPI_STATUS_IGNORE) } else { code }
    }
}

/// A non-blocking send.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn send_immediate(out: &Outgoing, _: *mut ffi::MPI_Request, call: impl FnOnce() -> c_int) -> c_int {
    if !logs_after_send() {
        // SAFETY: as for this function; the program doesn't write the message before the request has ended.
        return unsafe { log_around(out, call) };
    }
    let code = call();
    if code == 0 {
        // SAFETY: as above.
        unsafe { log_sent(out, null_mut()) };
    }
    code
}

/// Adds a persistent request, if the call made one and it has a `kind` to track.
///
/// # Safety
/// If `code` is 0, `request` points to one.
pub(super) unsafe fn add_persistent(
    request: *mut ffi::MPI_Request,
    kind: impl FnOnce(&mut Session) -> Option<PersistentKind>,
    code: c_int,
) -> c_int {
    if code == 0 {
        enter(|session| {
            let kind = kind(session)?;
            // SAFETY: the call has put a request there.
            session.requests.add(unsafe { *request }, Pending::Persistent(Persistent { kind, is_active: false }));
            Some(())
        });
    }
    code
}

/// A persistent send.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn send_persistent(
    out: &Outgoing,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let kind = |session: &mut Session| Some(PersistentKind::Send(session.hold_outgoing(out)));
    // SAFETY: the call puts a request there.
    unsafe { add_persistent(request, kind, call()) }
}

/// A partitioned send.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[cfg(wraps = "send_partitioned")]
pub(crate) unsafe fn send_partitioned(
    out: &Outgoing,
    _: c_int,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let kind = |session: &mut Session| {
        let stream = session.open_send_channel(out)?;
        Some(PersistentKind::SendPartitioned(session.hold_outgoing(out), stream))
    };
    // SAFETY: the call puts a request there.
    unsafe { add_persistent(request, kind, call()) }
}

//! Messages that leave while others arrive, in one call.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::receive::{has_taken, receive, received};
use super::send::{is_long, log_sent, log_under_way, logged, refuse};
use super::status::with_status;
use crate::message::{Incoming, Outgoing};
use crate::pass;
use crate::session::{Copied, enter, enter_for_room, is_together, sends_first};

unsafe extern "C" {
    static counterfoil_packed: ffi::MPI_Datatype;
}

/// Begins to send, receives, then waits for what was begun: for threads that must not keep others from sending.
///
/// # Safety
/// The program's arguments: see the [module](super); `sends` is the count of what is sent.
unsafe fn exchange_together(out: &Outgoing, sends: c_int, incoming: &Incoming, status: *mut ffi::MPI_Status) -> c_int {
    let Incoming { buf, count, datatype, source, tag, comm } = *incoming;
    // What has more elements than that is asked for in a large-count form, of which none is here: see `send`.
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    // SAFETY: the program's arguments, and a request of ours that is waited for.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let begin = pass::Isend.get();
        let code = logged(out, || begin(out.buf, sends, out.datatype, out.dest, out.tag, out.comm, &raw mut request));
        if code != 0 {
            return code;
        }
        let call = |status| (pass::Recv.get())(buf, count, datatype, source, tag, comm, status);
        let received = receive(incoming, status, call);
        let sent = (pass::Wait.get())(&raw mut request, ffi::RSMPI_STATUS_IGNORE);
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
    let then = |code, status: &ffi::MPI_Status| received(incoming, status, code);
    // SAFETY: the program's message, which is not where the other one is received; a request that is waited for; and its status.
    unsafe {
        match (c_int::try_from(out.count), c_int::try_from(incoming.count)) {
            (Ok(sends), Ok(receives)) if sends_first() => exchange_at_once((out, sends), (incoming, receives), status),
            (Ok(sends), _) if is_together() => exchange_together(out, sends, incoming, status),
            // Others may need an answer from this rank while it waits, and get it where the session isn't entered.
            _ if sends_first() => {
                let code = with_status(status, call, then);
                if has_taken(code) {
                    log_sent(out);
                }
                code
            }
            _ => {
                // A message that is cut off says nothing against the one that left.
                let both = |status| {
                    let mut received = 0;
                    let sent = logged(out, || {
                        received = call(status);
                        if has_taken(received) { 0 } else { received }
                    });
                    if received == 0 { sent } else { received }
                };
                with_status(status, both, then)
            }
        }
    }
}

/// Posts the receive, sends, and logs what was sent while both messages are under way.
///
/// # Safety
/// The program's messages, whose counts are `sends` and `receives`, and its status.
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
        let mut sent = if is_long(out.count, out.datatype) {
            (pass::Isend.get())(buf, sends, datatype, dest, tag, comm, &raw mut sending)
        } else {
            (pass::Send.get())(buf, sends, datatype, dest, tag, comm)
        };
        if sent != 0 {
            // Nothing is received either where the message couldn't leave.
            (pass::Cancel.get())(&raw mut receiving);
            (pass::Wait.get())(&raw mut receiving, ffi::RSMPI_STATUS_IGNORE);
            return sent;
        }
        log_under_way(out, &mut || {
            let mut flag = 0;
            if sent == 0 {
                sent = (pass::Test.get())(&raw mut sending, &raw mut flag, ffi::RSMPI_STATUS_IGNORE);
            }
        });
        let wait = |status| (pass::Wait.get())(&raw mut receiving, status);
        let code = with_status(status, wait, |code, status| received(incoming, status, code));
        if sent == 0 {
            sent = (pass::Wait.get())(&raw mut sending, ffi::RSMPI_STATUS_IGNORE);
        }
        if code == 0 { sent } else { code }
    }
}

/// What is about to be overwritten, packed; `None` where nobody logs, or it can't be packed.
///
/// # Safety
/// `out` is the program's message, which nobody writes meanwhile.
unsafe fn saved(out: &Outgoing) -> Option<Vec<u8>> {
    // SAFETY: the program's message.
    enter(|session| unsafe { session.pack(out.buf, out.count, out.datatype) })?
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
    // SAFETY: the program's message, which is packed before anything is received into it, and packed bytes, which stay until they are
    // sent: MPI would send it from such a place, too.
    unsafe {
        let Some(bytes) = saved(out) else { return call(status) };
        let packed =
            Outgoing { buf: bytes.as_ptr().cast(), count: bytes.len() as i64, datatype: counterfoil_packed, ..*out };
        exchange(&packed, incoming, status, call)
    }
}

/// Begins a send and a receive, of which the first is `copied` then.
///
/// # Safety
/// As for [`exchange_immediate`].
unsafe fn begin_exchange(
    out: &Outgoing,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    copied: Copied,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter_for_room(|session| {
        let receiving = session.receiving(incoming, false);
        let code = match session.lane(out) {
            // SAFETY: the program's message.
            Some(lane) => unsafe { session.log(lane, (out.buf, out.count, out.datatype), copied, &mut now) },
            None => Ok(now()),
        };
        if let (Ok(0), Some(receiving)) = (&code, receiving) {
            // SAFETY: the call has put a request there.
            session.posted(receiving, unsafe { *request });
        }
        code
    });
    match code {
        Some(Ok(code)) => code,
        Some(Err(full)) => refuse(out.comm, &full),
        None => now(),
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
    // SAFETY: as for this function; the program writes the message no more before the request has ended.
    unsafe { begin_exchange(out, incoming, request, Copied::Behind, call) }
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
    // SAFETY: as for this function; nothing is received into the message before the call.
    unsafe { begin_exchange(out, incoming, request, Copied::Before, call) }
}

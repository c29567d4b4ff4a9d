//! Combined sends and receives, blocking.

use std::ffi::c_int;

use mpi_sys as ffi;

use super::receive::{receive, received};
use super::send::{is_long, log_around, log_sent, log_under_way};
use crate::global::{enter, is_multiple, logs_after_send};
use crate::message::{Incoming, Outgoing, is_proc_null};
use crate::pass;
use crate::status::{has_taken, with_status};

unsafe extern "C" {
    static counterfoil_packed: ffi::MPI_Datatype;
}

/// Starts the send, receives, then waits for the send: with several threads, none may keep others from sending.
///
/// # Safety
/// The program's arguments: see the [module](super); `sends` is the count of what is sent.
unsafe fn exchange_multiple(out: &Outgoing, sends: c_int, incoming: &Incoming, status: *mut ffi::MPI_Status) -> c_int {
    let Incoming { buf, count, datatype, source, tag, comm } = *incoming;
    // More elements come only from the large-count form, which isn't called here: see `send`.
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    // SAFETY: the program's arguments, and a request of the library's that is waited for.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let begin = pass::Isend.get();
        let code =
            log_around(out, || begin(out.buf, sends, out.datatype, out.dest, out.tag, out.comm, &raw mut request));
        if code != 0 {
            return code;
        }
        let call = |status| (pass::Recv.get())(buf, count, datatype, source, tag, comm, status);
        let received = receive(incoming, status, call);
        let sent = (pass::Wait.get())(&raw mut request, ffi::RSMPI_STATUS_IGNORE);
        if received == 0 { sent } else { received }
    }
}

/// A blocking send and receive.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn exchange(
    out: &Outgoing,
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    if is_proc_null(out.dest) && is_proc_null(incoming.source) {
        return call(status);
    }
    let then = |code, status: &ffi::MPI_Status| received(incoming, status, code);
    // SAFETY: the program's message, which is not where the other one is received; a request that is waited for; and its status.
    unsafe {
        match (c_int::try_from(out.count), c_int::try_from(incoming.count)) {
            (Ok(sends), Ok(receives)) if logs_after_send() => {
                exchange_at_once((out, sends), (incoming, receives), status)
            }
            (Ok(sends), _) if is_multiple() => exchange_multiple(out, sends, incoming, status),
            // Other ranks may need an answer from this one while it waits, so the session isn't entered around the call.
            _ if logs_after_send() => with_status(status, call, |code, status| {
                // The sent message is counted first: it may be acknowledged already.
                if has_taken(code) {
                    log_sent(out);
                }
                received(incoming, status, code)
            }),
            _ => {
                // A truncated message doesn't concern the one that was sent.
                let both = |status| {
                    let mut received = 0;
                    let sent = log_around(out, || {
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

/// Posts the receive, sends, and logs the sent message while both are under way.
///
/// # Safety
/// The program's messages, whose counts are `sends` and `receives`, and its status.
unsafe fn exchange_at_once(
    (out, sends): (&Outgoing, c_int),
    (incoming, receives): (&Incoming, c_int),
    status: *mut ffi::MPI_Status,
) -> c_int {
    // SAFETY: the program's arguments, and requests of the library's, each of which is waited for.
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
            // MPI refused the send, so nothing is received either.
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

/// Returns a message that is about to be overwritten, packed; `None` without a session, or if it can't be packed.
///
/// # Safety
/// `out` is the program's message, which nothing writes meanwhile.
unsafe fn saved(out: &Outgoing) -> Option<Vec<u8>> {
    // SAFETY: the program's message.
    enter(|session| unsafe { session.pack(out.buf, out.count, out.datatype) })?
}

/// [`exchange`] with one buffer for both messages.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn exchange_replace(
    out: &Outgoing,
    incoming: &Incoming,
    status: *mut ffi::MPI_Status,
    call: impl FnOnce(*mut ffi::MPI_Status) -> c_int,
) -> c_int {
    // SAFETY: the program's message, which is packed before anything is received into it, and packed bytes, which stay until they are sent.
    unsafe {
        let Some(bytes) = saved(out) else { return call(status) };
        let packed =
            Outgoing { buf: bytes.as_ptr().cast(), count: bytes.len() as i64, datatype: counterfoil_packed, ..*out };
        exchange(&packed, incoming, status, call)
    }
}

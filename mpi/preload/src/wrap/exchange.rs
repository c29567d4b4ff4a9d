//! Combined sends and receives, blocking.

use std::ffi::c_int;
use std::hash::BuildHasher;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use mpi_sys as ffi;
use rustc_hash::FxBuildHasher;

use super::receive::{receive, received, wait_or_withdraw};
use super::send::{is_long, log_around, log_sent};
use crate::global::{enter, is_multiple, logs_after_send};
use crate::next;
use crate::session::key;
use crate::status::{has_taken, with_status};
use counterfoil_mpi_core::arguments::{Incoming, Outgoing, is_proc_null};

unsafe extern "C" {
    static counterfoil_packed: ffi::MPI_Datatype;
}

/// Starts the send, receives, then waits for the send: with several threads, none may keep others from sending.
///
/// # Safety
/// The program's arguments: see the [module](super); `sends` is the count of sent elements.
unsafe fn exchange_multiple(out: &Outgoing, sends: c_int, incoming: &Incoming, status: *mut ffi::MPI_Status) -> c_int {
    let Incoming { buf, count, datatype, source, tag, comm } = *incoming;
    // More elements come only from the large-count form, which isn't called here: see `send`.
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    // SAFETY: the program's arguments, and a request of the library's that is waited for.
    unsafe {
        let mut request = ffi::RSMPI_REQUEST_NULL;
        let begin = next::Isend.get();
        let code =
            log_around(out, || begin(out.buf, sends, out.datatype, out.dest, out.tag, out.comm, &raw mut request));
        if code != 0 {
            return code;
        }
        let call = |status| (next::Recv.get())(buf, count, datatype, source, tag, comm, status);
        let received = receive(incoming, status, call);
        let sent = (next::Wait.get())(&raw mut request, ffi::RSMPI_STATUS_IGNORE);
        if received == 0 { sent } else { received }
    }
}

/// Sends and receives, and blocks.
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
    // SAFETY: the program's message, in another place than the received one; a request that is waited for; and its
    // status.
    unsafe {
        match (c_int::try_from(out.count), c_int::try_from(incoming.count)) {
            (Ok(sends), Ok(receives)) if logs_after_send() && are_valid((out, sends), (incoming, receives)) => {
                exchange_at_once((out, sends), (incoming, receives), status)
            }
            (Ok(sends), Ok(receives)) if is_multiple() && are_valid((out, sends), (incoming, receives)) => {
                exchange_multiple(out, sends, incoming, status)
            }
            // Other ranks may need an answer from this one while it waits, so the session isn't entered around the
            // call.
            _ if logs_after_send() => with_status(status, call, |code, status| {
                // The sent message is counted first: it may be acknowledged already.
                if has_taken(code) {
                    log_sent(out, null_mut());
                }
                received(incoming, status, code)
            }),
            _ => {
                // A truncated message doesn't concern the sent one.
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

/// Exchanges accepted by MPI: hashes of their arguments, except counts and buffers.
static ACCEPTED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Forgets which exchanges MPI has accepted: a freed handle may be another one's soon.
pub(super) fn forget_accepted() {
    ACCEPTED.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
}

/// Returns `true` if MPI accepts both halves of an exchange.
///
/// It judges the arguments of the program's call before it sends or receives anything; with two calls, the first could
/// take a message, or send one, before the second is refused.
///
/// # Safety
/// The program's messages, whose counts are `sends` and `receives`.
unsafe fn are_valid((out, sends): (&Outgoing, c_int), (incoming, receives): (&Incoming, c_int)) -> bool {
    let arguments = (
        (key(out.comm), key(out.datatype), out.dest, out.tag),
        (key(incoming.datatype), incoming.source, incoming.tag),
    );
    // 0 is an empty slot.
    let hash = FxBuildHasher.hash_one(arguments) | 1;
    let slot = &ACCEPTED[(hash >> 58) as usize];
    let is_plain = sends >= 0 && receives >= 0 && !out.buf.is_null() && !incoming.buf.is_null();
    if is_plain && slot.load(Ordering::Relaxed) == hash {
        return true;
    }
    // SAFETY: as for this function.
    let are_accepted = unsafe { are_accepted((out, sends), (incoming, receives)) };
    if are_accepted && is_plain {
        slot.store(hash, Ordering::Relaxed);
    }
    are_accepted
}

/// Lets MPI judge the arguments, with MPI_PROC_NULL in place of the ranks, so that nothing is sent or received.
///
/// # Safety
/// As for [`are_valid`].
#[cold]
unsafe fn are_accepted((out, sends): (&Outgoing, c_int), (incoming, receives): (&Incoming, c_int)) -> bool {
    // SAFETY: the program's arguments, constants of the shim, pointers to local variables, and requests that are waited
    // for.
    unsafe {
        let (mut request, null) = (ffi::RSMPI_REQUEST_NULL, ffi::RSMPI_PROC_NULL);
        let is_sent = (next::Isend.get())(out.buf, sends, out.datatype, null, out.tag, out.comm, &raw mut request) == 0
            && (next::Wait.get())(&raw mut request, ffi::RSMPI_STATUS_IGNORE) == 0;
        let Incoming { buf, datatype, source, tag, comm, .. } = *incoming;
        let is_received = is_sent
            && (next::Irecv.get())(buf, receives, datatype, null, tag, comm, &raw mut request) == 0
            && (next::Wait.get())(&raw mut request, ffi::RSMPI_STATUS_IGNORE) == 0;
        let (mut size, mut is_inter) = (0, 0);
        is_received
            && ffi::PMPI_Comm_test_inter(comm, &raw mut is_inter) == 0
            && match is_inter {
                0 => ffi::PMPI_Comm_size(comm, &raw mut size) == 0,
                _ => ffi::PMPI_Comm_remote_size(comm, &raw mut size) == 0,
            }
            && (out.dest == null || (0..size).contains(&out.dest))
            && (source == null || source == ffi::RSMPI_ANY_SOURCE || (0..size).contains(&source))
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
        let posted = (next::Irecv.get())(buf, receives, datatype, source, tag, comm, &raw mut receiving);
        if posted != 0 {
            return posted;
        }
        let Outgoing { buf, datatype, dest, tag, comm, .. } = *out;
        let mut sent = if is_long(out.count, out.datatype) {
            (next::Isend.get())(buf, sends, datatype, dest, tag, comm, &raw mut sending)
        } else {
            (next::Send.get())(buf, sends, datatype, dest, tag, comm)
        };
        if sent != 0 {
            // MPI refused the send, so nothing is received either.
            (next::Cancel.get())(&raw mut receiving);
            (next::Wait.get())(&raw mut receiving, ffi::RSMPI_STATUS_IGNORE);
            return sent;
        }
        sent = log_sent(out, &raw mut sending);
        let wait = |status| wait_or_withdraw(&raw mut receiving, status);
        let code = with_status(status, wait, |code, status| received(incoming, status, code));
        if sent == 0 {
            sent = (next::Wait.get())(&raw mut sending, ffi::RSMPI_STATUS_IGNORE);
        }
        if code == 0 { sent } else { code }
    }
}

/// Returns a message about to be overwritten, packed; `None` without a session, or if it can't be packed.
///
/// # Safety
/// `out` is the program's message, not written meanwhile.
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
    // SAFETY: the program's message, which is packed before anything is received into it, and packed bytes, which stay
    // until they are sent.
    unsafe {
        let Some(bytes) = saved(out) else { return call(status) };
        let packed =
            Outgoing { buf: bytes.as_ptr().cast(), count: bytes.len() as i64, datatype: counterfoil_packed, ..*out };
        exchange(&packed, incoming, status, call)
    }
}

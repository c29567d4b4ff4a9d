//! Combined sends and receives, non-blocking (MPI 4.0).

use std::ffi::c_int;

use mpi_sys as ffi;

use super::send::refuse;
use crate::global::enter_for_space;
use crate::session::{CopyTime, StreamKey};
use counterfoil_mpi_core::arguments::{Incoming, Outgoing};

/// Starts a send and a receive; the sent message is copied at `time`.
///
/// # Safety
/// As for [`exchange_immediate`].
unsafe fn begin_exchange(
    out: &Outgoing,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    time: CopyTime,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let mut call = Some(call);
    let mut now = || call.take().map_or(0, |call| call());
    let code = enter_for_space(|session| {
        let receiving = session.receiving(incoming);
        let code = match session.logged_stream(StreamKey::of(out)) {
            // SAFETY: the program's message.
            Some(entry) => unsafe { session.log(entry.stream, (out.buf, out.count, out.datatype), time, &mut now) },
            None => Ok(now()),
        };
        if let (Ok(0), Some(receiving)) = (&code, receiving) {
            // SAFETY: the call has put a request there.
            session.post_request(receiving, unsafe { *request });
        }
        code
    });
    match code {
        Some(Ok(code)) => code,
        Some(Err(full)) => refuse(out.comm, &full),
        None => now(),
    }
}

/// Sends and receives, non-blocking.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn exchange_immediate(
    out: &Outgoing,
    incoming: &Incoming,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as for this function; the program doesn't write the message before the request has ended.
    unsafe { begin_exchange(out, incoming, request, CopyTime::AfterSend, call) }
}

/// [`exchange_immediate`] with one buffer for both messages.
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
    unsafe { begin_exchange(out, incoming, request, CopyTime::BeforeSend, call) }
}

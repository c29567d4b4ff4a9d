//! Collective operations.

use std::ffi::c_int;

use mpi_sys as ffi;

#[cfg(wraps = "collective_persistent")]
use super::send::add_persistent;
use super::send::refuse;
use crate::Operation;
use crate::global::{enter, enter_for_space};
use crate::message::Collective;
use crate::session::BegunCollective;
#[cfg(wraps = "collective_persistent")]
use crate::session::{Session, requests::PersistentKind};

/// Returns `true` for an operation that ends on no rank before all have begun it.
///
/// # Safety
/// `collective` is the program's argument to MPI.
unsafe fn synchronises(collective: &Collective) -> bool {
    use Operation::{Allgather, Allreduce, Alltoall, Barrier, ReduceScatterBlock};
    match collective.operation {
        Barrier => true,
        Allreduce | Allgather | Alltoall | ReduceScatterBlock => {
            // SAFETY: these have one count, so no array is read.
            collective.receive.is_some_and(|side| unsafe { side.count(0) } > Some(0))
        }
        _ => false,
    }
}

/// Logs the contribution, then calls.
///
/// # Safety
/// The program's arguments: see the [module](super).
unsafe fn log_and_call(collective: &Collective, waits: bool, call: impl FnOnce() -> c_int) -> c_int {
    let mut begun = BegunCollective::default();
    // SAFETY: the program's arguments to MPI.
    let logged = enter_for_space(|session| unsafe { session.begin_collective(collective, &mut begun, waits) });
    if let Some(Err(full)) = logged {
        return refuse(collective.comm, &full);
    }
    let code = call();
    if code != 0 || begun.unpacked.is_some() {
        enter(|session| session.collective_answered(collective.comm, begun, code));
    }
    code
}

/// A blocking operation.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn collective(collective: &Collective, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's arguments to MPI.
    unsafe {
        let code = log_and_call(collective, true, call);
        if code == 0 {
            let synchronises = synchronises(collective);
            enter(|session| session.collective_ended(collective.comm, synchronises));
        }
        code
    }
}

/// A non-blocking operation.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn collective_immediate(
    collective: &Collective,
    _: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program's arguments to MPI, whose memory it doesn't write before the request has ended.
    unsafe { log_and_call(collective, false, call) }
}

/// A persistent operation.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[cfg(wraps = "collective_persistent")]
pub(crate) unsafe fn collective_persistent(
    collective: &Collective,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a request there, and has accepted the arguments.
    unsafe {
        let kind = |session: &mut Session| Some(PersistentKind::Collective(session.hold_collective(collective).into()));
        add_persistent(request, kind, call())
    }
}

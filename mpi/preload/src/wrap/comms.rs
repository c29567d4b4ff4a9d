//! Communicators and datatypes: creation and release.

use std::ffi::{CStr, c_char, c_int};

use counterfoil_mpi_core::control::CONTROL_NAME;
use mpi_sys as ffi;

use super::exchange::forget_accepted;
use crate::global::{enter, is_multiple};
use crate::say::say;
use crate::session::comms::Proposal;
use crate::session::mpi_call::CallError;
use crate::session::requests::Pending;

/// Adds the new communicator, if the call made one: its members, all in the same call, agree on a number.
///
/// # Safety
/// If `code` is 0, `comm` points to a communicator or to the null one.
unsafe fn made(comm: *const ffi::MPI_Comm, code: c_int) -> c_int {
    if code != 0 {
        return code;
    }
    // SAFETY: the call has put a communicator there, or the null one.
    let comm = unsafe { *comm };
    let proposal = enter(|session| session.add_comm(comm, is_multiple()));
    // Other threads of this process must not wait until all members are here, so the session is left while they agree.
    if let Some(proposal) = proposal.flatten()
        && let Err(error) = agree(proposal)
    {
        enter(|session| session.check_made(error));
    }
    code
}

/// Agrees with the other members on a number free on all of them, and adds the communicator.
fn agree(proposal: Proposal) -> Result<(), CallError> {
    let names = proposal.exchange_names()?;
    for attempt in 0.. {
        let reserved = enter(|session| session.logger.comms.reserve_number(names, attempt));
        let Some((number, is_free)) = reserved else { return Ok(()) };
        if proposal.is_free_everywhere(is_free)? {
            enter(|session| session.add_proposed(proposal, number));
            break;
        }
        if is_free {
            enter(|session| session.logger.comms.give_back_number(number));
        }
    }
    Ok(())
}

/// Adds a new communicator, whose members are all in the call.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_make(new: *mut ffi::MPI_Comm, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the call puts a communicator there.
    unsafe { made(new, call()) }
}

/// Adds a new communicator for a group of `comm`'s members.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_create(comm: ffi::MPI_Comm, new: *mut ffi::MPI_Comm, call: impl FnOnce() -> c_int) -> c_int {
    let code = call();
    // SAFETY: the call has put a communicator there, or the null one.
    if code == 0 && enter(|session| session.has_strangers(comm, unsafe { *new })) == Some(true) {
        return code;
    }
    // SAFETY: as above.
    unsafe { made(new, code) }
}

/// Non-blocking [`comm_make`]: the communicator is there when the request has ended.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_make_immediate(
    comm: ffi::MPI_Comm,
    new: *mut ffi::MPI_Comm,
    request: *mut ffi::MPI_Request,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let code = call();
    if code == 0 {
        enter(|session| {
            let parent = session.comm_id(comm)?;
            let number = session.logger.comms.derive(parent)?;
            // SAFETY: the call has put a request there.
            session.requests.add(unsafe { *request }, Pending::Comm { at: new, number });
            Some(())
        });
    }
    code
}

/// Names a communicator.
///
/// The name reveals the control communicator of a `LoggedCommunicator`, in a program that logs by itself: its messages
/// are sent by PMPI_ functions, and not logged.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_name(_: ffi::MPI_Comm, name: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: a text of the program's.
    let is_control = !name.is_null() && unsafe { CStr::from_ptr(name) } == CONTROL_NAME;
    if is_control {
        enter(|session| {
            if session.rank() == 0 {
                say(format_args!(
                    "the program logs by itself (LoggedCommunicator), and this library logs it once more; --logging off, or \
                     COUNTERFOIL_LOGGING=off, spares that"
                ));
            }
        });
    }
    call()
}

/// Revokes a communicator.
///
/// # Safety
/// The program's arguments: see the [module](super).
#[cfg(wraps = "comm_revoke")]
pub(crate) unsafe fn comm_revoke(comm: ffi::MPI_Comm, call: impl FnOnce() -> c_int) -> c_int {
    let code = call();
    if code == 0 {
        enter(|session| session.revoke_comm(comm));
    }
    code
}

/// Frees a communicator.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_drop(comm: *mut ffi::MPI_Comm, call: impl FnOnce() -> c_int) -> c_int {
    if comm.is_null() {
        // An error, which MPI handles.
        return call();
    }
    forget_accepted();
    // SAFETY: the program's communicator.
    let handle = unsafe { *comm };
    // Before the call: once it has freed the handle, another thread may get it for its own communicator.
    let freed = enter(|session| session.free_comm(handle)).flatten();
    let code = call();
    if let Some(id) = freed {
        enter(|session| if code == 0 { session.logger.comms.free(id) } else { session.bind(handle, id) });
    }
    code
}

/// Frees a datatype.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn type_drop(datatype: *mut ffi::MPI_Datatype, call: impl FnOnce() -> c_int) -> c_int {
    if datatype.is_null() {
        // An error, which MPI handles.
        return call();
    }
    forget_accepted();
    // SAFETY: the program's datatype.
    let dropped = unsafe { *datatype };
    // Before the call frees the handle; if it doesn't, the datatype is looked up again.
    enter(|session| session.datatypes.forget(dropped));
    call()
}

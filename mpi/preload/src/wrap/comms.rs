//! Communicators that are made and given up, and datatypes.

use std::ffi::{CStr, c_char, c_int};

use counterfoil_mpi::room::ACKNOWLEDGEMENTS;
use mpi_sys as ffi;

use crate::say::say;
use crate::session::comms::Proposal;
use crate::session::requests::Pending;
use crate::session::{enter, is_together};

/// Knows the new communicator, if there is one: its members, who have all just made it, agree on a number.
///
/// # Safety
/// If `code` is 0, `comm` points to one, or to the null one.
unsafe fn made(comm: *const ffi::MPI_Comm, code: c_int) -> c_int {
    if code != 0 {
        return code;
    }
    // SAFETY: the call has put a communicator there, or the null one.
    let comm = unsafe { *comm };
    if !is_together() {
        enter(|session| {
            let known = session.comms.made(comm);
            session.check_made(known);
        });
        return code;
    }
    // Other threads of ours must not wait until all members are here.
    let proposed = enter(|session| session.comms.propose(comm, session.rank));
    if let Some(proposed) = proposed {
        let number = proposed.and_then(|proposal| proposal.map(Proposal::agree).transpose());
        enter(|session| {
            let known = number.and_then(|number| number.map_or(Ok(()), |number| session.comms.learn(comm, number)));
            session.check_made(known);
        });
    }
    code
}

/// A communicator of all ranks of another one makes.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_make(_: ffi::MPI_Comm, new: *mut ffi::MPI_Comm, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the call puts a communicator there.
    unsafe { made(new, call()) }
}

/// The same; the communicator is there when the request has ended.
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
            if let Some(number) = session.comms.derive(comm) {
                // SAFETY: the call has put a request there.
                session.requests.add(unsafe { *request }, Pending::Comm { at: new, number });
            }
        });
    }
    code
}

/// A communicator that only the ranks of a group make.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_make_by_group(
    _: ffi::MPI_Comm,
    _: ffi::MPI_Group,
    _: c_int,
    new: *mut ffi::MPI_Comm,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a communicator there.
    unsafe { made(new, call()) }
}

/// A communicator that is made of no other one.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_make_from_group(
    _: ffi::MPI_Group,
    _: *const c_char,
    new: *mut ffi::MPI_Comm,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a communicator there.
    unsafe { made(new, call()) }
}

/// A communicator between the ranks of two others.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_make_inter(
    _: ffi::MPI_Comm,
    _: ffi::MPI_Comm,
    _: c_int,
    new: *mut ffi::MPI_Comm,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the call puts a communicator there.
    unsafe { made(new, call()) }
}

/// The program names a communicator. By its name the one is known on which `LoggedCommunicator`, of a program that logs by itself,
/// sends its acknowledgements: by calls of `PMPI_`, which are not logged.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_name(_: ffi::MPI_Comm, name: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: a text of the program's.
    let is_control = !name.is_null() && unsafe { CStr::from_ptr(name) } == ACKNOWLEDGEMENTS;
    if is_control {
        enter(|session| {
            if session.rank == 0 {
                say(format_args!(
                    "the program logs by itself (LoggedCommunicator), and this library logs it once more; --logging off, or \
                     COUNTERFOIL_LOGGING=off, spares that"
                ));
            }
        });
    }
    call()
}

/// The program gives a communicator up.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn comm_drop(comm: *mut ffi::MPI_Comm, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's communicator.
    let dropped = unsafe { *comm };
    // Before the call: as soon as it has given the handle up, another thread may have it for a communicator of its own.
    while enter(|session| session.leave(dropped)) == Some(false) {
        std::thread::yield_now();
    }
    let place = enter(|session| session.comms.unbind(dropped));
    let code = call();
    if let Some(place) = place.flatten() {
        enter(|session| if code == 0 { session.comms.forget(place) } else { session.comms.bind(dropped, place) });
    }
    code
}

/// The program gives a datatype up.
///
/// # Safety
/// The program's arguments: see the [module](super).
pub(crate) unsafe fn type_drop(datatype: *mut ffi::MPI_Datatype, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program's datatype.
    let dropped = unsafe { *datatype };
    // Before the call, which gives the handle up; if it doesn't, the datatype is looked at anew.
    enter(|session| session.datatypes.forget(dropped));
    call()
}

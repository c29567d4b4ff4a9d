//! Error handlers of the program, which may throw a C++ exception or jump (`longjmp`) out of the call that has failed.
//!
//! MPI calls a handler from within its call, and that is made from within a function of this library, which may hold
//! the session, or requests of its own. So the library gives MPI a handler of its own in place of the program's. Within
//! a call of this library that handler notes the error, and the program's is called when the call is about to return,
//! with nothing of the library's left. A program without a handler of its own pays for a load in each call.
//!
//! Handlers that are made by MPI's Fortran interface don't come here.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mpi_sys as ffi;

use crate::session::key;
use crate::session::mpi_call::is_null_comm;

/// A handler as the bindings have it.
type BoundHandler = unsafe extern "C" fn(comm: *mut ffi::MPI_Comm, code: *mut c_int, ...);

/// A handler of the program, which may unwind.
type Handler = unsafe extern "C-unwind" fn(comm: *mut ffi::MPI_Comm, code: *mut c_int, ...);

unsafe extern "C" {
    static counterfoil_errhandler_null: ffi::MPI_Errhandler;

    /// The handler that MPI gets.
    fn counterfoil_handle_error(comm: *mut ffi::MPI_Comm, code: *mut c_int, ...);
}

unsafe extern "C-unwind" {
    /// Calls a handler.
    fn counterfoil_call_handler(handler: Handler, comm: ffi::MPI_Comm, code: c_int, message: *mut c_char);
}

/// An error that the program's handler is to be called with.
#[derive(Clone, Copy)]
struct Raised {
    handler: Handler,
    comm: ffi::MPI_Comm,
    code: c_int,
    message: *mut c_char,
}

/// Handlers by the number of their handle. An object that is freed lives on in communicators, so none is removed;
/// another one may get its number.
static HANDLERS: Mutex<Vec<(usize, Handler)>> = Mutex::new(Vec::new());
/// True once the program has made a handler.
static ARE_ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True while this thread is in a call of the library.
    static IS_IN_CALL: Cell<bool> = const { Cell::new(false) };
    /// Key of the handler that the call is given, for its errors before there is a communicator. Only calls that are
    /// given one have such errors, so that of an earlier call does no harm.
    static GIVEN: Cell<usize> = const { Cell::new(0) };
    /// First error in this call.
    static RAISED: Cell<Option<Raised>> = const { Cell::new(None) };
}

/// A call of the program's. Owns nothing.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct CallMark {
    /// Errors in the call are noted.
    notes: bool,
    /// The program makes it from within another call: from a callback.
    is_nested: bool,
}

/// Returns `true` once the program has made a handler.
#[inline(always)]
pub(crate) fn are_any() -> bool {
    ARE_ANY.load(Ordering::Relaxed)
}

/// Begins a call: its errors are noted.
#[inline(always)]
pub(crate) fn begin() -> CallMark {
    let notes = are_any();
    CallMark { notes, is_nested: notes && IS_IN_CALL.replace(true) }
}

/// Begins a call that is given a handler: one that makes a communicator of a session's groups.
#[cfg_attr(not(wraps = "session_init"), expect(dead_code, reason = "an older MPI has no sessions"))]
pub(crate) fn begin_with(errhandler: ffi::MPI_Errhandler) -> CallMark {
    GIVEN.set(key(errhandler));
    begin()
}

/// Ends a call that returns `code`. If that is an error, calls the program's handler, which may not return.
///
/// # Safety
/// The frames up to the program's own nothing.
#[inline(always)]
pub(crate) unsafe fn end(call: CallMark, code: c_int) -> c_int {
    if call.notes {
        IS_IN_CALL.set(call.is_nested);
        // An error of a call that the library made for itself is none of the program's.
        let raised = RAISED.take().filter(|_| code != 0);
        if let Some(Raised { handler, comm, code, message }) = raised {
            // SAFETY: the handler that the program has given for this communicator; it may unwind or jump by this
            // function's contract.
            unsafe { counterfoil_call_handler(handler, comm, code, message) };
        }
    }
    code
}

/// Gives the error that was noted in this call another code: that of the call, where the library has made it in pieces.
pub(crate) fn change_code(code: c_int) {
    RAISED.set(RAISED.get().map(|raised| Raised { code, ..raised }));
}

/// Makes an error handler: MPI gets the library's in place of `function`.
///
/// # Safety
/// The program's arguments: see [`wrap`](crate::wrap). `call` makes a handler of the function that it is given.
pub(crate) unsafe fn make(
    function: ffi::MPI_Comm_errhandler_function,
    errhandler: *mut ffi::MPI_Errhandler,
    call: impl FnOnce(ffi::MPI_Comm_errhandler_function) -> c_int,
) -> c_int {
    let Some(function) = function else { return call(None) };
    let code = call(Some(counterfoil_handle_error));
    if code == 0 {
        // SAFETY: types that differ in what the compiler assumes of the function, which may unwind; the call has put a
        // handle there.
        let (handler, handle) = unsafe { (std::mem::transmute::<BoundHandler, Handler>(function), key(*errhandler)) };
        let mut handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
        match handlers.iter_mut().find(|(known, _)| *known == handle) {
            Some(known) => known.1 = handler,
            None => handlers.push((handle, handler)),
        }
        ARE_ANY.store(true, Ordering::Relaxed);
    }
    code
}

/// Returns the program's handler of a communicator; of the null one, that which the call is given.
#[unsafe(no_mangle)]
extern "C" fn counterfoil_handler_of(comm: ffi::MPI_Comm) -> Option<Handler> {
    let handle = if is_null_comm(comm) { GIVEN.get() } else { errhandler_of(comm)? };
    let handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
    handlers.iter().find(|(known, _)| *known == handle).map(|(_, handler)| *handler)
}

/// Returns the key of a communicator's handler.
fn errhandler_of(comm: ffi::MPI_Comm) -> Option<usize> {
    // SAFETY: the communicator of the error, a handle that is released, and a constant of a C file of this library.
    unsafe {
        let mut errhandler = counterfoil_errhandler_null;
        if ffi::PMPI_Comm_get_errhandler(comm, &raw mut errhandler) != 0 {
            return None;
        }
        let handle = key(errhandler);
        ffi::PMPI_Errhandler_free(&raw mut errhandler);
        Some(handle)
    }
}

/// Notes an error for the end of the call; returns 1 if this thread is in one.
#[unsafe(no_mangle)]
extern "C" fn counterfoil_defer_error(
    handler: Handler,
    comm: ffi::MPI_Comm,
    code: c_int,
    message: *mut c_char,
) -> c_int {
    let defers = IS_IN_CALL.get();
    if defers && RAISED.get().is_none() {
        RAISED.set(Some(Raised { handler, comm, code, message }));
    }
    defers.into()
}

//! The program's error handlers, which may throw a C++ exception or jump (`longjmp`) out of the failed call.
//!
//! MPI calls a handler from within its call, itself made from within a function of this library, which may hold the
//! session, or requests of its own. So the library gives MPI its own handler in place of the program's. Within a call
//! of this library this handler notes the error, and the program's is called just before the call returns, when the
//! library holds nothing any more. A program without a handler pays for a load in each call.
//!
//! Handlers made by MPI's Fortran interface don't come here.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mpi_sys as ffi;

use crate::session::key;
use crate::session::mpi_call::is_null_comm;

/// Handler type in the bindings.
type BoundHandler = unsafe extern "C" fn(comm: *mut ffi::MPI_Comm, code: *mut c_int, ...);

/// The program's handler, which may unwind.
type Handler = unsafe extern "C-unwind" fn(comm: *mut ffi::MPI_Comm, code: *mut c_int, ...);

unsafe extern "C" {
    static counterfoil_errhandler_null: ffi::MPI_Errhandler;

    /// The handler given to MPI.
    fn counterfoil_handle_error(comm: *mut ffi::MPI_Comm, code: *mut c_int, ...);
}

unsafe extern "C-unwind" {
    /// Calls a handler.
    fn counterfoil_call_handler(handler: Handler, comm: ffi::MPI_Comm, code: c_int, message: *mut c_char);
}

/// An error for the program's handler.
#[derive(Clone, Copy)]
struct Raised {
    handler: Handler,
    comm: ffi::MPI_Comm,
    code: c_int,
    message: *mut c_char,
}

/// Handlers by their handles' numbers.
///
/// A freed object lives on in communicators, so none is removed; another one may get its number.
static HANDLERS: Mutex<Vec<(usize, Handler)>> = Mutex::new(Vec::new());
/// True once the program has made a handler.
static ARE_ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True while this thread is in a call of the library.
    static IS_IN_CALL: Cell<bool> = const { Cell::new(false) };
    /// Key of the handler given to the call, for its errors before there is a communicator.
    ///
    /// Only calls that take a handler have such errors, so a stale key does no harm.
    static GIVEN: Cell<usize> = const { Cell::new(0) };
    /// First error in this call.
    static RAISED: Cell<Option<Raised>> = const { Cell::new(None) };
}

/// A program's call, which owns nothing.
#[must_use]
#[derive(Clone, Copy)]
pub(crate) struct CallMark {
    /// Errors in the call are noted.
    notes: bool,
    /// The call is made from within another one: from a callback.
    is_nested: bool,
}

/// Returns `true` once the program has made a handler.
#[inline(always)]
pub(crate) fn are_any() -> bool {
    ARE_ANY.load(Ordering::Relaxed)
}

/// Begins a call and notes its errors.
#[inline(always)]
pub(crate) fn begin() -> CallMark {
    let notes = are_any();
    CallMark { notes, is_nested: notes && IS_IN_CALL.replace(true) }
}

/// Begins a call that takes a handler: one that makes a communicator from a session's groups.
#[cfg_attr(not(wraps = "session_init"), expect(dead_code, reason = "an older MPI has no sessions"))]
pub(crate) fn begin_with(errhandler: ffi::MPI_Errhandler) -> CallMark {
    GIVEN.set(key(errhandler));
    begin()
}

/// Ends a call that returns `code`.
///
/// If that is an error, calls the program's handler, which may not return.
///
/// # Safety
/// The frames up to the program's own nothing.
#[inline(always)]
pub(crate) unsafe fn end(call: CallMark, code: c_int) -> c_int {
    if call.notes {
        IS_IN_CALL.set(call.is_nested);
        // An error in the library's own call is none of the program's.
        let raised = RAISED.take().filter(|_| code != 0);
        if let Some(Raised { handler, comm, code, message }) = raised {
            // SAFETY: the handler given by the program for this communicator; it may unwind or jump by this function's
            // contract.
            unsafe { counterfoil_call_handler(handler, comm, code, message) };
        }
    }
    code
}

/// Changes the code of the error noted in this call: the call's own, where the library has made it in pieces.
pub(crate) fn change_code(code: c_int) {
    RAISED.set(RAISED.get().map(|raised| Raised { code, ..raised }));
}

/// Makes an error handler: MPI gets the library's in place of `function`.
///
/// # Safety
/// The program's arguments: see [`wrap`](crate::wrap). `call` makes a handler from its argument.
pub(crate) unsafe fn make(
    function: ffi::MPI_Comm_errhandler_function,
    errhandler: *mut ffi::MPI_Errhandler,
    call: impl FnOnce(ffi::MPI_Comm_errhandler_function) -> c_int,
) -> c_int {
    let Some(function) = function else { return call(None) };
    let code = call(Some(counterfoil_handle_error));
    if code == 0 {
        // SAFETY: the types differ only in the compiler's assumptions about the function, which may unwind; the call
        // has put a handle there.
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

/// Returns the program's handler for a communicator; for the null one, the handler given to the call.
#[unsafe(no_mangle)]
extern "C" fn counterfoil_handler_of(comm: ffi::MPI_Comm) -> Option<Handler> {
    let handle = if is_null_comm(comm) { GIVEN.get() } else { errhandler_of(comm)? };
    let handlers = HANDLERS.lock().unwrap_or_else(PoisonError::into_inner);
    handlers.iter().find(|(known, _)| *known == handle).map(|(_, handler)| *handler)
}

/// Returns the key of a communicator's handler.
fn errhandler_of(comm: ffi::MPI_Comm) -> Option<usize> {
    // SAFETY: the error's communicator, a handle released below, and a constant of a C file of this library.
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

//! Handles control messages while the program waits in an MPI call.
//!
//! A rank waiting for space may depend on one in `MPI_Recv`, which would answer only after the call. Open MPI calls
//! registered functions wherever it waits; its own non-blocking collectives make progress in this way. The registering
//! function isn't in the MPI standard, so it is looked up by name: without it, a rank answers in its next MPI call.

use std::ffi::c_int;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::symbols::find_symbol;
use crate::universe::Universe;

/// Number of Open MPI calls that all poll after a query has arrived: more are likely.
const EAGER_POLLS: u32 = 10_000;

/// A function called by Open MPI.
///
/// Returns the number of events handled.
type Callback = unsafe extern "C" fn() -> c_int;
type Register = unsafe extern "C" fn(Callback) -> c_int;

/// Time of the last poll, in nanoseconds on the kernel's coarse clock (ticks of 1 to 4 ms).
static POLLED_AT: AtomicI64 = AtomicI64::new(0);
static EAGER: AtomicU32 = AtomicU32::new(0);
static POLL: OnceLock<fn()> = OnceLock::new();

fn registrar(name: &std::ffi::CStr) -> Option<Register> {
    let found = find_symbol(name)?.as_ptr();
    // SAFETY: Open MPI's functions with these names, from 1.0 to 5.0, take one function without arguments returning an
    // int, and return an int (opal/runtime/opal_progress.h). A function pointer has the size of a data pointer here.
    Some(unsafe { std::mem::transmute::<*mut libc::c_void, Register>(found) })
}

/// Registers `poll`: from now on every thread waiting in an MPI call calls it, also in calls made by `poll` itself.
///
/// A process has one.
///
/// # Safety
/// MPI is initialised, and the code containing this function stays loaded until [`end`].
pub unsafe fn begin(poll: fn()) {
    let _ = POLL.set(poll);
    if let Some(register) = registrar(c"opal_progress_register_lp") {
        // SAFETY: a function without conditions; the caller's promise.
        unsafe { register(poll_if_due) };
    }
}

/// Unregisters the function.
///
/// # Safety
/// MPI is initialised and not finalised.
pub unsafe fn end() {
    if let Some(unregister) = registrar(c"opal_progress_unregister") {
        // SAFETY: the registered function; for one never registered, the call does nothing.
        unsafe { unregister(poll_if_due) };
    }
}

/// A registered function, until this is dropped.
#[derive(Debug)]
pub struct ProgressHook {
    _universe: Rc<Universe>,
}

impl ProgressHook {
    /// Registers `poll`, as [`begin`] does.
    pub fn begin(universe: &Rc<Universe>, poll: fn()) -> ProgressHook {
        // SAFETY: MPI is initialised as long as the universe lives; leaked, it stays so. Unloading code that MPI has a
        // pointer to is unsafe for the caller doing it.
        unsafe { begin(poll) };
        ProgressHook { _universe: Rc::clone(universe) }
    }
}

impl Drop for ProgressHook {
    fn drop(&mut self) {
        // SAFETY: the universe is dropped after this.
        unsafe { end() };
    }
}

/// Polls on every Open MPI call for a while, since a query has arrived.
pub fn be_eager() {
    EAGER.store(EAGER_POLLS, Ordering::Relaxed);
}

/// Called by Open MPI in the waiting thread, every eighth time it looks for work.
///
/// Most calls only read a clock.
extern "C" fn poll_if_due() -> c_int {
    let eager = EAGER.load(Ordering::Relaxed);
    if eager > 0 {
        EAGER.store(eager - 1, Ordering::Relaxed);
    } else {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a pointer to a local variable.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
        let now = now.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec);
        if now == POLLED_AT.load(Ordering::Relaxed) {
            return 0;
        }
        POLLED_AT.store(now, Ordering::Relaxed);
    }
    // A panic would abort here: no frame above is Rust's.
    if let Some(poll) = POLL.get() {
        poll();
    }
    0
}

//! Looks for what others ask while the program waits in a call of MPI.
//!
//! A rank that waits for room may wait for one that waits in `MPI_Recv`, and would answer only when that returns. Open MPI calls
//! registered functions wherever it waits for anything; its own collective operations that don't wait get on in this way. The function
//! that registers is no part of MPI, and so it is looked up: without it, a rank answers when it next calls MPI.

use std::ffi::c_int;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::universe::Universe;

/// After somebody asked, so many times it is looked as often as Open MPI calls: who asks once asks again.
const EAGER: u32 = 10_000;

/// A function that Open MPI calls: it says how much it has done.
type Callback = unsafe extern "C" fn() -> c_int;
type Register = unsafe extern "C" fn(Callback) -> c_int;

/// When it was looked last, in ticks of the kernel's coarse clock (1 to 4 ms).
static LOOKED: AtomicI64 = AtomicI64::new(0);
static EAGERLY: AtomicU32 = AtomicU32::new(0);
/// What looks.
static LOOK: OnceLock<fn()> = OnceLock::new();

fn registrar(name: &std::ffi::CStr) -> Option<Register> {
    // SAFETY: a name that ends with a zero; looking up changes nothing.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: Open MPI's functions of these names, from 1.0 to 5.0, take one function without arguments that returns an int, and
    // return an int (opal/runtime/opal_progress.h). A function pointer is as large as what was found.
    Some(unsafe { std::mem::transmute::<*mut libc::c_void, Register>(found) })
}

/// MPI is up: from now on `look` is called by any thread that waits in a call of MPI, also within calls that `look` itself makes. A process
/// has one.
///
/// # Safety
/// MPI is up, and the code that this is a part of stays loaded until [`end`].
pub unsafe fn begin(look: fn()) {
    let _ = LOOK.set(look);
    if let Some(register) = registrar(c"opal_progress_register_lp") {
        // SAFETY: a function without conditions; the caller's promise.
        unsafe { register(look_beside) };
    }
}

/// MPI is about to end.
///
/// # Safety
/// MPI is up.
pub unsafe fn end() {
    if let Some(unregister) = registrar(c"opal_progress_unregister") {
        // SAFETY: the function that was registered; of one that wasn't, nothing happens.
        unsafe { unregister(look_beside) };
    }
}

/// [`begin`] and [`end`], where something says that MPI is up.
#[derive(Debug)]
pub struct Beside {
    _universe: Rc<Universe>,
}

impl Beside {
    /// As [`begin`], until this is dropped.
    pub fn begin(universe: &Rc<Universe>, look: fn()) -> Beside {
        // SAFETY: MPI is up as long as the universe. What is leaked keeps MPI up, and whoever unloads code that MPI has been told of has
        // made an unsafe promise that nobody uses it.
        unsafe { begin(look) };
        Beside { _universe: Rc::clone(universe) }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // SAFETY: the universe is dropped behind this.
        unsafe { end() };
    }
}

/// Somebody has asked.
pub fn be_eager() {
    EAGERLY.store(EAGER, Ordering::Relaxed);
}

/// What Open MPI calls while it waits, in the thread that waits: every eighth time that it looks for something to do. Most calls only
/// look at a clock.
extern "C" fn look_beside() -> c_int {
    let eagerly = EAGERLY.load(Ordering::Relaxed);
    if eagerly > 0 {
        EAGERLY.store(eagerly - 1, Ordering::Relaxed);
    } else {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a pointer to a local variable.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
        let now = now.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec);
        if now == LOOKED.load(Ordering::Relaxed) {
            return 0;
        }
        LOOKED.store(now, Ordering::Relaxed);
    }
    // A panic would end the process here; nothing above this function is Rust.
    if let Some(look) = LOOK.get() {
        look();
    }
    0
}

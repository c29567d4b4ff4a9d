//! The functions that calls are passed on to.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that is looked up at its first call: after this library in loading order, so that other tools of this kind get the call,
/// too, and the MPI last.
pub(crate) struct Next<F> {
    found: AtomicPtr<c_void>,
    name: &'static CStr,
    profiled: &'static CStr,
    of: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// Returns the function `name` of a library loaded after this one, or else `profiled` of any. `F` has to be the type of both.
    pub(crate) const fn new(name: &'static CStr, profiled: &'static CStr) -> Next<F> {
        Next { found: AtomicPtr::new(null_mut()), name, profiled, of: PhantomData }
    }

    /// Returns the function.
    #[inline]
    pub(crate) fn get(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) }
        let found = self.found.load(Ordering::Relaxed);
        let found = if found.is_null() { self.look_up() } else { found };
        // SAFETY: `F` is a pointer to a function, of the same size; what was found has the name that goes with its type, and
        // every program that loads it agrees on the type by MPI's header.
        unsafe { std::mem::transmute_copy(&found) }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: names that end with a zero; looking up changes nothing.
        let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // SAFETY: as above.
            found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.profiled.as_ptr()) };
        }
        if found.is_null() {
            crate::say::say(format_args!(
                "{} was called, but no MPI library is loaded after this one: link the program with MPI",
                self.name.to_string_lossy()
            ));
            std::process::abort();
        }
        // Two threads that look it up at the same time find the same function.
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

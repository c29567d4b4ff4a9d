//! Look-up of functions by name.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::mem::transmute_copy;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function looked up at its first call.
///
/// The look-up follows this library in loading order, so that other tools of this kind get the call, too, and the MPI
/// last.
pub(crate) struct Symbol<F> {
    /// The function, or one to look it up.
    function: AtomicPtr<c_void>,
    name: &'static CStr,
    profiled: &'static CStr,
    of: PhantomData<F>,
}

impl<F: Copy> Symbol<F> {
    /// Returns the function `name` of a library loaded after this one, or else `profiled` of any.
    ///
    /// `F` has to be the type of both. `first` is called first: it calls the function returned by
    /// [`look_up`](Self::look_up), so that no call needs to ask whether there is one.
    pub(crate) const fn new(first: F, name: &'static CStr, profiled: &'static CStr) -> Symbol<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) }
        // SAFETY: `F` is a function pointer, of the same size.
        let first = unsafe { transmute_copy(&first) };
        Symbol { function: AtomicPtr::new(first), name, profiled, of: PhantomData }
    }

    /// Returns the function.
    #[inline]
    pub(crate) fn get(&self) -> F {
        let function = self.function.load(Ordering::Relaxed);
        // SAFETY: `F` is a function pointer, of the same size; the function found has the name that goes with its type,
        // and every program loading it agrees on the type by MPI's header.
        unsafe { transmute_copy(&function) }
    }

    /// Looks the function up, and returns it from now on.
    #[cold]
    pub(crate) fn look_up(&self) -> F {
        // SAFETY: null-terminated names; the look-up changes nothing.
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
        self.function.store(found, Ordering::Relaxed);
        self.get()
    }
}

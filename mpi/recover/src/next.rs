//! C library functions that this library stands in for.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The function called by the program without this library; `F` is its type, a function pointer.
pub(crate) struct Next<F> {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
    of: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    pub(crate) const fn new(name: &'static CStr) -> Next<F> {
        assert!(size_of::<F>() == size_of::<*mut c_void>(), "F is a function pointer");
        Next { name, at: AtomicPtr::new(ptr::null_mut()), of: PhantomData }
    }

    /// Returns the function.
    ///
    /// The C library has it, so a process without it can't continue.
    pub(crate) fn get(&self) -> F {
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            // SAFETY: a name with a zero at its end.
            at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            if at.is_null() {
                // SAFETY: a function without preconditions. Nothing allocating memory may run here.
                unsafe { libc::abort() }
            }
            self.at.store(at, Ordering::Relaxed);
        }
        // SAFETY: this library's statics have the types of the functions they name.
        unsafe { transmute_copy(&at) }
    }
}

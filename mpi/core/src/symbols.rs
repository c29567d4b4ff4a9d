//! Symbols of the MPI that its headers don't declare.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// Returns the address of the first symbol in the process with this name.
pub(crate) fn find_symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name ends with a zero; looking it up changes nothing.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

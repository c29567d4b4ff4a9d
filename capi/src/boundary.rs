//! Common frame of every function: checks pointers, catches panics, notes the failure.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::slice;

use crate::result::counterfoil_result;

thread_local! {
    /// This thread's last failure message.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// A failure: its result and message.
pub(crate) struct Failure {
    pub(crate) result: counterfoil_result,
    message: String,
}

impl Failure {
    pub(crate) fn new(result: counterfoil_result, message: impl Into<String>) -> Failure {
        Failure { result, message: message.into() }
    }

    fn null(name: &str) -> Failure {
        Failure::new(counterfoil_result::NullParameter, format!("`{name}` is null"))
    }

    pub(crate) fn invalid(name: &str, value: impl std::fmt::Display) -> Failure {
        Failure::new(counterfoil_result::InvalidParameter, format!("`{name}` is {value}, which it can't be"))
    }
}

impl<E: std::error::Error> From<E> for Failure
where
    counterfoil_result: for<'a> From<&'a E>,
{
    fn from(error: E) -> Failure {
        Failure::new((&error).into(), error.to_string())
    }
}

/// Runs a function body: its failure, or its panic, becomes a result.
#[inline]
pub(crate) fn boundary(body: impl FnOnce() -> Result<(), Failure>) -> counterfoil_result {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => counterfoil_result::Ok,
        Ok(Err(failure)) => note(failure),
        Err(_) => note(Failure::new(counterfoil_result::Panic, "a panic: its message is on standard error")),
    }
}

#[cold]
fn note(failure: Failure) -> counterfoil_result {
    let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // An ending thread may have no message any more.
    let _ = MESSAGE.try_with(|last| last.replace(message));
    failure.result
}

/// Returns the message of this thread's last failure, with its names and values; empty if there was none.
///
/// Valid until the next failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn counterfoil_error_message() -> *const c_char {
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Dereferences a pointer.
///
/// # Safety
/// `at` is null, or points to a value not used elsewhere.
pub(crate) unsafe fn object<'a, T>(name: &str, at: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { at.as_mut() }.ok_or_else(|| Failure::null(name))
}

/// Checks that an out parameter isn't null.
pub(crate) fn out<T>(name: &str, at: *mut T) -> Result<(), Failure> {
    if at.is_null() { Err(Failure::null(name)) } else { Ok(()) }
}

/// Stores a value, unless the out parameter is null.
///
/// # Safety
/// `at` is null, or a variable not used elsewhere.
pub(crate) unsafe fn store<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: the caller's promise.
        unsafe { at.write(value) };
    }
}

/// Returns bytes.
///
/// They may be null if there are none.
///
/// # Safety
/// `at` has `len` bytes, unchanged until the function returns.
pub(crate) unsafe fn bytes<'a>(name: &str, at: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { slice::from_raw_parts(at, len) })
}

/// Returns a path.
///
/// # Safety
/// `at` is null, or a zero-terminated string.
pub(crate) unsafe fn path(name: &str, at: *const c_char) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    if at.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(at) };
    Ok(std::ffi::OsStr::from_bytes(path.to_bytes()).into())
}

//! Memory from the C library, zeroed where the program has not written it yet.
//!
//! A program may send bytes it has not written, as a structure's padding. Reused memory then has leftovers from a
//! clock, an address or the MPI, and a repetition would send something else. Blocks mapped by the C library have zeros,
//! and aren't touched; smaller ones are written.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clocks::is_inside;
use crate::next::Next;

static CALLOC: Next<unsafe extern "C" fn(usize, usize) -> *mut c_void> = Next::new(c"calloc");
static MALLOC: Next<unsafe extern "C" fn(usize) -> *mut c_void> = Next::new(c"malloc");
static REALLOC: Next<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void> = Next::new(c"realloc");
static ALIGNED: Next<unsafe extern "C" fn(usize, usize) -> *mut c_void> = Next::new(c"aligned_alloc");
static MEMALIGN: Next<unsafe extern "C" fn(usize, usize) -> *mut c_void> = Next::new(c"memalign");
static POSIX: Next<unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int> = Next::new(c"posix_memalign");

/// Length from which on glibc maps any block, in bytes (`DEFAULT_MMAP_THRESHOLD_MAX`).
const MAPPED_BYTES: usize = 32 << 20;

/// True if the process may become a rank.
static IS_JOB: AtomicBool = AtomicBool::new(false);

/// Begins to give out zeros: in a job's process, before its program.
pub(crate) fn begin() {
    IS_JOB.store(true, Ordering::Relaxed);
}

/// Returns `true` if the memory is for the program: allocations in an MPI call are for this library and the MPI.
fn is_for_program() -> bool {
    IS_JOB.load(Ordering::Relaxed) && !is_inside()
}

/// Writes zeros to a block's bytes from `from` on.
///
/// # Safety
/// `block` is null or was allocated, and nobody else has it.
unsafe fn zero(block: *mut c_void, from: usize) {
    if block.is_null() || !is_for_program() {
        return;
    }
    // SAFETY: the block has that many bytes.
    unsafe {
        let bytes = libc::malloc_usable_size(block);
        if bytes > from && bytes <= MAPPED_BYTES {
            block.cast::<u8>().add(from).write_bytes(0, bytes - from);
        }
    }
}

/// `malloc`
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: functions without preconditions. The C library knows which memory is fresh.
    unsafe { if is_for_program() { CALLOC.get()(1, bytes) } else { MALLOC.get()(bytes) } }
}

/// `realloc`
///
/// # Safety
/// Same as in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's block, exclusively; the new one is it, or has its bytes.
    unsafe {
        let before = if block.is_null() { 0 } else { libc::malloc_usable_size(block) };
        let moved = REALLOC.get()(block, bytes);
        zero(moved, before);
        moved
    }
}

/// `reallocarray`
///
/// # Safety
/// Same as in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's block.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => {
            // SAFETY: the thread's variable.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            std::ptr::null_mut()
        }
    }
}

/// `aligned_alloc`
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: a function without preconditions, and its new block.
    unsafe {
        let block = ALIGNED.get()(alignment, bytes);
        zero(block, 0);
        block
    }
}

/// `memalign`
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: a function without preconditions, and its new block.
    unsafe {
        let block = MEMALIGN.get()(alignment, bytes);
        zero(block, 0);
        block
    }
}

/// `posix_memalign`
///
/// # Safety
/// Same as in the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int {
    // SAFETY: the caller's variable, which has a new block if the code is 0.
    unsafe {
        let code = POSIX.get()(block, alignment, bytes);
        if code == 0 {
            zero(*block, 0);
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of nonzero bytes in a block, and writes all.
    fn use_up(block: *mut c_void, bytes: usize) -> usize {
        assert!(!block.is_null());
        // SAFETY: the block has that many bytes, written by the function under test.
        let block = unsafe { std::slice::from_raw_parts_mut(block.cast::<u8>(), bytes) };
        let written = block.iter().filter(|byte| **byte != 0).count();
        block.fill(0xff);
        written
    }

    #[test]
    fn memory_that_was_used_before_is_zeros() {
        begin();
        let allocate: [fn(usize) -> *mut c_void; 5] = [
            |bytes| malloc(bytes),
            |bytes| aligned_alloc(64, bytes),
            |bytes| memalign(64, bytes),
            |bytes| {
                let mut block = std::ptr::null_mut();
                // SAFETY: a pointer to a local variable.
                assert_eq!(unsafe { posix_memalign(&raw mut block, 64, bytes) }, 0);
                block
            },
            // SAFETY: no block, and then one of its own.
            |bytes| unsafe { realloc(realloc(std::ptr::null_mut(), bytes / 2), bytes) },
        ];
        for bytes in [16, 64, 4096, 1 << 20] {
            for allocate in allocate {
                for _ in 0..4 {
                    let block = allocate(bytes);
                    assert_eq!(use_up(block, bytes), 0, "{bytes}");
                    // SAFETY: the block, once.
                    unsafe { libc::free(block) };
                }
            }
        }
    }

    #[test]
    fn a_block_that_grows_keeps_its_bytes_and_has_zeros_after_them() {
        begin();
        // SAFETY: blocks of its own, of these lengths.
        unsafe {
            let block = malloc(100);
            use_up(block, 100);
            let block = reallocarray(block, 1000, 2);
            assert_eq!(use_up(block, 2000), 100);
            assert!(reallocarray(block, usize::MAX, 2).is_null());
            assert_eq!(*libc::__errno_location(), libc::ENOMEM);
            libc::free(block);
        }
    }
}

//! Prefetches of memory accessed next.

/// Prefetches the cache lines of `bytes` bytes from `from` on.
///
/// A hint: unmapped addresses are ignored, and nothing is read.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn prefetch(from: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    const LINE_BYTES: usize = 64;
    let skipped = from.addr() % LINE_BYTES;
    let first = from.wrapping_sub(skipped);
    for line in (0..skipped + bytes).step_by(LINE_BYTES) {
        // SAFETY: a prefetch is a hint, takes any address and never faults (Intel's manual, volume 2, PREFETCHh);
        // nothing is read through the pointer, and `wrapping_add` may leave the allocation.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(line).cast()) };
    }
}

/// Does nothing: stable Rust has no prefetch for other processors.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn prefetch(_from: *const u8, _bytes: usize) {}

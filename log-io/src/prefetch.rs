//! Prefetch of the records that are copied next.

/// Prefetches bytes that follow `copied`, which is about to be copied: as many as it has, 2 KiB ahead of it, or the 2 KiB right
/// after it if it is longer.
///
/// Adjacent records are no longer in the cache. A record's length is known only when its header is loaded, so without a
/// prefetch each copy would start with a cache miss. Unmapped addresses are ignored.
#[cfg(target_arch = "x86_64")]
pub(crate) fn following(copied: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    const AHEAD_BYTES: usize = 2048;
    const LINE_BYTES: usize = 64;
    let from = copied.as_ptr().wrapping_add(copied.len().max(AHEAD_BYTES));
    for line in (0..copied.len().min(AHEAD_BYTES)).step_by(LINE_BYTES) {
        // SAFETY: a prefetch is a hint that takes any address and never faults (Intel's manual, volume 2, PREFETCHh); nothing
        // is read through the pointer, and `wrapping_add` may leave the allocation.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line).cast()) };
    }
}

/// Does nothing: stable Rust has no prefetch for other processors.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn following(_copied: &[u8]) {}

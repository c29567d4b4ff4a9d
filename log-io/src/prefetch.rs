//! Asking for memory before it is needed.

/// Asks for bytes behind `copied`, which is about to be copied: as many as it has, 2 KiB ahead of it, or the first 2 KiB behind
/// it where it is longer than that.
///
/// Records lie one behind the other in memory that is no longer in the cache. The length of a record is known only when its
/// front is there: each would begin with waiting for memory. An address that isn't mapped is passed over.
#[cfg(target_arch = "x86_64")]
pub(crate) fn behind(copied: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    const AHEAD_BYTES: usize = 2048;
    const LINE_BYTES: usize = 64;
    let from = copied.as_ptr().wrapping_add(copied.len().max(AHEAD_BYTES));
    for line in (0..copied.len().min(AHEAD_BYTES)).step_by(LINE_BYTES) {
        // SAFETY: a prefetch is a hint that takes any address and never faults (Intel's manual, volume 2, PREFETCHh); the
        // pointer is not read through, and `wrapping_add` may leave what it points into.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line).cast()) };
    }
}

/// There is no stable way to ask on other processors.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn behind(_copied: &[u8]) {}

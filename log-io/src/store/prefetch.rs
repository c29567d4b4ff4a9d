//! Prefetch for the records to be copied next.

use counterfoil_log_core::prefetch;

/// Prefetches the bytes following `copied`, which is about to be copied: as many as it has, 2 KiB ahead of it, or the 2
/// KiB right after it if it is longer.
///
/// Adjacent records are no longer in the cache. A record's length is known only when its header is loaded, so without a
/// prefetch each copy would start with a cache miss.
pub(crate) fn following(copied: &[u8]) {
    const AHEAD_BYTES: usize = 2048;
    prefetch(copied.as_ptr().wrapping_add(copied.len().max(AHEAD_BYTES)), copied.len().min(AHEAD_BYTES));
}

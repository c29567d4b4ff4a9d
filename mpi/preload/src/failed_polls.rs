//! The number of failed polls (tests and probes without a result).
//!
//! Counted without entering the session, since programs poll in loops.

use std::sync::atomic::{AtomicU64, Ordering};

static FAILED_POLLS: AtomicU64 = AtomicU64::new(0);

/// Returns the number so far.
pub(crate) fn count() -> u64 {
    FAILED_POLLS.load(Ordering::Relaxed)
}

/// Counts one; `is_multiple` if other threads may be in MPI calls.
#[inline]
pub(crate) fn add(is_multiple: bool) {
    if is_multiple {
        FAILED_POLLS.fetch_add(1, Ordering::Relaxed);
    } else {
        // Cheaper, and no other thread is in a call.
        FAILED_POLLS.store(FAILED_POLLS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

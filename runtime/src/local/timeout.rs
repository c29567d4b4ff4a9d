//! Timeouts for poll(2).

use std::time::Duration;

use rustix::event::Timespec;

/// Converts a duration for poll.
pub(super) fn timespec(duration: Duration) -> Timespec {
    let tv_sec = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(duration.subsec_nanos()) }
}

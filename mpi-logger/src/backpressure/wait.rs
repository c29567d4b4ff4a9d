//! A wait for space in the log.

use std::time::{Duration, Instant};

/// Time after which a waiting rank reports the wait and looks for a deadlock.
const PATIENCE: Duration = Duration::from_secs(2);
/// Attempts without another rank able to free space before the wait is in vain: released memory is free only after its
/// readers have moved on.
const FUTILE_MAX: u32 = 4;

/// A rank's wait for space in its log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceWait {
    since: Instant,
    /// Consecutive attempts at which no other rank could have freed space.
    futile: u32,
}

impl SpaceWait {
    pub(crate) fn begin(now: Instant) -> SpaceWait {
        SpaceWait { since: now, futile: 0 }
    }

    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Returns `true` once the wait has lasted [`PATIENCE`].
    pub(crate) fn is_long(&self, now: Instant) -> bool {
        self.waited(now) > PATIENCE
    }

    /// Notes a failed attempt.
    ///
    /// Returns `true` if the wait is in vain: every receiver has received everything, again and again.
    pub(crate) fn is_futile(&mut self, can_others_free_space: bool) -> bool {
        self.futile = if can_others_free_space { 0 } else { self.futile + 1 };
        self.futile >= FUTILE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_vain_if_no_other_rank_could_free_space_again_and_again() {
        let mut wait = SpaceWait::begin(Instant::now());
        assert_eq!([false, false, false, true].map(|others| wait.is_futile(others)), [false; 4]);
        assert_eq!([false; 4].map(|others| wait.is_futile(others)), [false, false, false, true]);
    }

    #[test]
    fn a_wait_is_long_after_two_seconds() {
        let begun = Instant::now();
        let wait = SpaceWait::begin(begun);
        assert_eq!([2, 3].map(|seconds| wait.is_long(begun + Duration::from_secs(seconds))), [false, true]);
    }
}

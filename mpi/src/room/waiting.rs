//! A rank that waits for room.

use std::time::{Duration, Instant};

/// How long a rank waits before it asks whether anybody gets on.
const PATIENCE: Duration = Duration::from_secs(2);
/// So often a rank that waits for nobody else looks for room: memory that was let go is there when its readers have gone on.
const ALONE_MAX: u32 = 4;

/// A rank that waits for room in its log.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    since: Instant,
    /// How often in a row nobody else was found who could make room.
    alone: u32,
}

impl Waiting {
    /// It begins to.
    pub fn begin(now: Instant) -> Waiting {
        Waiting { since: now, alone: 0 }
    }

    /// For how long it has.
    pub fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether that is long enough to be said, and to ask whether anybody gets on.
    pub fn is_long(&self, now: Instant) -> bool {
        self.waited(now) > PATIENCE
    }

    /// It has looked for room in vain, and somebody else could make some, or nobody. Whether it waits in vain: whoever it sent something to
    /// has it.
    pub fn is_alone(&mut self, is_anybody_behind: bool) -> bool {
        self.alone = if is_anybody_behind { 0 } else { self.alone + 1 };
        self.alone >= ALONE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_waits_in_vain_if_again_and_again_nobody_else_could_make_room() {
        let mut waiting = Waiting::begin(Instant::now());
        assert_eq!([false, false, false, true].map(|behind| waiting.is_alone(behind)), [false; 4]);
        assert_eq!([false; 4].map(|behind| waiting.is_alone(behind)), [false, false, false, true]);
    }

    #[test]
    fn a_wait_is_long_after_two_seconds() {
        let begun = Instant::now();
        let waiting = Waiting::begin(begun);
        assert_eq!([2, 3].map(|seconds| waiting.is_long(begun + Duration::from_secs(seconds))), [false, true]);
    }
}

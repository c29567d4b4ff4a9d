//! Checkpoints by interval (Zhao 2005, section 5.8).
//!
//! Of those offered by a program, one is taken once the optimal time since the last has passed.

use std::time::{Duration, Instant};

use counterfoil_protocols::event_logging::optimal_interval;

use crate::tally::Tally;

/// Time of the last checkpoint, and the mean cost.
#[derive(Debug)]
pub(crate) struct Interval {
    /// The job's mean time between failures; `None`: every offered checkpoint is due.
    mtbf: Option<Duration>,
    /// Time of the last checkpoint.
    last: Instant,
    /// Mean cost of a checkpoint; `None` before the first.
    cost: Option<Duration>,
}

impl Interval {
    pub(crate) fn new(mtbf: Option<Duration>, now: Instant) -> Interval {
        Interval { mtbf, last: now, cost: None }
    }

    /// Returns `true` if an offered checkpoint is due: the first one at once, since its cost isn't known yet.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let Some((mtbf, cost)) = self.mtbf.zip(self.cost) else { return true };
        now.saturating_duration_since(self.last) >= optimal_interval(cost, mtbf)
    }

    /// Returns `true` if the clock decides due checkpoints, so each rank decides for itself.
    pub(crate) fn is_by_clock(&self) -> bool {
        self.mtbf.is_some() && self.cost.is_some()
    }

    /// Records a checkpoint.
    ///
    /// `tally`: counters for all checkpoints so far.
    pub(crate) fn note_checkpoint(&mut self, now: Instant, tally: &Tally) {
        self.last = now;
        self.cost = tally.checkpoint_us.checked_div(tally.checkpoints).map(Duration::from_micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(checkpoints: u64, seconds: u64) -> Tally {
        Tally { checkpoints, checkpoint_us: seconds * 1_000_000, ..Tally::default() }
    }

    #[test]
    fn a_checkpoint_is_due_once_the_optimal_time_since_the_last_has_passed() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut interval = Interval::new(Some(50 * second), start);
        assert!(interval.is_due(start), "the first one measures the cost");
        interval.note_checkpoint(start, &tally(1, 4));
        // sqrt(2 * 4 s * 50 s) = 20 s.
        assert!(!interval.is_due(start + 19 * second) && interval.is_due(start + 20 * second));
        // The mean cost is 1 s now, the interval 10 s.
        interval.note_checkpoint(start + 20 * second, &tally(5, 5));
        assert!(!interval.is_due(start + 29 * second) && interval.is_due(start + 30 * second));
    }

    #[test]
    fn without_a_mean_time_between_failures_every_checkpoint_is_due() {
        let start = Instant::now();
        let mut interval = Interval::new(None, start);
        interval.note_checkpoint(start, &tally(1, 4));
        assert!(interval.is_due(start));
    }
}

//! How long messages waited for their acknowledgement.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Messages whose acknowledgement is waited for at once, at most.
const UNDER_WAY_MAX: usize = 64;
/// Digits of a delay that are kept.
const DIGITS: u8 = 2;
/// The longest delay that is told from longer ones.
const LONGEST: Duration = Duration::from_secs(3600);

/// A message whose acknowledgement is waited for.
#[derive(Clone, Copy, Debug)]
struct Sent {
    peer: u32,
    ssn: u64,
    at: Instant,
}

/// Delays of some messages, as their sender sees them: from the end of the send to the moment at which its log learns that the message was
/// received. That is how long a record is held only because nobody has said so yet.
///
/// Bounded: at most 64 messages are waited for at a time; others that are offered meanwhile are counted, and nothing more.
#[derive(Debug, Default)]
pub struct Delays {
    under_way: Vec<Sent>,
    histogram: Option<Histogram<u64>>,
    left_out: u64,
}

impl Delays {
    /// A message was sent to `peer` just now, with the sequence number `ssn`.
    pub fn sent(&mut self, peer: u32, ssn: u64, now: Instant) {
        if self.under_way.len() >= UNDER_WAY_MAX {
            self.left_out += 1;
        } else {
            self.under_way.push(Sent { peer, ssn, at: now });
        }
    }

    /// `peer` has received everything up to `acked`. The clock is asked only where that ends a wait.
    pub fn heard(&mut self, peer: u32, acked: u64, clock: impl FnOnce() -> Instant) {
        let has_ended = |sent: &Sent| sent.peer == peer && sent.ssn <= acked;
        if !self.under_way.iter().any(has_ended) {
            return;
        }
        let now = clock();
        let mut at = 0;
        while let Some(sent) = self.under_way.get(at) {
            if has_ended(sent) {
                let delay = now.saturating_duration_since(sent.at);
                self.under_way.swap_remove(at);
                self.note(delay);
            } else {
                at += 1;
            }
        }
    }

    fn note(&mut self, delay: Duration) {
        if self.histogram.is_none() {
            self.histogram = histogram();
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(nanoseconds(delay).max(1));
        }
    }

    /// What was counted.
    pub fn counts(&self) -> DelayCounts {
        let values = self.histogram.iter().flat_map(|histogram| histogram.iter_recorded());
        DelayCounts {
            delays_ns: values.map(|value| (value.value_iterated_to(), value.count_at_value())).collect(),
            left_out: self.left_out,
            unanswered: self.under_way.len() as u64,
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// An empty one; `None` never comes, as the bounds are right.
fn histogram() -> Option<Histogram<u64>> {
    Histogram::new_with_bounds(1, nanoseconds(LONGEST), DIGITS).ok()
}

/// Counted delays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayCounts {
    /// A delay in nanoseconds, with two digits, and how many messages had it. Ascending.
    pub delays_ns: Vec<(u64, u64)>,
    /// Messages that were not waited for, because so many were already.
    pub left_out: u64,
    /// Messages that were still waited for at the end.
    pub unanswered: u64,
}

impl DelayCounts {
    /// Adds those of another rank.
    pub fn merge(&mut self, other: &DelayCounts) {
        let mut all: Vec<(u64, u64)> = self.delays_ns.iter().chain(&other.delays_ns).copied().collect();
        all.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (delay, count) in all {
            match merged.last_mut() {
                Some((last, sum)) if *last == delay => *sum = sum.saturating_add(count),
                _ => merged.push((delay, count)),
            }
        }
        self.delays_ns = merged;
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.unanswered = self.unanswered.saturating_add(other.unanswered);
    }

    /// How many there are.
    pub fn samples(&self) -> u64 {
        self.delays_ns.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The delay, in nanoseconds, that this share (from 0 to 1) of the messages didn't exceed; `None` where there are none.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = (self.samples() as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0);
        let mut sum = 0.0;
        let mut values = self.delays_ns.iter();
        let found = values.find(|(_, count)| {
            sum += *count as f64;
            sum >= wanted
        });
        found.or(self.delays_ns.last()).map(|(delay, _)| *delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_the_time_until_the_acknowledgement_that_covers_the_message() {
        let begun = Instant::now();
        let at = |us| begun + Duration::from_micros(us);
        let mut delays = Delays::default();
        delays.sent(1, 10, at(0));
        delays.sent(1, 20, at(50));
        delays.sent(2, 5, at(60));
        delays.heard(1, 9, || panic!("nobody is waited for: the clock isn't needed"));
        delays.heard(1, 15, || at(100));
        delays.heard(1, 40, || at(1050));
        let counts = delays.counts();
        assert_eq!((counts.samples(), counts.unanswered, counts.left_out), (2, 1, 0));
        let [half, all] = [0.5, 1.0].map(|share| counts.quantile_ns(share).unwrap());
        assert!((100_000..=101_000).contains(&half) && (1_000_000..=1_010_000).contains(&all), "{half} {all}");
    }

    #[test]
    fn what_cannot_be_waited_for_is_counted() {
        let now = Instant::now();
        let mut delays = Delays::default();
        for ssn in 1..=100 {
            delays.sent(0, ssn, now);
        }
        let counts = delays.counts();
        assert_eq!((counts.unanswered, counts.left_out), (64, 36));
        delays.heard(0, 100, || now);
        assert_eq!(delays.counts().samples(), 64);
    }

    #[test]
    fn counts_of_two_ranks_are_one_distribution() {
        let mut one = DelayCounts { delays_ns: vec![(10, 1), (30, 2)], left_out: 1, unanswered: 0 };
        one.merge(&DelayCounts { delays_ns: vec![(20, 1), (30, 4)], left_out: 0, unanswered: 2 });
        assert_eq!(one, DelayCounts { delays_ns: vec![(10, 1), (20, 1), (30, 6)], left_out: 1, unanswered: 2 });
        assert_eq!([0.0, 0.25, 0.26, 1.0].map(|share| one.quantile_ns(share).unwrap()), [10, 20, 30, 30]);
        assert_eq!(DelayCounts::default().quantile_ns(0.5), None);
    }
}

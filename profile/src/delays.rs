//! Acknowledgement delays.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Maximum number of messages tracked at a time.
const IN_FLIGHT_MAX: usize = 64;
/// Significant decimal digits of a delay in the histogram.
const DIGITS: u8 = 2;
/// Longest delay resolved by the histogram; longer ones are counted as this one.
const DELAY_MAX: Duration = Duration::from_secs(3600);

/// A message waiting for its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Sent {
    peer: u32,
    ssn: u64,
    at: Instant,
}

/// Acknowledgement delays for a sample of messages, seen from the sender: from the end of the send until its log learns
/// of the message's receipt.
///
/// For that time the record is held only for lack of an acknowledgement. At most 64 messages are tracked at a time;
/// messages sent meanwhile are only counted.
#[derive(Debug, Default)]
pub struct Delays {
    in_flight: Vec<Sent>,
    histogram: Option<Histogram<u64>>,
    left_out: u64,
}

impl Delays {
    /// Records a message just sent to `peer` with the sequence number `ssn`.
    pub fn sent(&mut self, peer: u32, ssn: u64, now: Instant) {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            self.left_out += 1;
        } else {
            self.in_flight.push(Sent { peer, ssn, at: now });
        }
    }

    /// Records an acknowledgement from `peer` for everything up to `acked`.
    ///
    /// Reads the clock only if a delay ends.
    pub fn acknowledged(&mut self, peer: u32, acked: u64, clock: impl FnOnce() -> Instant) {
        let is_covered = |sent: &Sent| sent.peer == peer && sent.ssn <= acked;
        if !self.in_flight.iter().any(is_covered) {
            return;
        }
        let now = clock();
        let mut at = 0;
        while let Some(sent) = self.in_flight.get(at) {
            if is_covered(sent) {
                let delay = now.saturating_duration_since(sent.at);
                self.in_flight.swap_remove(at);
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

    /// Returns the counts so far.
    pub fn counts(&self) -> DelayCounts {
        let values = self.histogram.iter().flat_map(|histogram| histogram.iter_recorded());
        DelayCounts {
            delays_ns: values.map(|value| (value.value_iterated_to(), value.count_at_value())).collect(),
            left_out: self.left_out,
            unanswered: self.in_flight.len() as u64,
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Creates an empty histogram.
///
/// Never `None`, since the bounds are valid.
fn histogram() -> Option<Histogram<u64>> {
    Histogram::new_with_bounds(1, nanoseconds(DELAY_MAX), DIGITS).ok()
}

/// Histogram of acknowledgement delays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayCounts {
    /// Delays in nanoseconds, rounded to two significant digits, each with its message count.
    ///
    /// Ascending.
    pub delays_ns: Vec<(u64, u64)>,
    /// Untracked messages, because too many were already tracked.
    pub left_out: u64,
    /// Tracked messages without an acknowledgement at the end.
    pub unanswered: u64,
}

impl DelayCounts {
    /// Adds another rank's counts.
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

    /// Returns the delay count.
    pub fn samples(&self) -> u64 {
        self.delays_ns.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Returns the delay in nanoseconds not exceeded by this share (from 0 to 1) of the messages; `None` without
    /// delays.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let rank = (self.samples() as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0);
        let mut sum = 0.0;
        let mut values = self.delays_ns.iter();
        let found = values.find(|(_, count)| {
            sum += *count as f64;
            sum >= rank
        });
        found.or(self.delays_ns.last()).map(|(delay, _)| *delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_ends_with_the_acknowledgement_that_covers_the_message() {
        let begun = Instant::now();
        let at = |us| begun + Duration::from_micros(us);
        let mut delays = Delays::default();
        delays.sent(1, 10, at(0));
        delays.sent(1, 20, at(50));
        delays.sent(2, 5, at(60));
        delays.acknowledged(1, 9, || panic!("no message is in flight: the clock isn't needed"));
        delays.acknowledged(1, 15, || at(100));
        delays.acknowledged(1, 40, || at(1050));
        let counts = delays.counts();
        assert_eq!((counts.samples(), counts.unanswered, counts.left_out), (2, 1, 0));
        let [half, all] = [0.5, 1.0].map(|share| counts.quantile_ns(share).unwrap());
        assert!((100_000..=101_000).contains(&half) && (1_000_000..=1_010_000).contains(&all), "{half} {all}");
    }

    #[test]
    fn messages_beyond_the_limit_are_only_counted() {
        let now = Instant::now();
        let mut delays = Delays::default();
        for ssn in 1..=100 {
            delays.sent(0, ssn, now);
        }
        let counts = delays.counts();
        assert_eq!((counts.unanswered, counts.left_out), (64, 36));
        delays.acknowledged(0, 100, || now);
        assert_eq!(delays.counts().samples(), 64);
    }

    #[test]
    fn counts_of_two_ranks_merge_into_one_distribution() {
        let mut one = DelayCounts { delays_ns: vec![(10, 1), (30, 2)], left_out: 1, unanswered: 0 };
        one.merge(&DelayCounts { delays_ns: vec![(20, 1), (30, 4)], left_out: 0, unanswered: 2 });
        assert_eq!(one, DelayCounts { delays_ns: vec![(10, 1), (20, 1), (30, 6)], left_out: 1, unanswered: 2 });
        assert_eq!([0.0, 0.25, 0.26, 1.0].map(|share| one.quantile_ns(share).unwrap()), [10, 20, 30, 30]);
        assert_eq!(DelayCounts::default().quantile_ns(0.5), None);
    }
}

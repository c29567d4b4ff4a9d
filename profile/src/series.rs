//! Log growth, in a bounded number of samples.

use serde::{Deserialize, Serialize};

/// Log state at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "[u64; 6]", from = "[u64; 6]")]
pub struct Sample {
    /// Milliseconds since logging began.
    pub at_ms: u64,
    /// Messages logged so far.
    pub messages: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Memory used by records, in bytes.
    pub used_bytes: u64,
    /// Memory freed so far by spilling records to disk, in bytes.
    pub spilled_bytes: u64,
    /// Unacknowledged records.
    pub unacknowledged: u64,
}

impl From<Sample> for [u64; 6] {
    fn from(sample: Sample) -> [u64; 6] {
        let Sample { at_ms, messages, bytes, used_bytes, spilled_bytes, unacknowledged } = sample;
        [at_ms, messages, bytes, used_bytes, spilled_bytes, unacknowledged]
    }
}

impl From<[u64; 6]> for Sample {
    fn from([at_ms, messages, bytes, used_bytes, spilled_bytes, unacknowledged]: [u64; 6]) -> Sample {
        Sample { at_ms, messages, bytes, used_bytes, spilled_bytes, unacknowledged }
    }
}

/// Samples of a whole run, however long.
///
/// When there are too many, every other one is dropped, and the interval between samples doubles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    interval_ms: u64,
    samples: Vec<Sample>,
}

impl Default for Series {
    fn default() -> Series {
        Series { interval_ms: Series::INTERVAL_MS, samples: Vec::new() }
    }
}

impl Series {
    /// Maximum number of samples, excluding the last one added by [`finish`](Self::finish).
    pub const SAMPLES_MAX: usize = 512;
    /// Initial interval between samples, in milliseconds.
    pub const INTERVAL_MS: u64 = 2;

    /// Returns `true` if a sample is due.
    #[inline]
    pub fn is_due(&self, at_ms: u64) -> bool {
        self.samples.last().is_none_or(|last| at_ms >= last.at_ms.saturating_add(self.interval_ms))
    }

    /// Adds a sample if one is due.
    pub fn add(&mut self, sample: Sample) {
        if !self.is_due(sample.at_ms) {
            return;
        }
        if self.samples.len() >= Series::SAMPLES_MAX {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval_ms = self.interval_ms.saturating_mul(2);
        }
        self.samples.push(sample);
    }

    /// Adds the last sample, even if none is due.
    pub fn finish(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Returns the samples in insertion order.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the state at `at_ms` milliseconds, according to the last sample at or before that time.
    pub fn at(&self, at_ms: u64) -> Sample {
        let count = self.samples.partition_point(|sample| sample.at_ms <= at_ms);
        count.checked_sub(1).and_then(|index| self.samples.get(index)).copied().unwrap_or_default()
    }

    /// Returns `true` if the samples are in time order and not too many.
    pub(crate) fn is_valid(&self) -> bool {
        self.samples.len() <= Series::SAMPLES_MAX + 1 && self.samples.is_sorted_by_key(|sample| sample.at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_as_many_samples_as_a_short_one_and_they_span_it() {
        let mut series = Series::default();
        for at_ms in 0..1_000_000 {
            series.add(Sample { at_ms, messages: at_ms * 10, ..Sample::default() });
            assert!(series.samples().len() <= Series::SAMPLES_MAX);
        }
        series.finish(Sample { at_ms: 1_000_000, ..Sample::default() });
        let samples = series.samples();
        assert!(samples.len() > Series::SAMPLES_MAX / 4, "{}", samples.len());
        assert_eq!((samples[0].at_ms, samples[samples.len() - 1].at_ms), (0, 1_000_000));
        assert!(samples.windows(2).all(|pair| pair[1].at_ms - pair[0].at_ms <= 2 * series.interval_ms), "{series:?}");
        assert!(series.is_valid());
        assert_eq!(series.at(500_000).messages, 10 * series.at(500_000).at_ms);
        assert_eq!(Series::default().at(7), Sample::default());
    }
}

//! Median with a confidence interval.

/// Sample median with a 95 % confidence interval from order statistics, valid for any distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Interval {
    /// Returns the interval; `None` for fewer than six values, for which no such interval exists.
    pub(super) fn of(values: &[f64]) -> Option<Interval> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let outside = values_outside(n)?;
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        Some(Interval { low: sorted[outside], median, high: sorted[n - 1 - outside] })
    }
}

/// Returns the number of values below the interval, and above it: the largest for which the interval misses the median
/// with at most 5 % probability.
fn values_outside(n: usize) -> Option<usize> {
    // The number of values below the median is binomially distributed with probability 1/2.
    let mut term = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut tail = term;
    let mut outside = None;
    for k in 0..n / 2 {
        if 2.0 * tail > 0.05 {
            break;
        }
        outside = Some(k);
        term *= (n - k) as f64 / (k + 1) as f64;
        tail += term;
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_match_the_tables_of_the_sign_test() {
        let outside = [5, 6, 8, 9, 15, 20, 25, 30].map(values_outside);
        assert_eq!(outside, [None, Some(0), Some(0), Some(1), Some(3), Some(5), Some(7), Some(9)]);
    }

    #[test]
    fn the_interval_contains_the_median_and_excludes_outliers() {
        let mut values: Vec<f64> = (1..=15).map(f64::from).collect();
        values[3] = 1000.0;
        let Interval { low, median, high } = Interval::of(&values).unwrap();
        assert_eq!((low, median, high), (5.0, 9.0, 13.0));
        assert_eq!(Interval::of(&[1.0; 5]), None);
    }
}

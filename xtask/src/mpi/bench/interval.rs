//! A median, and how sure it is.

/// The median of a sample with a 95 % interval, by order statistics: nothing is assumed of how the values are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Interval {
    /// `None` of fewer than six values: no two of them enclose the median so surely.
    pub(super) fn of(values: &[f64]) -> Option<Interval> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let out = left_out(sorted.len())?;
        let (at, n) = (|place: usize| sorted[place], sorted.len());
        Some(Interval { low: at(out), median: f64::midpoint(at((n - 1) / 2), at(n / 2)), high: at(n - 1 - out) })
    }
}

/// How many values may be left out at each end: the most for which both ends together miss the median with at most 5 %.
fn left_out(n: usize) -> Option<usize> {
    // Each value is below the median with probability one half, so how many are has a binomial distribution.
    let mut term = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut tail = term;
    let mut out = None;
    for k in 0..n / 2 {
        if 2.0 * tail > 0.05 {
            break;
        }
        out = Some(k);
        term *= (n - k) as f64 / (k + 1) as f64;
        tail += term;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_values_are_left_out_as_the_tables_of_the_sign_test_say() {
        let left_out = [5, 6, 8, 9, 15, 20, 25, 30].map(left_out);
        assert_eq!(left_out, [None, Some(0), Some(0), Some(1), Some(3), Some(5), Some(7), Some(9)]);
    }

    #[test]
    fn the_interval_encloses_the_median_and_leaves_outliers_out() {
        let mut values: Vec<f64> = (1..=15).map(f64::from).collect();
        values[3] = 1000.0;
        let Interval { low, median, high } = Interval::of(&values).unwrap();
        assert_eq!((low, median, high), (5.0, 9.0, 13.0));
        assert_eq!(Interval::of(&[1.0; 5]), None);
    }
}

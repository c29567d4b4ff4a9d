//! Quantiles of measured values.

/// Sorts values, ascending.
pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

pub(crate) fn median(values: Vec<f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// Returns the value below which this share of the ascending values lies.
pub(crate) fn quantile(ascending: &[f64], share: f64) -> f64 {
    let at = (ascending.len().saturating_sub(1) as f64 * share).round() as usize;
    ascending.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let ascending = sorted(vec![4.0, 1.0, 5.0, 2.0, 3.0]);
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|share| quantile(&ascending, share)), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(median(vec![2.0, 9.0, 1.0]), 2.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}

//! Paired measurements: the measured side and its baseline alternate, batch by batch.
//!
//! Two jobs, or two halves of one job, differ by more than the effect under measurement. So each batch is divided by
//! its own pair's baseline batch.

/// Returns the `q`-quantile (0 to 1) of the values by nearest rank; NaN if there are none.
///
/// ```
/// use counterfoil_mpi_benches::pairs::quantile;
///
/// assert_eq!(quantile([5.0, 1.0, 3.0].into_iter(), 0.5), 3.0);
/// assert!(quantile(std::iter::empty(), 0.5).is_nan());
/// ```
pub fn quantile(values: impl Iterator<Item = f64>, q: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    if sorted.is_empty() {
        return f64::NAN;
    }
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

/// One side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The measured subject.
    Measured,
    /// The reference to divide by.
    Baseline,
}

/// Pairs of (measured, baseline), in one unit.
#[derive(Clone, Debug, Default)]
pub struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    /// Adds a pair.
    pub fn push(&mut self, measured: f64, baseline: f64) {
        self.0.push((measured, baseline));
    }

    /// Measures both sides and adds the pair; the baseline comes first in even rounds, second in odd ones.
    ///
    /// # Errors
    /// Any error from `measure`; nothing is added then.
    pub fn measure<E>(&mut self, round: u32, mut measure: impl FnMut(Side) -> Result<f64, E>) -> Result<(), E> {
        let (measured, baseline) = if round.is_multiple_of(2) {
            let baseline = measure(Side::Baseline)?;
            (measure(Side::Measured)?, baseline)
        } else {
            (measure(Side::Measured)?, measure(Side::Baseline)?)
        };
        self.push(measured, baseline);
        Ok(())
    }

    /// Returns the `q`-quantile of the measured side.
    pub fn measured(&self, q: f64) -> f64 {
        quantile(self.0.iter().map(|pair| pair.0), q)
    }

    /// Returns the `q`-quantile of the baseline.
    pub fn baseline(&self, q: f64) -> f64 {
        quantile(self.0.iter().map(|pair| pair.1), q)
    }

    /// Returns the ratio of both sides' sums, sensitive to rare long batches; NaN without pairs.
    pub fn ratio_of_sums(&self) -> f64 {
        let sum = |of: fn(&(f64, f64)) -> f64| self.0.iter().map(of).sum::<f64>();
        sum(|pair| pair.0) / sum(|pair| pair.1)
    }

    /// Returns the `q`-quantile of the pairs' ratios: not the ratio of two quantiles.
    pub fn ratio(&self, q: f64) -> f64 {
        quantile(self.0.iter().map(|(measured, baseline)| measured / baseline), q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sides_change_places_from_round_to_round_and_keep_their_values() {
        use Side::{Baseline, Measured};

        let (mut pairs, mut order) = (Pairs::default(), Vec::new());
        for round in 0..3 {
            let measure = |side| {
                order.push(side);
                if order.len() == 6 { Err("the last one fails") } else { Ok(if side == Measured { 4.0 } else { 2.0 }) }
            };
            assert_eq!(pairs.measure(round, measure).is_err(), round == 2);
        }
        assert_eq!(order, [Baseline, Measured, Measured, Baseline, Baseline, Measured]);
        assert_eq!((pairs.0.len(), pairs.ratio(0.0), pairs.ratio(1.0)), (2, 2.0, 2.0));
    }

    #[test]
    fn the_median_is_that_of_the_pairs_ratios_not_the_ratio_of_medians() {
        let mut pairs = Pairs::default();
        for (measured, baseline) in [(30.0, 10.0), (10.0, 10.0), (40.0, 20.0), (12.0, 10.0), (500.0, 250.0)] {
            pairs.push(measured, baseline);
        }
        assert_eq!((pairs.measured(0.5), pairs.baseline(0.5), pairs.ratio(0.5)), (30.0, 10.0, 2.0));
        assert_eq!((pairs.ratio(0.25), pairs.ratio(0.75)), (1.2, 2.0));
        assert!((pairs.ratio_of_sums() - 592.0 / 300.0).abs() < 1e-9 && Pairs::default().ratio_of_sums().is_nan());
    }
}

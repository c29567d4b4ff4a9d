//! Measurements that are made in turn, and the ratios of neighbours.
//!
//! Two jobs, or two halves of one, differ by more than what is measured here. So what is compared takes turns, batch by batch,
//! and each batch is divided by its neighbour.

/// The value below which a share `q` (0 to 1) of the values lies: the nearest of them; NaN if there is none.
///
/// ```
/// use counterfoil_mpi::pairs::quantile;
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

/// Pairs of (measured, beside it).
#[derive(Clone, Debug, Default)]
pub struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    /// Adds a measurement and the one beside it, in the same unit.
    pub fn push(&mut self, measured: f64, beside: f64) {
        self.0.push((measured, beside));
    }

    /// The `q`-quantile of what was measured.
    pub fn measured(&self, q: f64) -> f64 {
        quantile(self.0.iter().map(|pair| pair.0), q)
    }

    /// The `q`-quantile of what it is compared with.
    pub fn beside(&self, q: f64) -> f64 {
        quantile(self.0.iter().map(|pair| pair.1), q)
    }

    /// The `q`-quantile of the neighbours' ratios: not the ratio of two quantiles.
    pub fn ratio(&self, q: f64) -> f64 {
        quantile(self.0.iter().map(|(measured, beside)| measured / beside), q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_the_neighbours_ratios_not_the_ratio_of_medians() {
        let mut pairs = Pairs::default();
        for (measured, beside) in [(30.0, 10.0), (10.0, 10.0), (40.0, 20.0), (12.0, 10.0), (500.0, 250.0)] {
            pairs.push(measured, beside);
        }
        assert_eq!((pairs.measured(0.5), pairs.beside(0.5), pairs.ratio(0.5)), (30.0, 10.0, 2.0));
        assert_eq!((pairs.ratio(0.25), pairs.ratio(0.75)), (1.2, 2.0));
    }
}

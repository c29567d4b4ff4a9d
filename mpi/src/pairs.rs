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

/// Which of a pair is measured now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// What the measurement is about.
    Measured,
    /// What it is compared with.
    Beside,
}

/// Pairs of (measured, beside it).
#[derive(Clone, Debug, Default)]
pub struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    /// Adds a measurement and the one beside it, in the same unit.
    pub fn push(&mut self, measured: f64, beside: f64) {
        self.0.push((measured, beside));
    }

    /// Measures a pair and adds it; who comes first changes from round to round.
    ///
    /// # Errors
    /// What `measure` says.
    pub fn take_turns<E>(&mut self, round: u32, mut measure: impl FnMut(Turn) -> Result<f64, E>) -> Result<(), E> {
        let (measured, beside) = if round.is_multiple_of(2) {
            let beside = measure(Turn::Beside)?;
            (measure(Turn::Measured)?, beside)
        } else {
            (measure(Turn::Measured)?, measure(Turn::Beside)?)
        };
        self.push(measured, beside);
        Ok(())
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
    fn who_comes_first_changes_from_round_to_round_and_each_stays_what_it_is() {
        use Turn::{Beside, Measured};

        let (mut pairs, mut order) = (Pairs::default(), Vec::new());
        for round in 0..3 {
            let measure = |turn| {
                order.push(turn);
                if order.len() == 6 { Err("the last one fails") } else { Ok(if turn == Measured { 4.0 } else { 2.0 }) }
            };
            assert_eq!(pairs.take_turns(round, measure).is_err(), round == 2);
        }
        assert_eq!(order, [Beside, Measured, Measured, Beside, Beside, Measured]);
        assert_eq!((pairs.0.len(), pairs.ratio(0.0), pairs.ratio(1.0)), (2, 2.0, 2.0));
    }

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

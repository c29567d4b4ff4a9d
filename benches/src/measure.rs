//! Interleaved measurement: a floor and the measured work take turns, so that a change in the machine's speed affects
//! both.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Measurement length.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Number of rounds, each with one turn for the floor and one for the work.
    ///
    /// At least 15 for a meaningful median.
    pub rounds: usize,
    /// Duration of one turn.
    pub turn: Duration,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { rounds: 32, turn: Duration::from_millis(4) }
    }
}

impl RunOptions {
    /// Spreads the rounds evenly over `places`.
    ///
    /// Returns each place, from 0, with the options of its rounds; with fewer rounds than places, only as many places.
    pub(crate) fn over_places(self, places: usize) -> impl Iterator<Item = (usize, RunOptions)> {
        let rounds = self.rounds.max(1);
        let of = move |place| rounds / places + usize::from(place < rounds % places);
        let all = (0..places).map(move |place| (place, RunOptions { rounds: of(place), ..self }));
        all.filter(|(_, options)| options.rounds > 0)
    }
}

/// The medians of a measurement, and the quartiles of the rounds' ratios.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figure {
    /// Nanoseconds per operation.
    pub ns: f64,
    /// Nanoseconds per operation, for the floor.
    pub floor_ns: f64,
    /// Median of the rounds' ratios `ns / floor_ns`.
    pub ratio: f64,
    /// Lower quartile of the ratios.
    pub ratio_p25: f64,
    /// Upper quartile of the ratios.
    pub ratio_p75: f64,
    /// Number of rounds.
    pub rounds: usize,
}

/// The rounds of a measurement, from one or more memory layouts.
#[derive(Debug, Default)]
pub struct Rounds(Vec<(f64, f64)>);

impl Rounds {
    /// Measures `work` against `floor`: each runs the given number of operations, and returns their duration.
    pub fn measure(
        &mut self,
        options: &RunOptions,
        mut floor: impl FnMut(u64) -> Duration,
        mut work: impl FnMut(u64) -> Duration,
    ) {
        // Find the number of operations to fill a floor turn; this also warms up both.
        let mut ops = 1;
        while floor(ops) < options.turn && ops < 1 << 40 {
            ops *= 2;
        }
        work(ops);
        for round in 0..options.rounds.max(1) {
            let (f, w) = if round % 2 == 0 {
                let f = floor(ops);
                (f, work(ops))
            } else {
                let w = work(ops);
                (floor(ops), w)
            };
            self.0.push((per_op(w, ops), per_op(f, ops)));
        }
    }

    /// Returns the medians over all rounds.
    pub fn figure(&self) -> Figure {
        let ratios = || self.0.iter().map(|(w, f)| w / f);
        Figure {
            ns: quantile(self.0.iter().map(|row| row.0), 0.5),
            floor_ns: quantile(self.0.iter().map(|row| row.1), 0.5),
            ratio: quantile(ratios(), 0.5),
            ratio_p25: quantile(ratios(), 0.25),
            ratio_p75: quantile(ratios(), 0.75),
            rounds: self.0.len(),
        }
    }
}

/// Measures `work` against `floor` in one memory layout: see [`Rounds::measure`].
pub fn interleave(
    options: &RunOptions,
    floor: impl FnMut(u64) -> Duration,
    work: impl FnMut(u64) -> Duration,
) -> Figure {
    let mut rounds = Rounds::default();
    rounds.measure(options, floor, work);
    rounds.figure()
}

/// Times `f`.
pub fn timed(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

fn per_op(time: Duration, ops: u64) -> f64 {
    time.as_secs_f64() * 1e9 / ops as f64
}

pub(crate) fn quantile(values: impl Iterator<Item = f64>, q: f64) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    if sorted.is_empty() {
        return f64::NAN;
    }
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_rounds_does_not_depend_on_the_places() {
        for (rounds, expected) in
            [(1, vec![1]), (3, vec![1, 1, 1]), (8, vec![1; 8]), (11, vec![2, 2, 2, 1, 1, 1, 1, 1])]
        {
            let options = RunOptions { rounds, ..RunOptions::default() };
            let (places, in_each): (Vec<_>, Vec<_>) =
                options.over_places(8).map(|(place, options)| (place, options.rounds)).unzip();
            assert_eq!(in_each, expected);
            assert_eq!(places, (0..expected.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_median_of_the_rounds_is_reported() {
        let options = RunOptions { rounds: 5, turn: Duration::ZERO };
        let figure = interleave(&options, |ops| Duration::from_nanos(ops * 2), |ops| Duration::from_nanos(ops * 3));
        assert_eq!((figure.ns, figure.floor_ns, figure.ratio), (3.0, 2.0, 1.5));
        assert_eq!(quantile([3.0, 1.0, 2.0].into_iter(), 0.5), 2.0);
    }
}

//! How long messages waited for their acknowledgement.

use super::{DrawError, bars::Columns, units};
use crate::report::figures::Figures;

/// Delays that a factor of ten is divided into: bounds that are round numbers.
const BOUNDS: [u64; 3] = [1, 2, 5];

/// A column for each class of delays; `None` where none is known.
pub(super) fn draw(figures: &Figures) -> Result<Option<String>, DrawError> {
    let delays = &figures.delays;
    let (Some(first), Some(last)) = (delays.delays_ns.first(), delays.delays_ns.last()) else { return Ok(None) };
    let bounds = bounds(first.0, last.0);
    let columns = bounds.windows(2).map(|pair| {
        let inside = |delay: u64| (pair[0]..pair[1]).contains(&delay);
        let count =
            delays.delays_ns.iter().filter(|one| inside(one.0)).fold(0, |sum: u64, one| sum.saturating_add(one.1));
        (units::duration(pair[0] as f64), count)
    });
    let of = |share| delays.quantile_ns(share).map(|ns| units::duration(ns as f64)).unwrap_or_default();
    let title = format!("Delay of acknowledgements: half within {}, 99 % within {}", of(0.5), of(0.99));
    let x = "delay: from the time below up to the next";
    Columns { title: &title, x, columns: columns.collect() }.draw().map(Some)
}

/// Round numbers, from the last that isn't above `first` to the first above `last`.
fn bounds(first: u64, last: u64) -> Vec<u64> {
    let mut all = Vec::new();
    let mut ten: u64 = 1;
    loop {
        for bound in BOUNDS.map(|bound| ten.saturating_mul(bound)) {
            if bound <= first {
                all.clear();
            }
            all.push(bound);
            if bound > last || bound == u64::MAX {
                return all;
            }
        }
        ten = ten.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_round_bounds_around_all_delays() {
        assert_eq!(bounds(1, 1), [1, 2]);
        assert_eq!(bounds(60, 1999), [50, 100, 200, 500, 1000, 2000]);
        assert_eq!(bounds(100, 200), [100, 200, 500]);
        assert_eq!(bounds(0, u64::MAX).last(), Some(&u64::MAX));
    }
}

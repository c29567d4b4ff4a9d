//! Acknowledgement delay distribution.

use super::{DrawError, bars::Columns};
use crate::report::figures::Figures;
use crate::units;

/// Class bounds within each power of ten.
const BOUNDS: [u64; 3] = [1, 2, 5];

/// Draws a column per delay class; `None` if none were sampled.
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
    let quantile = |share| delays.quantile_ns(share).map(|ns| units::duration(ns as f64)).unwrap_or_default();
    let title = format!("Delay of acknowledgements: 50 % within {}, 99 % within {}", quantile(0.5), quantile(0.99));
    let x = "delay, lower bound of the class";
    Columns { title: &title, x, columns: columns.collect() }.draw().map(Some)
}

/// Returns ascending class bounds, from the last one not above `first` to the first one above `last`.
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
    fn round_class_bounds_enclose_all_delays() {
        assert_eq!(bounds(1, 1), [1, 2]);
        assert_eq!(bounds(60, 1999), [50, 100, 200, 500, 1000, 2000]);
        assert_eq!(bounds(100, 200), [100, 200, 500]);
        assert_eq!(bounds(0, u64::MAX).last(), Some(&u64::MAX));
    }
}

//! Traffic between pairs of ranks as a matrix of coloured cells; shared by the pictures for jobs and communication
//! patterns.

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::prelude::{Color, DrawingBackend, RGBColor, Rectangle};

/// Run of adjacent cells with one colour in a row: sender, first receiver, end of the receivers (exclusive), colour.
pub(crate) type Strip = (u32, u32, u32, RGBColor);

/// Smallest ratio of largest to least amount with a logarithmic colour scale beginning at the least amount.
const LOG_SCALE_RATIO_MIN: u64 = 2;

/// Amounts sent between pairs of ranks.
#[derive(Debug)]
pub(crate) struct TrafficMatrix {
    pairs: Vec<(u32, u32, u64)>,
    /// Lower end of the colour scale: the least amount, or 0 if all amounts are similar.
    lowest: u64,
    largest: u64,
}

impl TrafficMatrix {
    /// Creates a matrix from ascending (sender, receiver, amount) triples; amounts must be positive.
    pub(crate) fn new(pairs: Vec<(u32, u32, u64)>) -> TrafficMatrix {
        let amounts = || pairs.iter().map(|pair| pair.2);
        let (least, largest) = (amounts().min().unwrap_or(0), amounts().max().unwrap_or(0));
        let lowest = if largest / LOG_SCALE_RATIO_MIN >= least { least } else { 0 };
        TrafficMatrix { pairs, lowest, largest }
    }

    pub(crate) fn pairs(&self) -> &[(u32, u32, u64)] {
        &self.pairs
    }

    /// Lower and upper end of the colour scale; the upper end is the largest amount, or 0 if there is none.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.lowest, self.largest)
    }

    /// Returns an amount's position on the colour scale, from 0 to 1.
    ///
    /// The scale is linear if it begins at 0, else logarithmic.
    pub(crate) fn position(&self, amount: u64) -> f64 {
        let log = |amount: u64| (amount as f64).ln();
        match self.lowest {
            0 => amount as f64 / self.largest.max(1) as f64,
            lowest => (log(amount) - log(lowest)) / (log(self.largest) - log(lowest)),
        }
    }

    /// Merges each row's cells into strips; `colour` takes sender, receiver and position on the scale.
    pub(crate) fn strips(&self, colour: impl Fn(u32, u32, f64) -> RGBColor) -> Vec<Strip> {
        let mut strips: Vec<Strip> = Vec::new();
        for &(from, to, amount) in &self.pairs {
            let colour = colour(from, to, self.position(amount));
            match strips.last_mut() {
                Some((row, _, end, like)) if (*row, *end, *like) == (from, to, colour) => *end += 1,
                _ => strips.push((from, to, to + 1, colour)),
            }
        }
        strips
    }
}

/// Colour scale, from its lowest to its highest colour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColourScale(pub(crate) RGBColor, pub(crate) RGBColor);

impl ColourScale {
    /// Height of the drawn scale in pixels.
    pub(crate) const HEIGHT: i32 = 32 * 5;

    /// Returns the colour for a position from 0 to 1.
    pub(crate) fn at(self, position: f64) -> RGBColor {
        let ColourScale(from, to) = self;
        let mix = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * position).round() as u8;
        RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
    }

    /// Draws the scale as a column `width` pixels wide with its upper left corner at `(left, top)`, lowest colour at
    /// the bottom.
    pub(crate) fn draw<B: DrawingBackend>(
        self,
        area: &DrawingArea<B, Shift>,
        (left, top): (i32, i32),
        width: i32,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        const STEPS: i32 = 32;
        const STEP: i32 = ColourScale::HEIGHT / STEPS;
        for step in 0..STEPS {
            let position = f64::from(step) / f64::from(STEPS - 1);
            let y = top + ColourScale::HEIGHT - (step + 1) * STEP;
            area.draw(&Rectangle::new([(left, y), (left + width, y + STEP)], self.at(position).filled()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: ColourScale = ColourScale(RGBColor(200, 100, 0), RGBColor(0, 50, 250));

    #[test]
    fn adjacent_cells_of_one_colour_are_one_strip() {
        let matrix = TrafficMatrix::new(vec![(0, 1, 5), (0, 2, 5), (0, 3, 50), (2, 0, 5)]);
        let strips = matrix.strips(|_, _, position| SCALE.at(position));
        assert_eq!(strips, [(0, 1, 3, SCALE.0), (0, 3, 4, SCALE.1), (2, 0, 1, SCALE.0)]);
    }

    #[test]
    fn positions_are_logarithmic() {
        let matrix = TrafficMatrix::new(vec![(0, 1, 1), (0, 2, 10), (1, 0, 100)]);
        assert_eq!(
            (matrix.range(), matrix.position(1), matrix.position(10), matrix.position(100)),
            ((1, 100), 0.0, 0.5, 1.0)
        );
        assert_eq!(SCALE.at(0.5), RGBColor(100, 75, 125));
    }

    #[test]
    fn similar_amounts_have_similar_colours() {
        let range_and_least = |least, largest| {
            let matrix = TrafficMatrix::new(vec![(0, 1, least), (1, 0, largest)]);
            (matrix.range(), matrix.position(least), matrix.position(largest))
        };
        assert_eq!(range_and_least(7, 7), ((0, 7), 1.0, 1.0));
        assert_eq!(range_and_least(99, 100), ((0, 100), 0.99, 1.0));
        assert_eq!(range_and_least(6, 11), ((0, 11), 6.0 / 11.0, 1.0));
        assert_eq!(range_and_least(6, 12), ((6, 12), 0.0, 1.0));
        assert_eq!(TrafficMatrix::new(Vec::new()).range(), (0, 0));
    }
}

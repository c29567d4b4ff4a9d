//! Amounts between pairs of ranks as squares of colours: what the pictures of a job and of a pattern have in common.

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::prelude::{Color, DrawingBackend, RGBColor, Rectangle};

/// Neighbouring squares of one row that look alike: sender, first receiver, receiver after the last, colour.
pub(crate) type Strip = (u32, u32, u32, RGBColor);

/// Where the largest amount isn't so many times the least, they are alike: a scale between the two would make much of little.
const TIMES_MIN: u64 = 2;

/// Who sent how much to whom.
#[derive(Debug)]
pub(crate) struct Amounts {
    pairs: Vec<(u32, u32, u64)>,
    /// What the scale begins with: the least amount, or 0 where all are alike.
    foot: u64,
    largest: u64,
}

impl Amounts {
    /// Of these pairs: sender, receiver, amount above 0; ascending.
    pub(crate) fn new(pairs: Vec<(u32, u32, u64)>) -> Amounts {
        let amounts = || pairs.iter().map(|pair| pair.2);
        let (least, largest) = (amounts().min().unwrap_or(0), amounts().max().unwrap_or(0));
        let foot = if largest / TIMES_MIN >= least { least } else { 0 };
        Amounts { pairs, foot, largest }
    }

    pub(crate) fn pairs(&self) -> &[(u32, u32, u64)] {
        &self.pairs
    }

    /// What stands at the foot of the scale and at its head, where the largest amount is; 0 where there is none.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.foot, self.largest)
    }

    /// Where an amount stands between the foot (0) and the head (1). The scale is logarithmic where it begins with the least amount, and
    /// even where it begins with 0.
    pub(crate) fn share(&self, amount: u64) -> f64 {
        let log = |amount: u64| (amount as f64).ln();
        match self.foot {
            0 => amount as f64 / self.largest.max(1) as f64,
            foot => (log(amount) - log(foot)) / (log(self.largest) - log(foot)),
        }
    }

    /// Every row as few strips as possible, each pair coloured by who sends to whom, and by its share.
    pub(crate) fn strips(&self, colour: impl Fn(u32, u32, f64) -> RGBColor) -> Vec<Strip> {
        let mut strips: Vec<Strip> = Vec::new();
        for &(from, to, amount) in &self.pairs {
            let colour = colour(from, to, self.share(amount));
            match strips.last_mut() {
                Some((row, _, end, like)) if (*row, *end, *like) == (from, to, colour) => *end += 1,
                _ => strips.push((from, to, to + 1, colour)),
            }
        }
        strips
    }
}

/// Colours from little to much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale(pub(crate) RGBColor, pub(crate) RGBColor);

impl Scale {
    /// Pixels that its picture is high.
    pub(crate) const HEIGHT: i32 = 32 * 5;

    /// The colour of a share from 0 to 1.
    pub(crate) fn at(self, share: f64) -> RGBColor {
        let Scale(from, to) = self;
        let mix = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8;
        RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
    }

    /// Draws a column of it, `width` pixels wide, with its upper left corner at `(left, top)`: at its foot is the colour of the share 0, at its
    /// head that of 1.
    pub(crate) fn draw<B: DrawingBackend>(
        self,
        area: &DrawingArea<B, Shift>,
        (left, top): (i32, i32),
        width: i32,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        const STEPS: i32 = 32;
        const STEP: i32 = Scale::HEIGHT / STEPS;
        for step in 0..STEPS {
            let share = f64::from(step) / f64::from(STEPS - 1);
            let y = top + Scale::HEIGHT - (step + 1) * STEP;
            area.draw(&Rectangle::new([(left, y), (left + width, y + STEP)], self.at(share).filled()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale(RGBColor(200, 100, 0), RGBColor(0, 50, 250));

    #[test]
    fn neighbours_that_look_alike_are_one_strip() {
        let amounts = Amounts::new(vec![(0, 1, 5), (0, 2, 5), (0, 3, 50), (2, 0, 5)]);
        let strips = amounts.strips(|_, _, share| SCALE.at(share));
        assert_eq!(strips, [(0, 1, 3, SCALE.0), (0, 3, 4, SCALE.1), (2, 0, 1, SCALE.0)]);
    }

    #[test]
    fn a_share_is_that_of_the_logarithms() {
        let amounts = Amounts::new(vec![(0, 1, 1), (0, 2, 10), (1, 0, 100)]);
        assert_eq!(
            (amounts.range(), amounts.share(1), amounts.share(10), amounts.share(100)),
            ((1, 100), 0.0, 0.5, 1.0)
        );
        assert_eq!(SCALE.at(0.5), RGBColor(100, 75, 125));
    }

    #[test]
    fn amounts_that_are_alike_look_alike() {
        let range_and_least = |least, largest| {
            let amounts = Amounts::new(vec![(0, 1, least), (1, 0, largest)]);
            (amounts.range(), amounts.share(least), amounts.share(largest))
        };
        assert_eq!(range_and_least(7, 7), ((0, 7), 1.0, 1.0));
        assert_eq!(range_and_least(99, 100), ((0, 100), 0.99, 1.0));
        assert_eq!(range_and_least(6, 11), ((0, 11), 6.0 / 11.0, 1.0));
        assert_eq!(range_and_least(6, 12), ((6, 12), 0.0, 1.0));
        assert_eq!(Amounts::new(Vec::new()).range(), (0, 0));
    }
}

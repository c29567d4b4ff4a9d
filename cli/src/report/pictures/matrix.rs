//! Traffic matrix: a cell for each communicating pair of ranks.

use counterfoil_profile::Traffic;
use plotters::prelude::{
    BLACK, Color, DrawingBackend, IntoDrawingArea, IntoFont, RGBColor, Rectangle, SVGBackend, ShapeStyle, TextStyle,
    WHITE,
};
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::DrawError;
use crate::matrix::{ColourScale, TrafficMatrix};
use crate::report::figures::Figures;
use crate::units::{Numbers, Unit};

/// Minimum side of the matrix in pixels.
const SIDE: u32 = 460;
/// Margins in pixels.
const LEFT: i32 = 70;
const TOP: i32 = 66;
const RIGHT: i32 = 110;
const BOTTOM: i32 = 24;
/// Maximum number of ranks with labelled cells.
const NUMBERED_MAX: u32 = 8;
/// From lowest to highest amount.
const SCALE: ColourScale = ColourScale(RGBColor(214, 230, 244), RGBColor(8, 48, 107));

struct Matrix<'a> {
    title: &'a str,
    ranks: u32,
    amounts: TrafficMatrix,
    numbers: Numbers,
}

/// Draws each channel's `amount`; `None` if it is 0 for all.
pub(super) fn draw(
    figures: &Figures,
    title: &str,
    unit: Unit,
    amount: fn(Traffic) -> u64,
) -> Result<Option<String>, DrawError> {
    let pairs: Vec<(u32, u32, u64)> =
        figures.channels().map(|(from, to, traffic)| (from, to, amount(traffic))).filter(|pair| pair.2 > 0).collect();
    if pairs.is_empty() {
        return Ok(None);
    }
    Matrix::new(title, figures.ranks(), unit, pairs).draw().map(Some)
}

impl Matrix<'_> {
    fn new(title: &str, ranks: u32, unit: Unit, pairs: Vec<(u32, u32, u64)>) -> Matrix<'_> {
        let numbers = Numbers::of(unit, pairs.iter().map(|pair| pair.2));
        Matrix { title, ranks, amounts: TrafficMatrix::new(pairs), numbers }
    }

    fn draw(&self) -> Result<String, DrawError> {
        let side = self.side() as i32;
        let size = ((LEFT + side + RIGHT) as u32, (TOP + side + BOTTOM) as u32);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let text = |size: i32| TextStyle::from(("sans-serif", size).into_font()).color(&BLACK);
            let at = |horizontal, vertical| Pos::new(horizontal, vertical);
            area.fill(&WHITE)?;
            area.draw_text(self.title, &text(17).pos(at(HPos::Left, VPos::Center)), (LEFT, 16))?;
            for (from, first, end, colour) in self.amounts.strips(|_, _, position| SCALE.at(position)) {
                area.draw(&Rectangle::new([self.corner(first, from), self.corner(end, from + 1)], colour.filled()))?;
            }
            let frame = ShapeStyle::from(&BLACK).stroke_width(1);
            area.draw(&Rectangle::new([self.corner(0, 0), self.corner(self.ranks, self.ranks)], frame))?;
            let half = (self.cell() / 2) as i32;
            let ticks = text(12);
            for rank in (0..self.ranks).step_by(self.ranks.div_ceil(16) as usize) {
                let (x, y) = self.corner(rank, rank);
                let name = rank.to_string();
                area.draw_text(&name, &ticks.pos(at(HPos::Center, VPos::Bottom)), (x + half, TOP - 5))?;
                area.draw_text(&name, &ticks.pos(at(HPos::Right, VPos::Center)), (LEFT - 6, y + half))?;
            }
            area.draw_text("to rank", &text(14).pos(at(HPos::Center, VPos::Center)), (LEFT + side / 2, TOP - 27))?;
            let upright = text(14).transform(FontTransform::Rotate270).pos(at(HPos::Center, VPos::Center));
            area.draw_text("from rank", &upright, (LEFT - 44, TOP + side / 2))?;
            if self.ranks <= NUMBERED_MAX {
                for &(from, to, amount) in self.amounts.pairs() {
                    let (x, y) = self.corner(to, from);
                    let colour = if self.amounts.position(amount) > 0.45 { WHITE } else { BLACK };
                    let style = text(12).color(&colour).pos(at(HPos::Center, VPos::Center));
                    area.draw_text(&self.numbers.text(amount), &style, (x + half, y + half))?;
                }
            }
            self.draw_legend(&area, &text(12).pos(at(HPos::Left, VPos::Center)))?;
            area.present()?;
        }
        Ok(svg)
    }

    /// Draws the colour scale with its lower and upper end.
    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &plotters::drawing::DrawingArea<B, plotters::coord::Shift>,
        label: &TextStyle<'_>,
    ) -> Result<(), DrawError>
    where
        B::ErrorType: 'static,
    {
        let left = LEFT + self.side() as i32 + 16;
        let (lowest, largest) = self.amounts.range();
        SCALE.draw(area, (left, TOP), 16)?;
        area.draw_text(&self.numbers.text(largest), label, (left + 22, TOP + 6))?;
        area.draw_text(&self.numbers.text(lowest), label, (left + 22, TOP + ColourScale::HEIGHT - 6))?;
        Ok(())
    }

    /// Returns a cell's side in pixels.
    fn cell(&self) -> u32 {
        (SIDE / self.ranks.max(1)).max(1)
    }

    fn side(&self) -> u32 {
        self.cell() * self.ranks
    }

    /// Returns a cell's upper left corner; rank 0 is at the upper left.
    fn corner(&self, to: u32, from: u32) -> (i32, i32) {
        (LEFT + (to * self.cell()) as i32, TOP + (from * self.cell()) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(ranks: u32, pairs: Vec<(u32, u32, u64)>) -> String {
        Matrix::new("t", ranks, Unit::Count, pairs).draw().unwrap()
    }

    #[test]
    fn only_small_matrices_have_labelled_cells() {
        let pairs = vec![(0, 1, 12_345), (1, 0, 5)];
        let small = svg(2, pairs.clone());
        assert_eq!(small.matches("12.3k").count(), 2, "in its cell and at the scale: {small}");
        let large = svg(100, pairs);
        assert_eq!(large.matches("12.3k").count(), 1, "{large}");
    }

    #[test]
    fn the_scale_of_similar_amounts_begins_at_zero() {
        let similar = svg(100, vec![(0, 1, 2900), (1, 0, 2901)]);
        assert!(
            similar.contains("\n2901\n") && similar.contains("\n0\n") && !similar.contains("\n2900\n"),
            "{similar}"
        );
        let other = svg(100, vec![(0, 1, 2900), (1, 0, 5800)]);
        assert!(other.contains("\n5800\n") && other.contains("\n2900\n"), "{other}");
    }
}

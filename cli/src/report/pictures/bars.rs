//! Column and bar charts with labelled values.

use plotters::prelude::{
    BLACK, Color, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::DrawError;
use crate::colours::COLOURS;
use crate::units::{Numbers, Unit};

const COLOUR: RGBColor = COLOURS[0];
const WIDTH: i32 = 720;
const MARGIN: i32 = 16;
const TITLE: i32 = 40;

/// Column chart: each column's label and value.
pub(super) struct Columns<'a> {
    pub(super) title: &'a str,
    /// Label of the x axis.
    pub(super) x: &'a str,
    pub(super) columns: Vec<(String, u64)>,
}

impl Columns<'_> {
    pub(super) fn draw(&self) -> Result<String, DrawError> {
        const HEIGHT: i32 = 300;
        const BOTTOM: i32 = HEIGHT - 52;
        /// Upper end of the highest column; its value is printed above.
        const TOP: i32 = TITLE + 18;
        let numbers = Numbers::of(Unit::Count, self.columns.iter().map(|column| column.1));
        let most = self.columns.iter().map(|column| column.1).max().unwrap_or(0).max(1);
        let step = (WIDTH - 2 * MARGIN) as f64 / self.columns.len().max(1) as f64;
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, HEIGHT as u32)).into_drawing_area();
            area.fill(&WHITE)?;
            let text = |size: i32| TextStyle::from(("sans-serif", size).into_font()).color(&BLACK);
            let middle = |vertical| Pos::new(HPos::Center, vertical);
            area.draw_text(self.title, &text(17).pos(middle(VPos::Center)), (WIDTH / 2, TITLE / 2))?;
            // Narrow columns leave room for only some labels.
            let labelled = (56.0 / step).ceil().max(1.0) as usize;
            let width = (step * 0.8).clamp(1.0, 64.0);
            for (index, (label, count)) in self.columns.iter().enumerate() {
                let centre = f64::from(MARGIN) + step * (index as f64 + 0.5);
                let height = (*count as f64 / most as f64 * f64::from(BOTTOM - TOP)).ceil() as i32;
                let [left, right] = [centre - width / 2.0, centre + width / 2.0].map(|x| x.round() as i32);
                let top = BOTTOM - height;
                if *count > 0 {
                    area.draw(&Rectangle::new([(left, top), (right, BOTTOM)], COLOUR.filled()))?;
                    let size = if step < 40.0 { 10 } else { 12 };
                    let style = text(size).pos(middle(VPos::Bottom));
                    area.draw_text(&numbers.text(*count), &style, (centre.round() as i32, top - 3))?;
                }
                if index.is_multiple_of(labelled) {
                    area.draw_text(label, &text(12).pos(middle(VPos::Top)), (centre.round() as i32, BOTTOM + 6))?;
                }
            }
            area.draw(&PathElement::new([(MARGIN, BOTTOM), (WIDTH - MARGIN, BOTTOM)], BLACK.stroke_width(1)))?;
            area.draw_text(self.x, &text(13).pos(middle(VPos::Center)), (WIDTH / 2, HEIGHT - 14))?;
            area.present()?;
        }
        Ok(svg)
    }
}

/// Bar chart: each bar's name, value and label.
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    pub(super) rows: Vec<(String, u64, String)>,
}

impl Bars<'_> {
    /// Draws the chart; `None` without bars.
    pub(super) fn draw(&self) -> Result<Option<String>, DrawError> {
        const ROW: i32 = 24;
        const LEFT: i32 = 170;
        const LABEL: i32 = 170;
        if self.rows.is_empty() {
            return Ok(None);
        }
        let most = self.rows.iter().map(|row| row.1).max().unwrap_or(0).max(1);
        let height = TITLE + ROW * self.rows.len() as i32 + MARGIN;
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
            area.fill(&WHITE)?;
            let text = |size: i32| TextStyle::from(("sans-serif", size).into_font()).color(&BLACK);
            let title = text(17).pos(Pos::new(HPos::Center, VPos::Center));
            area.draw_text(self.title, &title, (WIDTH / 2, TITLE / 2))?;
            for ((name, count, label), row) in self.rows.iter().zip(0..) {
                let top = TITLE + row * ROW;
                let middle = top + ROW / 2;
                let right = LEFT + (*count as f64 / most as f64 * f64::from(WIDTH - LEFT - LABEL)).ceil() as i32;
                area.draw(&Rectangle::new([(LEFT, top + 4), (right, top + ROW - 4)], COLOUR.filled()))?;
                area.draw_text(name, &text(13).pos(Pos::new(HPos::Right, VPos::Center)), (LEFT - 8, middle))?;
                area.draw_text(label, &text(12).pos(Pos::new(HPos::Left, VPos::Center)), (right + 6, middle))?;
            }
            area.present()?;
        }
        Ok(Some(svg))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonzero_columns_and_bars_are_labelled() {
        let columns = vec![("a".to_owned(), 5), ("b".to_owned(), 0), ("c".to_owned(), 1_500_000)];
        let svg = Columns { title: "t", x: "x", columns }.draw().unwrap();
        assert!(svg.contains("\n5\n") && svg.contains("\n1.5M\n") && !svg.contains("\n0\n"), "{svg}");
        let rows = vec![("Bcast".to_owned(), 3, "3 <calls>".to_owned())];
        let svg = Bars { title: "t", rows }.draw().unwrap().unwrap();
        assert!(svg.contains("Bcast") && svg.contains("3 &lt;calls&gt;"), "{svg}");
        assert!(Bars { title: "t", rows: Vec::new() }.draw().unwrap().is_none());
    }
}

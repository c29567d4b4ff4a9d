//! Picture of the ratios: a bar per protocol and transport, with its quartiles.

use std::error::Error;

use plotters::prelude::{
    BLACK, Color, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Row;

const COLOURS: [RGBColor; 2] = [RGBColor(31, 119, 180), RGBColor(214, 96, 20)];
const GRID: RGBColor = RGBColor(205, 205, 205);
/// Pixels.
const WIDTH: i32 = 760;
const LEFT: i32 = 330;
const RIGHT: i32 = 60;
const TOP: i32 = 64;
const BAR: i32 = 18;
const GAP: i32 = 14;
const BOTTOM: i32 = 52;

/// Draws the rows, which are grouped by transport, as SVG.
pub(super) fn draw(title: &str, rows: &[Row]) -> Result<String, Box<dyn Error>> {
    let mut transports: Vec<_> = Vec::new();
    let mut names: Vec<_> = Vec::new();
    for row in rows {
        if !transports.contains(&row.transport) {
            transports.push(row.transport);
        }
        if !names.contains(&row.series.name) {
            names.push(row.series.name);
        }
    }
    let group = BAR * transports.len() as i32 + GAP;
    let height = group * names.len() as i32;
    let most = rows.iter().map(|row| row.quantile(0.75)).fold(1.1, f64::max);
    // The axis begins at 0: a bar's length is its ratio.
    let x = |ratio: f64| LEFT + (f64::from(WIDTH - LEFT - RIGHT) * ratio / most) as i32;
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (WIDTH as u32, (TOP + height + BOTTOM) as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        let text = |size: i32| TextStyle::from(("sans-serif", size).into_font()).color(&BLACK);
        let at = |horizontal| Pos::new(horizontal, VPos::Center);
        area.draw_text(&format!("Cost while nothing fails: {title}"), &text(16).pos(at(HPos::Left)), (12, 22))?;
        for tenth in 0..=(most * 5.0) as i32 {
            let ratio = f64::from(tenth) / 5.0;
            area.draw(&PathElement::new([(x(ratio), TOP), (x(ratio), TOP + height)], GRID.stroke_width(1)))?;
            let below = (x(ratio), TOP + height + 14);
            area.draw_text(&format!("{ratio:.1}"), &text(12).pos(at(HPos::Center)), below)?;
        }
        let middle = (x(most / 2.0), TOP + height + 36);
        area.draw_text("time by that on plain MPI", &text(13).pos(at(HPos::Center)), middle)?;
        for (number, transport) in (0..).zip(&transports) {
            let colour = COLOURS[number as usize % COLOURS.len()];
            let left = LEFT + number * 150;
            area.draw(&Rectangle::new([(left, 40), (left + 14, 52)], colour.filled()))?;
            area.draw_text(transport.name(), &text(12).pos(at(HPos::Left)), (left + 20, 46))?;
        }
        for row in rows {
            let place = |found: Option<usize>| found.unwrap_or_default() as i32;
            let group_number = place(names.iter().position(|name| *name == row.series.name));
            let number = place(transports.iter().position(|transport| *transport == row.transport));
            let top = TOP + GAP / 2 + group_number * group + number * BAR;
            let (low, median, high) = (row.quantile(0.25), row.quantile(0.5), row.quantile(0.75));
            let colour = COLOURS[number as usize % COLOURS.len()];
            area.draw(&Rectangle::new([(x(0.0), top), (x(median), top + BAR - 2)], colour.mix(0.75).filled()))?;
            let middle = top + BAR / 2 - 1;
            area.draw(&PathElement::new([(x(low), middle), (x(high), middle)], BLACK.stroke_width(1)))?;
            let end = (x(high.max(median)) + 6, middle);
            area.draw_text(&format!("{median:.3}"), &text(11).pos(at(HPos::Left)), end)?;
            if number == 0 {
                let name = (LEFT - 8, TOP + group_number * group + group / 2);
                area.draw_text(row.series.name, &text(12).pos(at(HPos::Right)), name)?;
            }
        }
        area.draw(&PathElement::new([(x(1.0), TOP), (x(1.0), TOP + height)], BLACK.stroke_width(1)))?;
        area.present()?;
    }
    Ok(svg)
}

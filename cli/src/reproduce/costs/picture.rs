//! Picture of the ratios: a bar for each mode and group, with its quartiles.

use std::error::Error;

use plotters::prelude::{
    BLACK, Color, IntoDrawingArea, IntoFont, PathElement, Rectangle, SVGBackend, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Row;
use crate::colours::{COLOURS, GRID};

/// Pixels.
const WIDTH: i32 = 760;
const LEFT: i32 = 330;
const RIGHT: i32 = 60;
const TOP: i32 = 64;
const BAR: i32 = 18;
const GAP: i32 = 14;
const BOTTOM: i32 = 52;

/// Draws the rows as SVG.
///
/// Rows with the same name stand together; each group has a colour. `by`: divisor of the times.
pub(super) fn draw(heading: &str, by: &str, rows: &[Row]) -> Result<String, Box<dyn Error>> {
    let mut groups: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !groups.contains(&row.group.as_str()) {
            groups.push(&row.group);
        }
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let bars: Vec<i32> = names.iter().map(|name| rows.iter().filter(|row| row.name == *name).count() as i32).collect();
    let height_of = |bars: i32| BAR * bars + GAP;
    let height: i32 = bars.iter().copied().map(height_of).sum();
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
        area.draw_text(heading, &text(16).pos(at(HPos::Left)), (12, 22))?;
        let step = if most < 3.0 { 0.2 } else { (most / 10.0).ceil() };
        for tick in 0..=(most / step) as i32 {
            let ratio = f64::from(tick) * step;
            area.draw(&PathElement::new([(x(ratio), TOP), (x(ratio), TOP + height)], GRID.stroke_width(1)))?;
            let below = (x(ratio), TOP + height + 14);
            area.draw_text(&format!("{ratio:.1}"), &text(12).pos(at(HPos::Center)), below)?;
        }
        let middle = (x(most / 2.0), TOP + height + 36);
        area.draw_text(&format!("time by {by}"), &text(13).pos(at(HPos::Center)), middle)?;
        for (number, group) in (0..).zip(&groups) {
            let colour = COLOURS[number as usize % COLOURS.len()];
            let left = 12 + number * ((WIDTH - 24) / groups.len().max(4) as i32);
            area.draw(&Rectangle::new([(left, 40), (left + 14, 52)], colour.filled()))?;
            area.draw_text(group, &text(12).pos(at(HPos::Left)), (left + 20, 46))?;
        }
        let mut top = TOP;
        for (name, bars) in names.iter().zip(bars) {
            let label = (LEFT - 8, top + height_of(bars) / 2);
            area.draw_text(name, &text(12).pos(at(HPos::Right)), label)?;
            for (place, row) in (0..).zip(rows.iter().filter(|row| row.name == *name)) {
                let group = groups.iter().position(|group| *group == row.group).unwrap_or_default();
                let top = top + GAP / 2 + place * BAR;
                let (low, median, high) = (row.quantile(0.25), row.quantile(0.5), row.quantile(0.75));
                let colour = COLOURS[group % COLOURS.len()];
                area.draw(&Rectangle::new([(x(0.0), top), (x(median), top + BAR - 2)], colour.mix(0.75).filled()))?;
                let middle = top + BAR / 2 - 1;
                area.draw(&PathElement::new([(x(low), middle), (x(high), middle)], BLACK.stroke_width(1)))?;
                let end = (x(high.max(median)) + 6, middle);
                area.draw_text(&format!("{median:.3}"), &text(11).pos(at(HPos::Left)), end)?;
            }
            top += height_of(bars);
        }
        area.draw(&PathElement::new([(x(1.0), TOP), (x(1.0), TOP + height)], BLACK.stroke_width(1)))?;
        area.present()?;
    }
    Ok(svg)
}

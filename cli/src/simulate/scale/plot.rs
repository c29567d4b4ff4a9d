//! Plot of a recovery line's time against the number of ranks.

use std::error::Error;

use plotters::chart::SeriesLabelPosition;
use plotters::prelude::{
    ChartBuilder, Circle, Color, IntoDrawingArea, IntoFont, IntoLogRange, LineSeries, PathElement, SVGBackend, WHITE,
};

use super::Row;
use super::torus::Arrangement;
use crate::colours::{COLOURS, FAINT, GRID, draw_legend};

/// Draws a line per number of axes on logarithmic scales, as SVG.
///
/// Shows the first available arrangement of stripes, boxes and alternating boxes; the first two roll back most ranks,
/// and so take longest.
pub(super) fn draw(rows: &[Row]) -> Result<String, Box<dyn Error>> {
    let wanted = [Arrangement::Stripes, Arrangement::Boxes, Arrangement::Alternating];
    let drawn = wanted.into_iter().find(|&one| rows.iter().any(|row| row.arrangement == one));
    let rows: Vec<&Row> = rows.iter().filter(|row| Some(row.arrangement) == drawn).collect();
    let (least, most) = axis_range(rows.iter().map(|row| f64::from(row.ranks)));
    let (fastest, slowest) = axis_range(rows.iter().map(|row| row.line_s_median * 1_000.0));
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (720, 460)).into_drawing_area();
        area.fill(&WHITE)?;
        let title = format!("Recovery line on one core, {} clusters", rows.first().map_or(0, |row| row.clusters));
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18).into_font())
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(66)
            .build_cartesian_2d((least..most).log_scale(), (fastest..slowest).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("ranks")
            .y_desc("milliseconds")
            .x_label_formatter(&|ranks| format!("{ranks:.0}"))
            .y_label_formatter(&|milliseconds| format!("{milliseconds}"))
            .light_line_style(FAINT)
            .bold_line_style(GRID)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        for (axes, colour) in (1..).zip(COLOURS) {
            let mut points: Vec<(f64, f64)> = rows
                .iter()
                .filter(|row| row.axes == axes)
                .map(|row| (f64::from(row.ranks), row.line_s_median * 1_000.0))
                .collect();
            if points.is_empty() {
                continue;
            }
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
                .label(format!("{} neighbours ({axes}-D)", 2 * axes))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
            chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        draw_legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
        area.present()?;
    }
    Ok(svg)
}

/// Returns a non-empty range around all positive values, for a logarithmic scale.
fn axis_range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|value| *value > 0.0);
    let (least, most) = positive.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    if least > most { (0.1, 1.0) } else { (least / 1.5, most * 1.5) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::scale::{measure, torus::Torus};

    #[test]
    fn a_plot_has_a_line_per_number_of_axes() {
        let rows: Vec<Row> = [(64, 1), (128, 1), (64, 2)]
            .map(|(ranks, axes)| measure(Torus::new(ranks, axes, 4).unwrap(), Arrangement::Stripes, false).unwrap())
            .into();
        let svg = draw(&rows).unwrap();
        assert!(svg.contains("2 neighbours (1-D)") && svg.contains("4 neighbours (2-D)"), "{svg}");
        assert!(!svg.contains("3-D") && svg.trim_end().ends_with("</svg>"));
    }
}

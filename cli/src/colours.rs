//! Picture colours and their legend.

use plotters::chart::{ChartContext, SeriesLabelPosition};
use plotters::coord::CoordTranslate;
use plotters::prelude::{BLACK, DrawingAreaErrorKind, DrawingBackend, RGBColor, WHITE};

/// Line and bar colours, in order of use.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 20),
    RGBColor(44, 140, 60),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(200, 60, 140),
    RGBColor(110, 110, 110),
    RGBColor(150, 145, 20),
];
/// Grid line colour.
pub(crate) const GRID: RGBColor = RGBColor(205, 205, 205);
/// Minor grid line colour.
pub(crate) const FAINT: RGBColor = RGBColor(238, 238, 238);

/// Draws a framed legend with the names of a chart's lines.
pub(crate) fn draw_legend<'a, B: DrawingBackend + 'a, T: CoordTranslate>(
    chart: &mut ChartContext<'a, B, T>,
    at: SeriesLabelPosition,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    chart
        .configure_series_labels()
        .position(at)
        .background_style(WHITE)
        .border_style(BLACK)
        .label_font(("sans-serif", 13))
        .draw()
}

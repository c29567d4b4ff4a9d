//! Colours of the pictures.

use plotters::prelude::RGBColor;

/// Colours of lines and bars, in order of use.
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
/// Colour of grid lines.
pub(crate) const GRID: RGBColor = RGBColor(205, 205, 205);
/// Colour of minor grid lines.
pub(crate) const FAINT: RGBColor = RGBColor(238, 238, 238);

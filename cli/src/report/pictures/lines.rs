//! Line charts over time.

use counterfoil_profile::Sample;
use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, PathElement, RGBColor, SVGBackend, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::DrawError;
use crate::colours::{COLOURS, FAINT, GRID};
use crate::report::figures::Figures;
use crate::units::{Unit, tick};

/// Number of points in a line combining several ranks.
const POINTS: u64 = 400;
/// Maximum number of distinguishable lines.
const RANKS_MAX: usize = COLOURS.len();

/// A sample's value.
type Metric = fn(&Sample) -> u64;

struct Line {
    name: String,
    colour: RGBColor,
    /// Time in milliseconds, and value.
    points: Vec<(u64, u64)>,
}

impl Line {
    fn new(name: &str, colour: RGBColor, points: Vec<(u64, u64)>) -> Line {
        Line { name: name.to_owned(), colour, points }
    }
}

struct Chart {
    title: String,
    lines: Vec<Line>,
    unit: Unit,
}

/// Draws the bytes logged, in memory and spilled, over all ranks.
pub(super) fn growth(figures: &Figures) -> Result<Option<String>, DrawError> {
    let of: [(&str, Metric); 3] = [
        ("logged", |sample| sample.bytes),
        ("in memory", |sample| sample.used_bytes),
        ("spilled", |sample| sample.spilled_bytes),
    ];
    let Some(times) = times(figures) else { return Ok(None) };
    let lines = of.into_iter().zip(COLOURS).map(|((name, metric), colour)| {
        let sum = |at_ms| values_at(figures, at_ms, metric).fold(0, u64::saturating_add);
        Line::new(name, colour, times.iter().map(|&at_ms| (at_ms, sum(at_ms))).collect())
    });
    Chart { title: "Log of all ranks".to_owned(), lines: lines.collect(), unit: Unit::Bytes }.draw()
}

/// Draws the maximum and the mean over the ranks.
pub(super) fn unacknowledged(figures: &Figures) -> Result<Option<String>, DrawError> {
    let Some(times) = times(figures) else { return Ok(None) };
    let values = |at_ms| values_at(figures, at_ms, |sample| sample.unacknowledged);
    let ranks = figures.profiles().count().max(1) as u64;
    let maximum = times.iter().map(|&at_ms| (at_ms, values(at_ms).max().unwrap_or(0))).collect();
    let mean = times.iter().map(|&at_ms| (at_ms, values(at_ms).fold(0, u64::saturating_add) / ranks)).collect();
    let lines = vec![Line::new("maximum", COLOURS[1], maximum), Line::new("mean", COLOURS[0], mean)];
    Chart { title: "Unacknowledged records per rank".to_owned(), lines, unit: Unit::Count }.draw()
}

/// Draws a line per rank; if there are too many, for those with the highest peaks.
pub(super) fn memory(figures: &Figures) -> Result<Option<String>, DrawError> {
    let points = |sample: &Sample| (sample.at_ms, sample.used_bytes);
    let mut ranks: Vec<(u32, Vec<(u64, u64)>)> = figures
        .profiles()
        .map(|(rank, profile)| (rank, profile.series.samples().iter().map(points).collect()))
        .collect();
    let all = ranks.len();
    let mut title = "Log memory per rank".to_owned();
    if all > RANKS_MAX {
        ranks.sort_by_key(|(rank, points)| (std::cmp::Reverse(points.iter().map(|point| point.1).max()), *rank));
        ranks.truncate(RANKS_MAX);
        ranks.sort_by_key(|(rank, _)| *rank);
        title = format!("Log memory of the {RANKS_MAX} of {all} ranks with the highest peaks");
    }
    let line = |((rank, points), colour)| Line::new(&format!("rank {rank}"), colour, points);
    let lines = ranks.into_iter().zip(COLOURS).map(line).collect();
    Chart { title, lines, unit: Unit::Bytes }.draw()
}

/// Returns sampling times from the job's start to its end; `None` without samples.
fn times(figures: &Figures) -> Option<Vec<u64>> {
    let last = figures.profiles().filter_map(|(_, profile)| profile.series.samples().last());
    let end = last.map(|sample| sample.at_ms).max()?;
    let points = end.clamp(1, POINTS);
    let at = |point| u64::try_from(u128::from(end) * u128::from(point) / u128::from(points)).unwrap_or(end);
    Some((0..=points).map(at).collect())
}

/// Returns each rank's value at a time.
fn values_at(figures: &Figures, at_ms: u64, metric: Metric) -> impl Iterator<Item = u64> {
    figures.profiles().map(move |(_, profile)| metric(&profile.series.at(at_ms)))
}

impl Chart {
    /// Draws the chart; `None` without points.
    fn draw(&self) -> Result<Option<String>, DrawError> {
        const SIZE: (u32, u32) = (720, 320);
        /// Width of the legend on the right.
        const NAMES: u32 = 120;
        const Y_LABELS: usize = 6;
        const NS_PER_MS: f64 = 1e6;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let Some(end) = points().map(|point| point.0).max() else { return Ok(None) };
        let most = points().map(|point| point.1).max().unwrap_or(0).max(1);
        let (unit, unit_name) = self.unit.of_axis(most as f64);
        // Counts in single units have no fractional ticks.
        let y_labels = if unit == 1.0 { most.saturating_add(1).min(Y_LABELS as u64) as usize } else { Y_LABELS };
        let top = most as f64 / unit * 1.06;
        let (time, time_name) = Unit::Duration.of_axis(end.max(1) as f64 * NS_PER_MS);
        let seen = |at_ms: f64| at_ms * NS_PER_MS / time;
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", 17).into_font())
                .margin(12)
                .margin_right(NAMES)
                .x_label_area_size(28)
                .y_label_area_size(76)
                .build_cartesian_2d(0.0..seen(end.max(1) as f64), 0.0..top)?;
            chart
                .configure_mesh()
                .x_labels(8)
                .y_labels(y_labels)
                .x_label_formatter(&|value| tick(*value, time_name))
                .y_label_formatter(&|value| tick(*value, unit_name))
                .light_line_style(FAINT)
                .bold_line_style(GRID)
                .label_style(("sans-serif", 12))
                .draw()?;
            for line in &self.lines {
                let points = steps(&line.points).into_iter().map(|(at, value)| (seen(at), value / unit));
                chart.draw_series(LineSeries::new(points, line.colour.stroke_width(2)))?;
            }
            let name = TextStyle::from(("sans-serif", 12).into_font()).pos(Pos::new(HPos::Left, VPos::Center));
            for (line, row) in self.lines.iter().zip(0..) {
                let (x, y) = ((SIZE.0 - NAMES) as i32 + 10, 52 + 18 * row);
                area.draw(&PathElement::new([(x, y), (x + 18, y)], line.colour.stroke_width(2)))?;
                area.draw_text(&line.name, &name, (x + 24, y))?;
            }
            area.present()?;
        }
        Ok(Some(svg))
    }
}

/// Inserts points to hold each value until the next point.
fn steps(points: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let mut line = Vec::with_capacity(points.len() * 2);
    let mut before = None;
    for &(at, value) in points {
        if let Some(before) = before.filter(|before| *before != value) {
            line.push((at as f64, before as f64));
        }
        line.push((at as f64, value as f64));
        before = Some(value);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next_point() {
        assert_eq!(steps(&[(0, 1), (5, 1), (9, 3)]), [(0.0, 1.0), (5.0, 1.0), (9.0, 1.0), (9.0, 3.0)]);
    }

    /// Returns the texts of a one-line chart: ticks and legend.
    fn texts(unit: Unit, points: &[(u64, u64)]) -> Vec<String> {
        let lines = vec![Line::new("n", COLOURS[0], points.to_vec())];
        let svg = Chart { title: "t".to_owned(), lines, unit }.draw().unwrap().unwrap();
        let svg = roxmltree::Document::parse(&svg).unwrap();
        svg.descendants().filter(|node| node.is_text()).map(|node| node.text().unwrap().trim().to_owned()).collect()
    }

    #[test]
    fn an_axis_has_one_unit_integral_counts_and_a_bare_zero() {
        let texts = |unit, points: &[(u64, u64)]| {
            let mut texts = texts(unit, points);
            texts.retain(|text| text.starts_with(|letter: char| letter.is_ascii_digit()));
            texts.sort();
            texts
        };
        let milliseconds = ["0.5 ms", "1 ms", "1.5 ms", "2 ms", "2.5 ms", "3 ms"];
        for (most, ticks) in [(0, &["0", "1"][..]), (1, &["0", "1"]), (3, &["0", "1", "2", "3"])] {
            let mut right = [ticks, &["0"], &milliseconds].concat();
            right.sort_unstable();
            assert_eq!(texts(Unit::Count, &[(0, 0), (3, most)]), right);
        }
        assert_eq!(
            texts(Unit::Bytes, &[(0, 0), (1500, 3 << 30)]),
            ["0", "0", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 GiB", "1 s", "1.2 s", "1.4 s", "2 GiB", "3 GiB"]
        );
        assert!(Chart { title: String::new(), lines: Vec::new(), unit: Unit::Bytes }.draw().unwrap().is_none());
    }
}

//! How something went over time.

use counterfoil_profile::Sample;
use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, PathElement, RGBColor, SVGBackend, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{COLOURS, DrawError, FAINT, GRID, units};
use crate::report::figures::Figures;

/// Points of a line that is put together from several ranks.
const POINTS: u64 = 400;
/// Lines that can be told apart.
const RANKS_MAX: usize = COLOURS.len();

/// Something that a sample says.
type What = fn(&Sample) -> u64;

struct Line {
    name: String,
    colour: RGBColor,
    /// Milliseconds, and how much it was.
    points: Vec<(u64, u64)>,
}

impl Line {
    fn new(name: &str, colour: RGBColor, points: Vec<(u64, u64)>) -> Line {
        Line { name: name.to_owned(), colour, points }
    }
}

/// In what amounts are counted.
#[derive(Clone, Copy)]
enum Amount {
    Bytes,
    Records,
}

struct Chart {
    title: String,
    lines: Vec<Line>,
    amount: Amount,
}

/// What was logged, what of it was in memory, and what was moved to disk, of all ranks together.
pub(super) fn growth(figures: &Figures) -> Result<Option<String>, DrawError> {
    let of: [(&str, What); 3] = [
        ("logged", |sample| sample.bytes),
        ("in memory", |sample| sample.used_bytes),
        ("moved to disk", |sample| sample.spilled_bytes),
    ];
    let Some(times) = times(figures) else { return Ok(None) };
    let lines = of.into_iter().zip(COLOURS).map(|((name, what), colour)| {
        let sum = |at_ms| at(figures, at_ms, what).fold(0, u64::saturating_add);
        Line::new(name, colour, times.iter().map(|&at_ms| (at_ms, sum(at_ms))).collect())
    });
    Chart { title: "Log of all ranks".to_owned(), lines: lines.collect(), amount: Amount::Bytes }.draw()
}

/// The rank that had most, and all ranks on average.
pub(super) fn unacknowledged(figures: &Figures) -> Result<Option<String>, DrawError> {
    let Some(times) = times(figures) else { return Ok(None) };
    let now = |at_ms| at(figures, at_ms, |sample| sample.unacknowledged);
    let ranks = figures.profiles().count().max(1) as u64;
    let most = times.iter().map(|&at_ms| (at_ms, now(at_ms).max().unwrap_or(0))).collect();
    let mean = times.iter().map(|&at_ms| (at_ms, now(at_ms).fold(0, u64::saturating_add) / ranks)).collect();
    let lines = vec![Line::new("most", COLOURS[1], most), Line::new("mean", COLOURS[0], mean)];
    Chart { title: "Unacknowledged records of a rank".to_owned(), lines, amount: Amount::Records }.draw()
}

/// A line for each rank; where there are too many, for those that reach highest.
pub(super) fn memory(figures: &Figures) -> Result<Option<String>, DrawError> {
    let points = |sample: &Sample| (sample.at_ms, sample.used_bytes);
    let mut ranks: Vec<(u32, Vec<(u64, u64)>)> = figures
        .profiles()
        .map(|(rank, profile)| (rank, profile.series.samples().iter().map(points).collect()))
        .collect();
    let all = ranks.len();
    let mut title = "Memory of the log of each rank".to_owned();
    if all > RANKS_MAX {
        ranks.sort_by_key(|(rank, points)| (std::cmp::Reverse(points.iter().map(|point| point.1).max()), *rank));
        ranks.truncate(RANKS_MAX);
        ranks.sort_by_key(|(rank, _)| *rank);
        title = format!("Memory of the log, the {RANKS_MAX} ranks of {all} that reached highest");
    }
    let line = |((rank, points), colour)| Line::new(&format!("rank {rank}"), colour, points);
    let lines = ranks.into_iter().zip(COLOURS).map(line).collect();
    Chart { title, lines, amount: Amount::Bytes }.draw()
}

/// Moments from the beginning to the end; `None` where no rank has samples.
fn times(figures: &Figures) -> Option<Vec<u64>> {
    let last = figures.profiles().filter_map(|(_, profile)| profile.series.samples().last());
    let end = last.map(|sample| sample.at_ms).max()?;
    let points = end.clamp(1, POINTS);
    let at = |point| u64::try_from(u128::from(end) * u128::from(point) / u128::from(points)).unwrap_or(end);
    Some((0..=points).map(at).collect())
}

/// How it was with each rank at a moment.
fn at(figures: &Figures, at_ms: u64, what: What) -> impl Iterator<Item = u64> {
    figures.profiles().map(move |(_, profile)| what(&profile.series.at(at_ms)))
}

impl Chart {
    /// `None` where no line has a point.
    fn draw(&self) -> Result<Option<String>, DrawError> {
        const SIZE: (u32, u32) = (720, 320);
        /// Of the names beside the lines.
        const NAMES: u32 = 120;
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let Some(end) = points().map(|point| point.0).max() else { return Ok(None) };
        let most = points().map(|point| point.1).max().unwrap_or(0).max(1);
        let (unit, unit_name) = self.unit(most);
        let (end, top) = (end.max(1) as f64, most as f64 / unit * 1.06);
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
                .build_cartesian_2d(0.0..end, 0.0..top)?;
            chart
                .configure_mesh()
                .x_labels(8)
                .y_labels(6)
                .x_label_formatter(&|ms| if *ms == 0.0 { "0".to_owned() } else { units::duration(ms * 1e6) })
                // What is left of a sum of tenths.
                .y_label_formatter(&|value| format!("{}{unit_name}", (value * 1e6).round() / 1e6))
                .light_line_style(FAINT)
                .bold_line_style(GRID)
                .label_style(("sans-serif", 12))
                .draw()?;
            for line in &self.lines {
                let points = steps(&line.points).into_iter().map(|(at, value)| (at, value / unit));
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

    /// What the scale counts in, so that round numbers of it stand there.
    fn unit(&self, most: u64) -> (f64, &'static str) {
        const UNITS: [&str; 7] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
        match self.amount {
            Amount::Records => (1.0, ""),
            Amount::Bytes => {
                let power = most.max(1).ilog2() / 10;
                ((1_u64 << (10 * power)) as f64, UNITS.get(power as usize).copied().unwrap_or_default())
            }
        }
    }
}

/// Between two points it was as the first says.
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
    fn a_line_stays_where_it_is_until_the_next_point() {
        assert_eq!(steps(&[(0, 1), (5, 1), (9, 3)]), [(0.0, 1.0), (5.0, 1.0), (9.0, 1.0), (9.0, 3.0)]);
    }

    #[test]
    fn bytes_are_counted_in_what_makes_short_numbers() {
        let chart = Chart { title: String::new(), lines: Vec::new(), amount: Amount::Bytes };
        assert_eq!(
            [1023, 1 << 10, (1 << 20) - 1, u64::MAX].map(|most| chart.unit(most).1),
            [" B", " KiB", " KiB", " EiB"]
        );
        assert!(chart.draw().unwrap().is_none());
    }
}

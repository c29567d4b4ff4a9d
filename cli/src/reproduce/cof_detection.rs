//! Figure 2 of Bland 2013: time until each rank has heard of another's loss.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use counterfoil_protocols::on_failure::RULE;
use counterfoil_runtime::local::Interrupts;
use plotters::chart::SeriesLabelPosition;
use plotters::prelude::{ChartBuilder, Color, IntoDrawingArea, IntoFont, LineSeries, PathElement, SVGBackend, WHITE};
use serde_json::{Value, json};

use super::cof::factorize;
use super::costs::progress_bar;
use crate::colours::{COLOURS, FAINT, GRID, draw_legend};
use crate::mpi_build::Build;
use crate::sample::{quantile, sorted};
use crate::table::Table;
use crate::{Failure, print, write_file};

/// Kill a low, a middle and a high rank of a factorization, and measure the time until each other rank has heard of it,
/// as Figure 2 of Bland et al. 2013.
///
/// Times run from the launcher's notice of the death until a rank begins to save its state. They include work the rank
/// has to finish before its next call. On local processes, or over MPI.
#[derive(Debug, Args)]
pub(crate) struct CofDetectionArguments {
    /// Number of ranks
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(3..=256))]
    ranks: u32,
    /// Runs per killed rank
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Run as ranks of an MPI job. MPI is as in `counterfoil demo --mpi`
    #[arg(long, value_name = "MPI", num_args = 0..=1, require_equals = true)]
    mpi: Option<Option<String>>,
    /// Draw the times into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print a JSON array with an object per killed rank
    #[arg(long)]
    pub(super) json: bool,
}

/// Rows and columns of a matrix block.
const BLOCK: u32 = 16;
/// Blocks per rank.
const BLOCKS: u32 = 4;

/// Times until one rank's survivors have heard of its loss.
struct Victim {
    position: &'static str,
    rank: u32,
    /// For each rank: milliseconds, ascending, one for each run; empty for the victim.
    times: Vec<Vec<f64>>,
}

impl Victim {
    /// Returns each survivor's median.
    fn medians(&self) -> impl Iterator<Item = (u32, f64)> {
        let heard = (0..).zip(&self.times).filter(|(_, times)| !times.is_empty());
        heard.map(|(rank, times)| (rank, quantile(times, 0.5)))
    }

    /// Returns this quantile over all times.
    fn quantile(&self, share: f64) -> f64 {
        quantile(&sorted(self.times.concat()), share)
    }

    fn to_json(&self) -> Value {
        let ranks: Vec<Value> =
            self.medians().map(|(rank, median)| json!({ "rank": rank, "median_ms": median })).collect();
        json!({
            "position": self.position,
            "killed": self.rank,
            "ms": { "low": self.quantile(0.05), "median": self.quantile(0.5), "high": self.quantile(0.95) },
            "ranks": ranks,
        })
    }
}

pub(crate) fn run(arguments: &CofDetectionArguments) -> Result<ExitCode, Failure> {
    let ranks = arguments.ranks;
    let interrupts = Interrupts::install().map_err(Failure::failed)?;
    let build = arguments.mpi.as_ref().map(|requested| Build::find(requested.as_deref()));
    let build = build.transpose().map_err(Failure::failed)?;
    let size = ranks * BLOCKS * BLOCK;
    let name = format!("qr:1x{ranks}:rotating:{size}x{size}:{BLOCK}");
    let mut victims = [("low", 0), ("middle", ranks / 2), ("high", ranks - 1)].map(|(position, rank)| Victim {
        position,
        rank,
        times: vec![Vec::new(); ranks as usize],
    });
    let bar = progress_bar(arguments.json, "kill", 3 * u64::from(arguments.rounds), "runs");
    for _ in 0..arguments.rounds {
        for victim in &mut victims {
            let job = factorize(&name, ranks, (RULE, Some(victim.rank)), build.as_ref(), (&interrupts, &mut ()))?;
            for heard in job.restarts.iter().map(|restart| &restart.heard) {
                let survivors = victim.times.iter_mut().zip(heard);
                survivors.for_each(|(times, heard)| times.extend(heard.as_ref().map(milliseconds)));
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    victims.iter_mut().flat_map(|victim| &mut victim.times).for_each(|times| times.sort_by(f64::total_cmp));
    let place = build.map_or("local processes".to_owned(), |build| build.version);
    if let Some(file) = &arguments.svg {
        let picture = draw(&format!("A rank is lost: {ranks} ranks, {place}"), &victims).map_err(Failure::failed)?;
        write_file(file, &picture)?;
    }
    if arguments.json {
        print(&Value::Array(victims.iter().map(Victim::to_json).collect()).to_string())?;
    } else {
        print(&text(&place, arguments, &victims))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn milliseconds(time: &Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// Formats a line for each victim.
fn text(place: &str, arguments: &CofDetectionArguments, victims: &[Victim]) -> String {
    let mut table = Table::new(&["<killed", "rank", "median", "5 % to 95 %", "earliest rank", "latest rank"]);
    for victim in victims {
        let by_median = |one: &(u32, f64), other: &(u32, f64)| one.1.total_cmp(&other.1);
        let rank =
            |found: Option<(u32, f64)>| found.map_or_else(String::new, |(rank, ms)| format!("{rank}: {ms:.2} ms"));
        table.row([
            victim.position.to_owned(),
            victim.rank.to_string(),
            format!("{:.2} ms", victim.quantile(0.5)),
            format!("{:.2} to {:.2} ms", victim.quantile(0.05), victim.quantile(0.95)),
            rank(victim.medians().min_by(by_median)),
            rank(victim.medians().max_by(by_median)),
        ]);
    }
    let CofDetectionArguments { ranks, rounds, .. } = arguments;
    format!(
        "Figure 2: {ranks} ranks, {place}\n\n{table}\n\nTime from the launcher's notice of the death until a rank \
         begins to save, {rounds} runs for each killed rank. The paper: milliseconds, on 16 nodes."
    )
}

/// Draws each survivor's median, a line for each victim.
fn draw(heading: &str, victims: &[Victim]) -> Result<String, Box<dyn std::error::Error>> {
    let points = victims.iter().flat_map(Victim::medians);
    let (last, slowest) = points.fold((0, 0.0_f64), |(last, slowest), (rank, ms)| (last.max(rank), slowest.max(ms)));
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (720, 420)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(heading, ("sans-serif", 18).into_font())
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0..last, 0.0..1.1 * slowest)?;
        chart
            .configure_mesh()
            .x_desc("rank that hears of it")
            .y_desc("milliseconds")
            .light_line_style(FAINT)
            .bold_line_style(GRID)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 14))
            .draw()?;
        for (victim, colour) in victims.iter().zip(COLOURS) {
            chart
                .draw_series(LineSeries::new(victim.medians(), colour.stroke_width(2)).point_size(3))?
                .label(format!("{} (rank {})", victim.position, victim.rank))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        draw_legend(&mut chart, SeriesLabelPosition::UpperRight)?;
        area.present()?;
    }
    Ok(svg)
}

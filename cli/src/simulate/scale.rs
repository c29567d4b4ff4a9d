//! Cost and extent of recovery on a torus, by number of ranks.

mod machines;
mod plot;
mod torus;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use counterfoil_protocols::send_deterministic::{RankTable, recovery_line};
use counterfoil_simulator::measure::{Outline, Plan, RolledBack};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{Failure, print, write_file};
use torus::{Arrangement, Torus};

/// Measure the recovery line, and the messages logged and ranks rolled back, for up to millions of ranks on a torus.
///
/// Computes the ranks' tables from the checkpoint plan, because state machines take some 16 KB each: 16 GB for a
/// million ranks, and many minutes. Runs on one thread; a recovery line's time is the median over the failures.
#[derive(Debug, Args)]
pub(crate) struct ScaleArguments {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [1_000, 3_000, 10_000, 30_000, 100_000],
          value_parser = clap::value_parser!(u32).range(2..=4_000_000))]
    ranks: Vec<u32>,
    /// Number of torus axes
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [1, 2, 3],
          value_parser = clap::value_parser!(u32).range(1..=3))]
    axes: Vec<u32>,
    /// Number of clusters
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    clusters: u32,
    /// Only these arrangements of clusters and epochs
    #[arg(long, value_enum, value_delimiter = ',')]
    arrangements: Vec<Arrangement>,
    /// Also run a state machine per rank, compare the results, and report its memory (valid for the first torus only,
    /// since later ones reuse its memory). At most 1,000,000 ranks, which take 16 GB and some minutes
    #[arg(long)]
    state_machines: bool,
    /// Plot the recovery line's time against the number of ranks into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print a JSON array with one object per torus and arrangement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Results for one torus and arrangement.
#[derive(Clone, Debug, Serialize)]
struct Row {
    axes: u32,
    ranks: u32,
    extents: [u32; 3],
    arrangement: Arrangement,
    clusters: u32,
    logged_pct: f64,
    rolled_back_pct: f64,
    /// Number of simulated failures: one per cluster.
    failures: u64,
    /// Number of (channel, epoch) entries in the tables.
    entries: u64,
    table_bytes_per_rank: f64,
    line_s_median: f64,
    line_s_max: f64,
    /// Resident memory of real state machines, if run.
    state_machine_bytes_per_rank: Option<f64>,
    /// True if real state machines log and roll back the same.
    state_machines_agree: Option<bool>,
}

/// Maximum number of ranks with state machines: at 16 KB each, 16 GB.
const STATE_MACHINES_MAX: u32 = 1_000_000;

pub(crate) fn run(arguments: &ScaleArguments) -> Result<ExitCode, Failure> {
    let ScaleArguments { ranks, axes, clusters, arrangements, state_machines, svg, json } = arguments;
    if let Some(ranks) = ranks.iter().find(|&&ranks| *state_machines && ranks > STATE_MACHINES_MAX) {
        let message =
            format!("--state-machines supports at most {STATE_MACHINES_MAX} ranks, not {ranks}: each takes 16 KB");
        return Err(Failure::usage(message));
    }
    let mut cases = Vec::new();
    for &axes in axes {
        for &ranks in ranks {
            let torus = Torus::new(ranks, axes, *clusters).ok_or_else(|| {
                Failure::usage(format!("{ranks} ranks can't be divided into {clusters} clusters along {axes} axes"))
            })?;
            let all = Arrangement::of(axes).into_iter();
            cases.extend(
                all.filter(|one| arrangements.is_empty() || arrangements.contains(one)).map(|one| (torus, one)),
            );
        }
    }
    if cases.is_empty() {
        return Err(Failure::usage("no torus has these arrangements: along one axis, boxes equal stripes"));
    }
    // Drawn on stderr, and only on a terminal.
    let progress = ProgressBar::new(cases.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}") {
        progress.set_style(style);
    }
    let mut rows = Vec::new();
    for (torus, arrangement) in cases {
        progress.set_message(format!("{} ranks, {} axes", torus.ranks(), torus.axes));
        rows.push(measure(torus, arrangement, *state_machines)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    if let Some(file) = svg {
        let text = plot::draw(&rows).map_err(Failure::failed)?;
        write_file(file, &text)?;
    }
    if *json {
        print(&serde_json::to_string(&rows).map_err(Failure::failed)?)?;
    } else {
        print(&report(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(torus: Torus, arrangement: Arrangement, state_machines: bool) -> Result<Row, Failure> {
    // The state before the second round's last checkpoints: every cluster has taken at least one.
    let plan = Plan { rounds: 2, iterations: 8 };
    let clusters = torus.clusters(arrangement).map_err(Failure::failed)?;
    let pattern = torus.pattern().map_err(Failure::failed)?;
    let outline = Outline::new(&clusters, plan, plan.rounds * plan.iterations, |rank| {
        let mut peers: Vec<u32> = pattern.sends(rank).into_iter().map(|message| message.destination).collect();
        peers.sort_unstable();
        peers.chunk_by(|one, next| one == next).map(|same| (same[0], same.len() as u64)).collect()
    })
    .map_err(Failure::failed)?;

    // The first rank of each cluster fails, as a sample.
    let mut seen = vec![false; clusters.count()];
    let first = |&rank: &u32| {
        let cluster = clusters.cluster_of(counterfoil::Rank(rank)).map_or(0, |cluster| cluster as usize);
        !std::mem::replace(&mut seen[cluster], true)
    };
    let failing: Vec<u32> = (0..torus.ranks()).filter(first).collect();
    let machines = state_machines.then(|| machines::run(&pattern, &clusters, plan, &outline, &failing));
    let machines = machines.transpose().map_err(Failure::failed)?;
    let mut rolled_back = RolledBack::default();
    let mut times = Vec::new();
    for &rank in &failing {
        let mut failed = vec![None; outline.tables.len()];
        failed[rank as usize] = outline.tables.get(rank as usize).map(|table| table.epoch);
        let begin = Instant::now();
        let line = recovery_line(&outline.tables, &failed);
        times.push(begin.elapsed().as_secs_f64());
        rolled_back.count(&line);
    }
    times.sort_by(f64::total_cmp);
    let at = |index: usize| times.get(index).copied().unwrap_or(0.0);
    Ok(Row {
        axes: torus.axes,
        ranks: torus.ranks(),
        extents: torus.extents,
        arrangement,
        clusters: u32::try_from(clusters.count()).unwrap_or(u32::MAX),
        logged_pct: outline.logged.percent(),
        rolled_back_pct: rolled_back.percent(),
        failures: rolled_back.failures,
        entries: outline
            .tables
            .iter()
            .flat_map(|table| &table.channels)
            .map(|channel| channel.epochs.len() as u64)
            .sum(),
        table_bytes_per_rank: bytes(&outline.tables) as f64 / f64::from(torus.ranks()),
        line_s_median: at(times.len() / 2),
        line_s_max: at(times.len().saturating_sub(1)),
        state_machine_bytes_per_rank: machines.and_then(|machines| machines.bytes_per_rank),
        state_machines_agree: machines.map(|machines| machines.agree),
    })
}

/// Returns the bytes in the tables, without the allocator's overhead.
fn bytes(tables: &[RankTable]) -> u64 {
    let channels = |table: &RankTable| {
        let epochs: usize = table.channels.iter().map(|channel| size_of_val(channel.epochs.as_slice())).sum();
        size_of_val(table.channels.as_slice()) + size_of_val(table.peers.as_slice()) + epochs
    };
    tables.iter().map(|table| (size_of::<RankTable>() + channels(table)) as u64).sum()
}

fn report(rows: &[Row]) -> String {
    let mut text =
        "Neighbours on a torus: messages logged, ranks rolled back, and time of a recovery line\n\n".to_owned();
    text += "axes     ranks          extents  clusters           logged %  rolled back %  bytes/rank   line median       max\n";
    for row in rows {
        let [x, y, z] = row.extents;
        // Writing to a string doesn't fail.
        let _ = writeln!(
            text,
            "{:4}  {:8}  {:>15}  {:4} {:12}  {:8.3}  {:13.2}  {:10.0}  {:10.4} s  {:6.4} s",
            row.axes,
            row.ranks,
            format!("{x} x {y} x {z}"),
            row.clusters,
            row.arrangement.name(),
            row.logged_pct,
            row.rolled_back_pct,
            row.table_bytes_per_rank,
            row.line_s_median,
            row.line_s_max,
        );
        if let Some(agree) = row.state_machines_agree {
            let weight = row.state_machine_bytes_per_rank.map_or("unknown".to_owned(), |bytes| format!("{bytes:.0}"));
            let result = if agree { "same results" } else { "DIFFERENT RESULTS" };
            let _ = writeln!(text, "      state machines: {weight} bytes/rank, {result}");
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_machines_agree_with_the_outline() {
        for (axes, arrangement) in [(1, Arrangement::Stripes), (2, Arrangement::Alternating), (3, Arrangement::Boxes)] {
            let row = measure(Torus::new(1_000, axes, 8).unwrap(), arrangement, true).unwrap();
            assert_eq!(row.state_machines_agree, Some(true), "{row:?}");
            assert!(report(&[row]).contains("same results"));
        }
    }

    #[test]
    fn boxes_roll_back_fewer_ranks_than_stripes_and_alternating_epochs_the_fewest() {
        let torus = Torus::new(4_096, 3, 64).unwrap();
        let row = |arrangement| measure(torus, arrangement, false).unwrap();
        let [stripes, boxes, alternating] =
            [Arrangement::Stripes, Arrangement::Boxes, Arrangement::Alternating].map(row);
        // (q + 1) / 2q along an axis with q clusters. Stripes are quarters with 16 planes; boxes are four along each
        // axis; alternating boxes are a box itself and, for half the boxes, six neighbours.
        assert!((stripes.rolled_back_pct - 100.0 * 17.0 / 32.0 * 5.0 / 8.0).abs() < 1e-9, "{stripes:?}");
        assert!((boxes.rolled_back_pct - 100.0 * (5.0_f64 / 8.0).powi(3)).abs() < 1e-9, "{boxes:?}");
        assert!((alternating.rolled_back_pct - 100.0 * 4.0 / 64.0).abs() < 1e-9, "{alternating:?}");
        // In each of the six directions, a quarter of the ranks in a 4 x 4 x 4 box send across its border, half of
        // these upwards.
        assert!((boxes.logged_pct - 12.5).abs() < 1e-9 && (alternating.logged_pct - 12.5).abs() < 1e-9, "{boxes:?}");
        assert_eq!((stripes.failures, stripes.extents), (64, [16, 16, 16]));
        assert!(report(&[stripes]).contains("16 x 16 x 16"));
    }
}

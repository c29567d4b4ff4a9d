//! Table I of Guermouche 2011: %log and %rl of five kernels, from state machines of the send-deterministic protocol.

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use counterfoil_protocols::cluster::Clusters;
use counterfoil_simulator::measure::{Measured, Plan, coloured, measure};
use counterfoil_workloads::patterns::{Cell, Kernel};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::plural::count;
use crate::{Failure, print};

/// Measure the messages logged and ranks rolled back, compared with Table I of Guermouche et al. 2011.
///
/// Each cell runs a state machine of the send-deterministic protocol per rank, in memory: they send, receive and
/// acknowledge a kernel's messages and take checkpoints cluster by cluster. After each iteration, the recovery line is
/// computed for every rank's failure. docs/book/src/explanation/patterns.md describes the patterns and their
/// differences from the paper's.
#[derive(Debug, Args)]
pub(crate) struct Table1Arguments {
    /// Only these kernels: mg, lu, ft, cg, bt
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    kernels: Vec<Kernel>,
    /// Only these numbers of ranks: 64, 128, 256
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = size)]
    ranks: Vec<u32>,
    /// Assignment of epochs to clusters
    #[arg(long, value_enum, default_value = "ascending")]
    epochs: Epochs,
    /// Number of checkpoints per cluster; failures are evaluated from the second round on, or throughout if there is
    /// only one
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Iterations per checkpoint round
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,
    /// Print a JSON array with one object per cell
    #[arg(long)]
    pub(crate) json: bool,
}

/// Order of the clusters' epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Epochs {
    /// Ascending with the ranks, as in the paper
    Ascending,
    /// By a cluster colouring: communicating clusters have different colours, so a failure affects few of them
    Coloured,
}

/// Parses a number of ranks in the table.
fn size(text: &str) -> Result<u32, String> {
    let ranks = text.parse().ok().filter(|ranks| Cell::all().any(|cell| cell.ranks == *ranks));
    ranks.ok_or_else(|| "the table has 64, 128 and 256 ranks".to_owned())
}

pub(crate) fn run(arguments: &Table1Arguments) -> Result<ExitCode, Failure> {
    let Table1Arguments { kernels, ranks, epochs, rounds, iterations, json } = arguments;
    let wanted = |cell: &Cell| {
        (kernels.is_empty() || kernels.contains(&cell.kernel)) && (ranks.is_empty() || ranks.contains(&cell.ranks))
    };
    let cells: Vec<Cell> = Cell::all().filter(wanted).collect();
    let plan = Plan { rounds: *rounds, iterations: *iterations };

    // Drawn on stderr, and only on a terminal.
    let progress = ProgressBar::new(1_000 * cells.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {elapsed}") {
        progress.set_style(style);
    }
    let mut measured = Vec::new();
    for (done, cell) in (0..).zip(cells) {
        progress.set_message(format!("{}, {} ranks, {} clusters", cell.kernel, cell.ranks, cell.clusters));
        measured.push((
            cell,
            measure_cell(&cell, *epochs, plan, |share| progress.set_position(1_000 * done + (1_000.0 * share) as u64))?,
        ));
    }
    progress.finish_and_clear();

    if *json {
        print(&Value::Array(measured.iter().map(|(cell, measured)| row(cell, measured)).collect()).to_string())?;
    } else {
        print(&report(&measured, plan))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure_cell(cell: &Cell, epochs: Epochs, plan: Plan, progress: impl FnMut(f64)) -> Result<Measured, Failure> {
    let pattern = cell.pattern().map_err(Failure::failed)?;
    let clusters = Clusters::blocks(pattern.ranks(), cell.ranks_in_cluster()).map_err(Failure::failed)?;
    let iteration = pattern.iteration().map_err(Failure::failed)?;
    let clusters = match epochs {
        Epochs::Ascending => clusters,
        Epochs::Coloured => coloured(&clusters, &iteration).map_err(Failure::failed)?,
    };
    measure(&iteration, &clusters, plan, progress).map_err(Failure::failed)
}

fn row(cell: &Cell, measured: &Measured) -> Value {
    json!({
        "kernel": cell.kernel.to_string(),
        "ranks": cell.ranks,
        "ranks_run": cell.kernel.ranks_within(cell.ranks),
        "clusters": cell.clusters,
        "logged_pct": measured.logged.percent(),
        "paper_logged_pct": cell.logged_percent,
        "rolled_back_pct": measured.rolled_back.percent(),
        "paper_rolled_back_pct": cell.rolled_back_percent,
        "messages": measured.logged.messages,
        "messages_logged": measured.logged.logged,
        "acks_explicit": measured.logged.explicit_acks,
        "failures": measured.rolled_back.failures,
    })
}

/// Formats a line per cell, and the largest differences from the paper.
fn report(measured: &[(Cell, Measured)], plan: Plan) -> String {
    let mut text = format!(
        "Table I of Guermouche et al. 2011, from the state machines: {}, {} of each cluster\n\n",
        count((plan.rounds * plan.iterations).into(), "iteration", "iterations"),
        count(plan.rounds.into(), "checkpoint", "checkpoints"),
    );
    text += "                          % of messages logged        % of ranks rolled back\n";
    text += "kernel  ranks  clusters     here   paper    diff        here   paper    diff\n";
    let mut largest = [0.0_f64; 2];
    for (cell, measured) in measured {
        let (logged, back) = (measured.logged.percent(), measured.rolled_back.percent());
        let differences = [logged - cell.logged_percent, back - cell.rolled_back_percent];
        for (largest, difference) in largest.iter_mut().zip(differences) {
            *largest = largest.max(difference.abs());
        }
        // Writing to a string doesn't fail.
        let _ = writeln!(
            text,
            "{:6}  {:5}  {:8}   {logged:6.2}  {:6.2}  {:+6.2}      {back:6.2}  {:6.2}  {:+6.2}",
            cell.kernel.to_string(),
            cell.ranks,
            cell.clusters,
            cell.logged_percent,
            differences[0],
            cell.rolled_back_percent,
            differences[1],
        );
    }
    let [logged, back] = largest;
    let _ =
        write!(text, "\nLargest difference from the paper: {logged:.2} points of messages, {back:.2} points of ranks.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_both_percentages_next_to_the_papers() {
        let cell = Cell::all().find(|cell| (cell.kernel, cell.ranks, cell.clusters) == (Kernel::Cg, 64, 4)).unwrap();
        let plan = Plan { rounds: 2, iterations: 1 };
        let mut seen = 0.0;
        let measured = measure_cell(&cell, Epochs::Ascending, plan, |share| seen = share).unwrap();
        let row = row(&cell, &measured);
        assert!((row["logged_pct"].as_f64().unwrap() - 3.75).abs() < 0.01, "{row}");
        assert_eq!((row["paper_logged_pct"].as_f64(), row["rolled_back_pct"].as_f64()), (Some(3.8), Some(62.5)));
        assert_eq!((row["failures"].as_u64(), seen), (Some(64), 1.0));
        let text = report(&[(cell, measured)], plan);
        assert!(
            text.contains("CG         64         4     3.75    3.80   -0.05       62.50   62.50   +0.00"),
            "{text}"
        );
    }

    #[test]
    fn numbers_of_ranks_outside_the_table_are_refused() {
        assert_eq!(size("128"), Ok(128));
        assert!(size("100").is_err() && size("x").is_err());
    }
}

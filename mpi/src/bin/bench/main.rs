//! What a message of an unmodified program costs when the library logs it.
//!
//! Two ranks play ping-pong, or another pattern, under `mpirun -n 2` with the library loaded. What a program calls (`MPI_Send`, `MPI_Recv`), which the
//! library logs, and the MPI's own names for it (`PMPI_Send`, `PMPI_Recv`), which it doesn't see, take turns inside this one job,
//! batch by batch: separate jobs differ by more than the effect. Naked batches against naked ones are the control.
//! `docs/performance.md` has the figures.
// Its only product is what it prints.
#![expect(clippy::print_stdout)]

mod measure;
mod pattern;
mod ways;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use counterfoil_mpi::Comm;
use counterfoil_mpi::ping_pong::{self, Report};

use measure::{MeasureError, Plan, Row};
use pattern::Pattern;
use ways::Way;

/// Measure what the library under an MPI program costs, inside one job of two ranks.
#[derive(Debug, Parser)]
#[command(name = "counterfoil-mpi-bench")]
struct Arguments {
    /// Bytes of a message; repeatable [default: 8 B to 4 MiB]
    #[arg(long = "size", value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=64 << 20))]
    sizes: Vec<u32>,
    /// Pairs of batches for each figure, and as many for its control
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Microseconds of a naked batch, at least
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_us: u32,
    /// Tags that are used one after the other: each is a stream
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    tags: u32,
    /// How messages go; repeatable [default: ping-pong]
    #[arg(long = "pattern")]
    patterns: Vec<Pattern>,
    /// What to measure against the naked calls; repeatable [default: logged]
    #[arg(long = "way")]
    ways: Vec<Way>,
    /// What to call the way of the bytes in the report
    #[arg(long, default_value = "default")]
    transport: String,
    /// Measure also where no library stands between
    #[arg(long)]
    bare: bool,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 240)]
    time_limit: u64,
    /// Print a JSON object in place of a table
    #[arg(long)]
    json: bool,
}

const SIZES: [u32; 10] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Trips of a batch at least.
const TRIPS_MIN: u64 = 4;

#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Mpi(#[from] counterfoil_mpi::MpiError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("the report can't be written: {0}")]
    Json(#[from] serde_json::Error),
}

const NAME: &str = "counterfoil-mpi-bench";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.bare && !ways::is_interposed() {
        eprintln!("{NAME}: no library stands between this program and its MPI: LD_PRELOAD has to name it (or --bare)");
        return ExitCode::FAILURE;
    }
    let limit = Duration::from_secs(arguments.time_limit);
    ping_pong::run(NAME, limit, |_, world, rank| measure_all(&arguments, world, rank))
}

fn measure_all(arguments: &Arguments, world: &Comm, rank: u32) -> Result<(), BenchError> {
    let plan = Plan {
        rounds: arguments.rounds,
        batch: Duration::from_micros(arguments.batch_us.into()),
        trips_min: TRIPS_MIN,
        tags: arguments.tags,
    };
    let sizes = if arguments.sizes.is_empty() { &SIZES[..] } else { &arguments.sizes };
    let ways = if arguments.ways.is_empty() { &[Way::Logged][..] } else { &arguments.ways };
    let patterns = if arguments.patterns.is_empty() { &[Pattern::PingPong][..] } else { &arguments.patterns };
    let mut rows = Vec::new();
    for pattern in patterns {
        for size in sizes {
            for way in ways {
                rows.push(measure::run(world, rank, &plan, *pattern, *size as usize, *way)?);
            }
        }
    }
    if rank == 0 {
        let report = Report::new(&arguments.transport, arguments.rounds, arguments.tags, rows)?;
        println!("{}", if arguments.json { report.json()? } else { table(&report) });
    }
    Ok(())
}

fn table(report: &Report<'_, Row>) -> String {
    let head = format!(
        "{:<9} {:>8}  {:<9} {:>10} {:>10} {:>6} {:>6} {:>6}  {:>7}",
        "pattern", "bytes", "way", "native ns", "ns", "p25", "ratio", "p75", "control"
    );
    report.table(&head, |row| {
        format!(
            "{:<9} {:>8}  {:<9} {:>10.1} {:>10.1} {:>6.3} {:>6.3} {:>6.3}  {:>7.3}",
            row.pattern,
            row.size,
            row.way,
            row.native_ns,
            row.logged_ns,
            row.ratio_p25,
            row.ratio,
            row.ratio_p75,
            row.control
        )
    })
}

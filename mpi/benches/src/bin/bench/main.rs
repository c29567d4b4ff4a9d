//! Cost of logging an unmodified program's messages.
//!
//! Two ranks run ping-pong, or another pattern, under `mpirun -n 2` with the interposition library loaded. Calls by the
//! program's names (`MPI_Send`, `MPI_Recv`), logged by the library, alternate with calls by the profiling names
//! (`PMPI_Send`, `PMPI_Recv`), bypassing it, batch by batch inside this one job: separate jobs differ by more than the
//! effect. Native batches paired with native ones are the control. See `docs/lab/mpi-cost.md` for the figures.
// The program's only product is its output.
#![expect(clippy::print_stdout)]

mod measure;
mod pattern;
mod ways;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use counterfoil_mpi_benches::ping_pong::{self, Report};
use counterfoil_mpi_core::Comm;

use measure::{MeasureError, Plan, Row};
use pattern::Pattern;
use ways::Way;

/// Measure the cost of the library under an MPI program, inside one job of two ranks.
#[derive(Debug, Parser)]
#[command(name = "counterfoil-mpi-bench")]
struct Arguments {
    /// Message size in bytes; repeatable [default: 8 B to 4 MiB]
    #[arg(long = "size", value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=64 << 20))]
    sizes: Vec<u32>,
    /// Pairs of batches for each figure, and as many for its control
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Least duration of a native batch, in microseconds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_us: u32,
    /// Number of tags to use in turn: each is a stream
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    tags: u32,
    /// Message pattern; repeatable [default: ping-pong]
    #[arg(long = "pattern")]
    patterns: Vec<Pattern>,
    /// Variant to measure against the native calls; repeatable [default: logged]
    #[arg(long = "way")]
    ways: Vec<Way>,
    /// Name of the transport in the report
    #[arg(long, default_value = "default")]
    transport: String,
    /// Run even if no library is loaded
    #[arg(long)]
    bare: bool,
    /// Give up after this many seconds
    #[arg(long, default_value_t = 240)]
    time_limit: u64,
    /// Print a JSON object instead of a table
    #[arg(long)]
    json: bool,
}

const SIZES: [u32; 10] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Minimum number of trips in a batch.
const TRIPS_MIN: u64 = 4;

#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Mpi(#[from] counterfoil_mpi_core::MpiError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("cannot encode the report: {0}")]
    Json(#[from] serde_json::Error),
}

const NAME: &str = "counterfoil-mpi-bench";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.bare && !ways::is_interposed() {
        eprintln!(
            "{NAME}: no library is loaded between this program and its MPI: name it in LD_PRELOAD (or pass --bare)"
        );
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

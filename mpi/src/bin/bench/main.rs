//! What a message of an unmodified program costs when the library logs it.
//!
//! Two ranks play ping-pong, or another pattern, under `mpirun -n 2` with the library loaded. What a program calls (`MPI_Send`, `MPI_Recv`), which the
//! library logs, and the MPI's own names for it (`PMPI_Send`, `PMPI_Recv`), which it doesn't see, take turns inside this one job,
//! batch by batch: separate jobs differ by more than the effect. Naked batches against naked ones are the control.
//! `docs/performance.md` has the figures.
// Its only product is what it prints.
#![allow(clippy::print_stdout)]

mod measure;
mod ways;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use counterfoil_mpi::{Threads, Universe};
use serde::Serialize;

use measure::{MeasureError, Plan, Row};
use ways::{Pattern, Way};

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

/// What is printed.
#[derive(Debug, Serialize)]
struct Report<'a> {
    mpi: String,
    transport: &'a str,
    rounds: u32,
    tags: u32,
    rows: Vec<Row>,
}

#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error("no library stands between this program and its MPI: LD_PRELOAD has to name it (or --bare)")]
    Bare,
    #[error("the benchmark takes two ranks, not {0}")]
    Ranks(u32),
    #[error(transparent)]
    Mpi(#[from] counterfoil_mpi::MpiError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("the report can't be written: {0}")]
    Json(#[from] serde_json::Error),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let limit = Duration::from_secs(arguments.time_limit);
    // Nobody is left spinning for ever, whatever happens to the other rank.
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("counterfoil-mpi-bench: not done after {limit:?}");
        std::process::abort();
    });
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("counterfoil-mpi-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    if !arguments.bare && !ways::is_interposed() {
        return Err(BenchError::Bare);
    }
    let universe = Universe::init(Threads::Single)?;
    let world = universe.world();
    let (rank, ranks) = (world.rank()?, world.size()?);
    if ranks != 2 {
        return Err(BenchError::Ranks(ranks));
    }
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
                rows.push(measure::run(&world, rank, &plan, *pattern, *size as usize, *way)?);
            }
        }
    }
    if rank != 0 {
        return Ok(());
    }
    let mpi = Universe::library_version()?;
    let mpi = mpi.split([',', '\0']).next().unwrap_or_default().to_owned();
    let report = Report { mpi, transport: &arguments.transport, rounds: arguments.rounds, tags: arguments.tags, rows };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print_table(&report);
    }
    Ok(())
}

fn print_table(report: &Report<'_>) {
    println!("{}, {}, {} rounds, {} tags", report.mpi, report.transport, report.rounds, report.tags);
    println!(
        "{:<9} {:>8}  {:<9} {:>10} {:>10} {:>6} {:>6} {:>6}  {:>7}",
        "pattern", "bytes", "way", "native ns", "ns", "p25", "ratio", "p75", "control"
    );
    for row in &report.rows {
        println!(
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
        );
    }
}

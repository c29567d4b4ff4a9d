//! Cost of logging an MPI message and of telling the receiver its number.
//!
//! Two ranks run ping-pong under `mpirun -n 2`. Every way of sending is measured against the native calls inside this one job,
//! batch by batch in turn: separate jobs differ by more than the effect. `native` against itself is the control.
//! `docs/piggyback.md` has the figures and the decision.
// The program's only product is its output.
#![expect(clippy::print_stdout)]

mod kind;
mod logged;
mod measure;
mod ways;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use counterfoil_mpi::{Comm, Universe};
use counterfoil_mpi_benches::ping_pong::{self, Report};

use kind::Kind;
use measure::{Plan, Row};

/// Measure ways to send logged messages, inside one job of two ranks.
#[derive(Debug, Parser)]
#[command(name = "counterfoil-mpi-spike")]
struct Arguments {
    /// Message size in bytes; repeatable [default: 8, 64, 256, 1 KiB, 4 KiB, 16 KiB, 64 KiB, 256 KiB, 1 MiB]
    #[arg(long = "size", value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=64 << 20))]
    sizes: Vec<u32>,
    /// Pairs of batches for each way: one of the way, one of the native calls
    #[arg(long, default_value_t = 201, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Duration of a native batch, in milliseconds
    #[arg(long, default_value_t = 1.0)]
    batch_ms: f64,
    /// Number of tags to use in turn: each is a stream
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    tags: u32,
    /// Ways whose names begin with this; repeatable [default: all]
    #[arg(long = "way", value_name = "NAME")]
    ways: Vec<String>,
    /// Name of the transport in the report
    #[arg(long, default_value = "default")]
    transport: String,
    /// Private directory for the process-crash-safe log [default: those ways are left out]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Give up after this many seconds
    #[arg(long, default_value_t = 600)]
    time_limit: u64,
    /// Print a JSON object instead of a table
    #[arg(long)]
    json: bool,
}

const SIZES: [u32; 9] = [8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let limit = Duration::from_secs(arguments.time_limit);
    ping_pong::run("counterfoil-mpi-spike", limit, |universe, world, rank| {
        measure_all(&arguments, universe, world, rank)
    })
}

fn measure_all(
    arguments: &Arguments,
    universe: &Rc<Universe>,
    world: &Comm,
    rank: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let sizes = if arguments.sizes.is_empty() { SIZES.to_vec() } else { arguments.sizes.clone() };
    let plan = Plan {
        rounds: arguments.rounds,
        tags: u64::from(arguments.tags),
        batch: Duration::from_secs_f64(arguments.batch_ms.clamp(0.01, 1e4) / 1e3),
    };
    let wanted: Vec<Kind> = Kind::every(arguments.dir.as_deref())
        .filter(|kind| {
            arguments.ways.is_empty() || arguments.ways.iter().any(|way| kind.name().starts_with(way.as_str()))
        })
        .collect();
    let mut rows = Vec::new();
    for size in sizes.into_iter().map(|size| size as usize) {
        for kind in &wanted {
            // One at a time: as in a real program, the process has one log, which stays in the cache.
            let mut way = kind.build(universe, size)?;
            rows.push(measure::run(world, rank, &plan, size, (kind.name(), way.as_mut()))?);
        }
        if rank == 0 {
            eprintln!("{size} bytes: done");
        }
    }
    if rank == 0 {
        let report = Report::new(&arguments.transport, arguments.rounds, arguments.tags, rows)?;
        println!("{}", if arguments.json { report.json()? } else { table(&report) });
    }
    Ok(())
}

fn table(report: &Report<'_, Row>) -> String {
    let head =
        format!("{:>8}  {:<22} {:>10} {:>7} {:>7} {:>7} {:>7}", "bytes", "way", "ns", "p25", "ratio", "p75", "floor");
    report.table(&head, |row| {
        format!(
            "{:>8}  {:<22} {:>10.1} {:>7.3} {:>7.3} {:>7.3} {:>7.3}",
            row.size, row.way, row.ns, row.ratio_p25, row.ratio, row.ratio_p75, row.floor_ratio
        )
    })
}

//! One process of `counterfoil demo --mpi`, which starts it with `mpirun`: a rank of a logged workload over MPI, or a spare.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use counterfoil_mpi::{Threads, Universe, job};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Run one process of a job over MPI (started by `counterfoil demo --mpi`).
#[derive(Debug, Parser)]
#[command(name = "counterfoil-mpi-demo", version)]
struct Arguments {
    /// Number of ranks; further processes are spares
    #[arg(long)]
    ranks: u32,
    /// The job's directory
    #[arg(long)]
    job: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // `counterfoil demo --mpi` has reported an invalid value.
    let wanted = std::env::var("COUNTERFOIL_LOG").ok().and_then(|wanted| wanted.parse().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
    let universe = match Universe::init(Threads::Funneled) {
        Ok(universe) => universe,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    match job::run(&universe, &arguments.job, arguments.ranks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let rank = universe.world().rank().map_or_else(|_| "?".to_owned(), |rank| rank.to_string());
            eprintln!("error: process {rank} of MPI_COMM_WORLD: {error}");
            // The other ranks would wait for this one for ever.
            universe.world().abort(1);
            ExitCode::FAILURE
        }
    }
}

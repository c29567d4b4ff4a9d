//! One rank of `counterfoil demo --mpi`, which starts it with `mpirun`: a logged workload over MPI, without failures.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use counterfoil_mpi::{Threads, Universe, job};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Run one rank of a job over MPI (started by `counterfoil demo --mpi`).
#[derive(Debug, Parser)]
#[command(name = "counterfoil-mpi-demo", version)]
struct Arguments {
    /// The job's directory, with the job description
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
    let world = universe.world();
    match job::run(&world, &arguments.job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: rank {}: {error}", world.rank().map_or_else(|_| "?".to_owned(), |rank| rank.to_string()));
            // The other ranks would wait for this one for ever.
            world.abort(1);
            ExitCode::FAILURE
        }
    }
}

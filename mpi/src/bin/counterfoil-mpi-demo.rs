//! One process of `counterfoil demo --mpi` or `counterfoil reproduce`, which start it with `mpirun`.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use clap::{Parser, Subcommand};
use counterfoil_mpi::{Threads, Universe, costs, job};
use serde_json::json;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Run one process of a job over MPI (started by `counterfoil`).
#[derive(Debug, Parser)]
#[command(name = "counterfoil-mpi-demo", version = counterfoil_workloads::BUILD)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A rank of a logged workload, or a spare
    Job {
        /// Number of ranks; further processes are spares
        #[arg(long)]
        ranks: u32,
        /// The job's directory
        #[arg(long)]
        job: PathBuf,
    },
    /// A rank of programs on plain MPI and under each rule in turn. Rank 0 prints a JSON object for each round, and one
    /// with the times
    Costs {
        /// Measurement plan, as JSON
        plan: String,
    },
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
    match run(&universe, arguments.command) {
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

fn run(universe: &Rc<Universe>, command: Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Job { ranks, job } => Ok(job::run(universe, &job, ranks)?),
        Command::Costs { plan } => {
            let is_first = universe.world().rank()? == 0;
            let say = |line: serde_json::Value| {
                if is_first {
                    // Unread progress, or a lost result.
                    let _ = writeln!(std::io::stdout(), "{line}");
                }
            };
            let measured =
                costs::measure(universe, &serde_json::from_str(&plan)?, |round| say(json!({"round": round})))?;
            say(json!({"measured": measured}));
            Ok(())
        }
    }
}

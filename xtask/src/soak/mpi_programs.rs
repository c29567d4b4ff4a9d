//! `cargo xtask soak mpi-programs`: runs random MPI programs with and without the library under them, and compares what
//! they receive.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::mpi::{Choice, Toolkit};
use crate::workspace::{TaskError, Workspace, command_line};

/// The test that runs them; `cargo xtask test` runs a few.
const TEST: &str = "random_programs_behave_the_same_with_and_without_the_library";

/// Options of `cargo xtask soak mpi-programs`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Number of programs
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    programs: u32,
    /// Seed of the programs [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Go on with this program of the seed, a multiple of 50
    #[arg(long, default_value_t = 0)]
    first: u32,
}

/// Runs the programs. Returns `true` if none differed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    if options.first >= options.programs {
        println!("no program to run: --first {} of {} programs", options.first, options.programs);
        return Ok(false);
    }
    let toolkit = Toolkit::find_or_install_any(workspace, &options.choice)?;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = options.seed.unwrap_or_else(now);
    println!("{} programs over {}, seed {seed}", options.programs, toolkit.mpi);
    let arguments =
        ["test", "--quiet", "--package", "counterfoil-mpi-preload", "--test", "programs", TEST, "--", "--nocapture"];
    let mut command = toolkit.cargo(workspace, arguments);
    command.env("COUNTERFOIL_PROGRAMS", options.programs.to_string());
    command.env("COUNTERFOIL_PROGRAMS_SEED", seed.to_string());
    command.env("COUNTERFOIL_PROGRAMS_FIRST", options.first.to_string());
    let program = command_line(&command);
    let status = command.status().map_err(|source| TaskError::Start { program, source })?;
    println!("{}", if status.success() { "no program differed" } else { "a program differed: see above" });
    Ok(status.success())
}

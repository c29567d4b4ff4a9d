//! `cargo xtask soak mpi-programs`: runs random MPI programs with and without the logging or the recovery library, and
//! compares the messages received.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::mpi::{BUILT, Choice, Toolkit};
use crate::workspace::{TaskError, Workspace, command_line, run_checked};

/// Tests that run the programs, each with its crate and its binary; `cargo xtask test` runs a few programs.
const LOGGED: [&str; 3] =
    ["counterfoil-mpi-preload", "programs", "random_programs_behave_the_same_with_and_without_the_library"];
const RECOVERED: [&str; 3] =
    ["counterfoil-mpi-recover", "recover", "random_programs_do_the_same_when_ranks_are_killed"];

/// Options for `cargo xtask soak mpi-programs`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Number of programs
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    programs: u32,
    /// Seed for the programs [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Go on with this program of the seed, a multiple of 50
    #[arg(long, default_value_t = 0)]
    first: u32,
    /// Under the library that recovers, without failures and with kills
    #[arg(long)]
    recover: bool,
    /// Kills of each 50 programs, up to 8 in a run
    #[arg(long, default_value_t = 1, requires = "recover")]
    kills: u32,
}

/// Runs the programs.
///
/// Returns `true` if none differed.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    if options.first >= options.programs {
        println!("no program to run: --first {} of {} programs", options.first, options.programs);
        return Ok(false);
    }
    let toolkit = Toolkit::find_or_install_any(workspace, &options.choice)?;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = options.seed.unwrap_or_else(now);
    println!("{} programs over {}, seed {seed}", options.programs, toolkit.mpi);
    let [package, binary, test] = if options.recover { RECOVERED } else { LOGGED };
    let arguments = ["test", "--quiet", "--package", package, "--test", binary, test, "--", "--nocapture"];
    let mut command = toolkit.cargo(workspace, arguments);
    command.env("COUNTERFOIL_PROGRAMS", options.programs.to_string());
    command.env("COUNTERFOIL_PROGRAMS_SEED", seed.to_string());
    command.env("COUNTERFOIL_PROGRAMS_FIRST", options.first.to_string());
    command.env("COUNTERFOIL_PROGRAMS_KILLS", options.kills.to_string());
    if options.recover {
        // Other libraries are left out, since not every MPI has them.
        run_checked(
            &mut toolkit.cargo(workspace, ["build", "--quiet", "--profile", "test", "--lib", "--package", package]),
        )?;
        command.env(BUILT, toolkit.built());
    }
    let program = command_line(&command);
    let status = command.status().map_err(|source| TaskError::Start { program, source })?;
    println!("{}", if status.success() { "no program differed" } else { "a program differed: see above" });
    Ok(status.success())
}

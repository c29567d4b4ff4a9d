//! The project's own tasks: `cargo xtask check`, `test`, `soak`, `bench`, `mpi`, `preload`, `install`, `book`.
//!
//! Each task is a module; this file only reads the command line.
#![forbid(unsafe_code)]
// A task's only product is its printed output.
#![expect(clippy::print_stdout)]

mod bench;
mod book;
mod check;
mod install;
mod mpi;
mod soak;
mod suite;
mod table;
mod test;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use workspace::{TaskError, Workspace};

/// Tasks of the Counterfoil workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check format and lints
    Check,
    /// Run every check required for a change; the last line is `N passed, N failed`
    Test(test::Options),
    /// Run something many times with random parameters, and check every run
    #[command(subcommand)]
    Soak(Soak),
    /// Run the benchmarks, and print their tables
    Bench(bench::Options),
    /// Find or install an MPI, and build the programs of mpi/, which need one
    Mpi(mpi::Options),
    /// Build the log engine's C interface, and install it with files for pkg-config and CMake
    Install(install::Options),
    /// Build the library that logs unmodified MPI programs, for an MPI that is found or installed
    Preload(mpi::preload::Options),
    /// Check the documentation's links, and build the book
    Book(book::Options),
}

#[derive(Debug, Subcommand)]
enum Soak {
    /// `counterfoil demo` with random kills, workloads, rank counts, checkpoints and tiers
    Demo(soak::Options),
    /// The same over MPI: dead ranks are replaced by spare processes, or the whole job is started again
    Mpi(soak::OverMpi),
    /// Random MPI programs, with and without the library that logs unmodified programs, or that recovers them
    MpiPrograms(soak::mpi_programs::Options),
    /// A folder's MPI programs, with and without the library: their output, exit status and logs
    Programs(soak::programs::Options),
    /// Kill ranks of unmodified MPI programs under `counterfoil run --recover`, at all kinds of moments
    Recover(soak::recover::Options),
    /// Simulated disks with a power cut at every operation, compared with a model
    Crash(soak::crash::Options),
    /// The log-core tests under Miri
    Miri(soak::miri::Options),
    /// One change at a time in a crate, and the share found by its tests (needs cargo-mutants)
    Mutants(soak::mutants::Options),
    /// `counterfoil simulate` over all protocols, with 2 to 16 ranks and up to 10 failures
    Simulate(soak::simulate::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let passed = Workspace::load().and_then(|workspace| match &arguments.task {
        Task::Check => check::run(&workspace),
        Task::Test(options) => test::run(&workspace, options),
        Task::Soak(Soak::Demo(options)) => soak::run(&workspace, options),
        Task::Soak(Soak::Mpi(options)) => soak::run_over_mpi(&workspace, options),
        Task::Soak(Soak::MpiPrograms(options)) => soak::mpi_programs::run(&workspace, options),
        Task::Soak(Soak::Programs(options)) => soak::programs::run(&workspace, options),
        Task::Soak(Soak::Recover(options)) => soak::recover::run(&workspace, options),
        Task::Soak(Soak::Crash(options)) => soak::crash::run(&workspace, options),
        Task::Soak(Soak::Miri(options)) => soak::miri::run(&workspace, options),
        Task::Soak(Soak::Mutants(options)) => soak::mutants::run(&workspace, options),
        Task::Soak(Soak::Simulate(options)) => soak::simulate::run(&workspace, options),
        Task::Bench(options) => bench::run(&workspace, options),
        Task::Mpi(options) => mpi::run(&workspace, options),
        Task::Preload(options) => mpi::preload::run(&workspace, options),
        Task::Install(options) => install::run(&workspace, options),
        Task::Book(options) => book::run(&workspace, options),
    });
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => report(&error),
    }
}

fn report(error: &TaskError) -> ExitCode {
    eprintln!("xtask: {error}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}

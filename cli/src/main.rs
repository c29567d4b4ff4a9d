//! The `counterfoil` command: see a killed rank being replayed, look at stores, measure the log, clean up.
#![forbid(unsafe_code)]

mod bench;
mod clean;
mod demo;
mod log;
mod rank;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// A message log for parallel programs: when a rank dies, its replacement is replayed from its peers' logs, and the
/// others just go on.
#[derive(Debug, Parser)]
#[command(name = "counterfoil", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArguments),
    Log(log::LogArguments),
    Bench(bench::BenchArguments),
    Clean(clean::CleanArguments),
    #[command(hide = true)]
    Rank(rank::RankArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_env("COUNTERFOIL_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Clean(arguments) => clean::run(&arguments),
        Command::Rank(arguments) => rank::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.code()
        }
    }
}

/// Why a command ends with an error.
#[derive(Debug)]
enum Failure {
    /// It was asked for something that makes no sense: exit code 2, as for what the argument parser refuses.
    Usage(Box<dyn Error>),
    /// It was tried and did not work: exit code 1.
    Failed(Box<dyn Error>),
}

impl Failure {
    fn usage(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure::Usage(error.into())
    }

    fn failed(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure::Failed(error.into())
    }

    fn code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::from(1),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(error) => write!(f, "{error}\n\nFor more information, try '--help'."),
            Failure::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// Prints to standard output. That nobody reads it (a closed pipe) is no error.
fn print(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

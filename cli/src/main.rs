//! The `counterfoil` command: log what an MPI program sends, see a killed rank being replayed, simulate failures, look at
//! stores, measure the log, clean up.
#![forbid(unsafe_code)]

mod advice;
mod bench;
mod clean;
mod config;
mod demo;
mod doctor;
mod log;
mod matrix;
mod rank;
mod record_tag;
mod report;
mod run;
mod simulate;
mod table;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// The environment variable that says what is reported on standard error.
const FILTER_VARIABLE: &str = "COUNTERFOIL_LOG";

const ENVIRONMENT: &str = "\
Environment:
  COUNTERFOIL_LOG  What is reported on standard error: off, error, warn (the default), info, debug or trace; for one
                   crate alone as in counterfoil_runtime=debug; several separated by commas. The demo's ranks have it,
                   too: what they report is quoted where one of them fails";

/// A message log for parallel programs: when a rank dies, its replacement is replayed from its peers' logs, and the
/// others just go on.
#[derive(Debug, Parser)]
#[command(name = "counterfoil", version, max_term_width = 110, after_help = ENVIRONMENT)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::RunArguments>),
    Report(report::ReportArguments),
    Config(config::ConfigArguments),
    Doctor(doctor::DoctorArguments),
    Demo(demo::DemoArguments),
    Simulate(simulate::SimulateArguments),
    Log(log::LogArguments),
    Bench(bench::BenchArguments),
    Clean(clean::CleanArguments),
    #[command(hide = true)]
    Rank(rank::RankArguments),
}

impl Command {
    /// Whether what it prints is for a program.
    fn wants_json(&self) -> bool {
        match self {
            // Standard output is the program's.
            Command::Run(_) => false,
            Command::Report(arguments) => arguments.json,
            Command::Config(arguments) => arguments.json,
            Command::Doctor(arguments) => arguments.json,
            Command::Demo(arguments) => arguments.json,
            Command::Simulate(arguments) => arguments.wants_json(),
            Command::Log(arguments) => arguments.json(),
            Command::Bench(arguments) => arguments.json,
            Command::Clean(arguments) => arguments.json,
            Command::Rank(_) => false,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(run::carry(std::env::args_os()));
    tracing_subscriber::fmt().with_env_filter(filter()).with_writer(std::io::stderr).init();
    let wants_json = arguments.command.wants_json();
    let result = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Clean(arguments) => clean::run(&arguments),
        Command::Rank(arguments) => rank::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            if wants_json {
                // Whether this can be written, too, changes nothing any more.
                let _ = print(&failure.to_json());
            }
            ExitCode::from(failure.code())
        }
    }
}

/// What is reported on standard error: as the environment says, or else warnings.
fn filter() -> EnvFilter {
    let Ok(wanted) = std::env::var(FILTER_VARIABLE) else { return EnvFilter::new("warn") };
    EnvFilter::try_new(&wanted).unwrap_or_else(|error| {
        eprintln!("warning: {FILTER_VARIABLE}={wanted:?} is ignored: {error}");
        EnvFilter::new("warn")
    })
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

    fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) => 1,
        }
    }

    /// One object, as everything that is printed with `--json`.
    fn to_json(&self) -> String {
        let (Failure::Usage(error) | Failure::Failed(error)) = self;
        serde_json::json!({ "error": error.to_string(), "exit_code": self.code() }).to_string()
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
fn print(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

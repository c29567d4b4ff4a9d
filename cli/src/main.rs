//! The `counterfoil` command: logs MPI programs, demonstrates the recovery of killed ranks, simulates failures,
//! inspects stores and benchmarks the log.
#![forbid(unsafe_code)]

mod advice;
mod bench;
mod check;
mod clean;
mod colours;
mod command_line;
mod config;
mod demo;
mod doctor;
mod list;
mod log;
mod matrix;
mod mpi_build;
mod mpirun;
mod plural;
mod protocol;
mod rank;
mod replay;
mod report;
mod reproduce;
mod run;
mod sample;
mod settings;
mod simulate;
mod table;
mod units;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Environment variable with the filter for the diagnostics on standard error.
const FILTER_VARIABLE: &str = "COUNTERFOIL_LOG";

const ENVIRONMENT: &str = "\
Environment:
  COUNTERFOIL_LOG  Diagnostics on standard error: off, error, warn (default), info, debug or
                   trace, or per crate as in counterfoil_runtime=debug; separate several with
                   commas. Also applies to the demo's ranks; theirs are shown if a rank fails";

/// Sender-based message logging for MPI: a dead rank is replaced and replayed from its peers' logs, while the other
/// ranks keep running.
#[derive(Debug, Parser)]
#[command(name = "counterfoil", version, max_term_width = 110, after_help = ENVIRONMENT)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::RunArguments>),
    Replay(replay::ReplayArguments),
    Check(check::CheckArguments),
    Report(report::ReportArguments),
    Config(config::ConfigArguments),
    Doctor(doctor::DoctorArguments),
    Demo(demo::DemoArguments),
    Simulate(simulate::SimulateArguments),
    Reproduce(reproduce::ReproduceArguments),
    List(list::ListArguments),
    Log(log::LogArguments),
    Bench(bench::BenchArguments),
    Clean(clean::CleanArguments),
    #[command(name = mpirun::NAME, hide = true)]
    Mpirun(mpirun::MpirunArguments),
    #[command(name = rank::NAME, hide = true)]
    Rank(rank::RankArguments),
}

/// Stream where errors are also printed as JSON objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonErrors {
    None,
    /// The command's own output is JSON.
    StandardOutput,
    /// Standard output belongs to the program being run.
    StandardError,
}

impl Command {
    fn json_errors(&self) -> JsonErrors {
        let (wants_json, target) = match self {
            Command::Run(arguments) => (arguments.json, JsonErrors::StandardError),
            Command::Replay(arguments) => (arguments.json, JsonErrors::StandardError),
            Command::Check(arguments) => (arguments.json, JsonErrors::StandardOutput),
            Command::Report(arguments) => (arguments.json, JsonErrors::StandardOutput),
            Command::Config(arguments) => (arguments.json, JsonErrors::StandardOutput),
            Command::Doctor(arguments) => (arguments.json, JsonErrors::StandardOutput),
            Command::Demo(arguments) => (arguments.json, JsonErrors::StandardOutput),
            Command::Simulate(arguments) => (arguments.wants_json(), JsonErrors::StandardOutput),
            Command::Reproduce(arguments) => (arguments.wants_json(), JsonErrors::StandardOutput),
            Command::List(arguments) => (arguments.json, JsonErrors::StandardOutput),
            Command::Log(arguments) => (arguments.json(), JsonErrors::StandardOutput),
            Command::Bench(arguments) => (arguments.json, JsonErrors::StandardOutput),
            Command::Clean(arguments) => (arguments.json, JsonErrors::StandardOutput),
            Command::Mpirun(_) | Command::Rank(_) => (false, JsonErrors::None),
        };
        if wants_json { target } else { JsonErrors::None }
    }
}

fn main() -> ExitCode {
    let line = command_line::prepare(std::env::args_os());
    let arguments = match Arguments::try_parse_from(&line) {
        Ok(arguments) => arguments,
        Err(error) => return command_line::report_parse_error(&error, &line),
    };
    if !matches!(arguments.command, Command::Mpirun(_)) {
        let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        tracing_subscriber::registry().with(layer.with_filter(filter())).init();
    }
    let json_errors = arguments.command.json_errors();
    let result = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Log(arguments) => log::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Clean(arguments) => clean::run(&arguments),
        Command::Mpirun(arguments) => mpirun::run(&arguments),
        Command::Rank(arguments) => rank::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.print_json(json_errors);
            ExitCode::from(failure.code())
        }
    }
}

/// Returns the diagnostics filter from the environment; warnings by default.
fn filter() -> Targets {
    let warnings = Targets::new().with_default(LevelFilter::WARN);
    let Ok(wanted) = std::env::var(FILTER_VARIABLE) else { return warnings };
    let parsed = match wanted.split(',').find(|word| !is_valid_directive(word.trim())) {
        Some(word) => Err(format!("`{word}` is neither a level nor one of our crates")),
        None => wanted.parse().map_err(|error: tracing_subscriber::filter::ParseError| error.to_string()),
    };
    parsed.unwrap_or_else(|why| {
        eprintln!("warning: {FILTER_VARIABLE}={wanted:?} is ignored: {why}");
        warnings
    })
}

/// Returns `true` if `word` has a level, is a level, or names one of our crates.
///
/// `Targets` takes any other word for a crate name, so a misspelt level would turn all output off.
fn is_valid_directive(word: &str) -> bool {
    word.contains('=') || word.starts_with("counterfoil") || word.parse::<LevelFilter>().is_ok()
}

/// Error of a command.
#[derive(Debug)]
enum Failure {
    /// Invalid arguments: exit code 2, as for the argument parser's errors.
    Usage(Box<dyn Error>),
    /// Invalid input not explained by `--help`, such as a settings file or an existing directory: exit code 2.
    Refused(Box<dyn Error>),
    /// The operation failed: exit code 1.
    Failed(Box<dyn Error>),
}

impl Failure {
    fn usage(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure::Usage(error.into())
    }

    fn refused(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure::Refused(error.into())
    }

    fn failed(error: impl Into<Box<dyn Error>>) -> Failure {
        Failure::Failed(error.into())
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) | Failure::Refused(_) => 2,
            Failure::Failed(_) => 1,
        }
    }

    /// Formats the error as a JSON object.
    fn to_json(&self) -> String {
        let (Failure::Usage(error) | Failure::Refused(error) | Failure::Failed(error)) = self;
        serde_json::json!({ "error": error.to_string(), "exit_code": self.code() }).to_string()
    }

    fn print_json(&self, target: JsonErrors) {
        match target {
            JsonErrors::None => {}
            // The exit code reports an error anyway.
            JsonErrors::StandardOutput => drop(print(&self.to_json())),
            JsonErrors::StandardError => eprintln!("{}", self.to_json()),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(error) => write!(f, "{error}\n\nFor more information, try '--help'."),
            Failure::Refused(error) | Failure::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// Writes a file named on the command line.
fn write_file(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| Failure::failed(format!("cannot write {}: {error}", file.display())))
}

/// Prints a line to standard output.
///
/// A closed pipe is not an error.
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

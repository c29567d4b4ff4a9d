//! The `counterfoil` command: log what an MPI program sends, see a killed rank being replayed, simulate failures, look at
//! stores, measure the log, clean up.
#![forbid(unsafe_code)]

mod advice;
mod bench;
mod clean;
mod config;
mod demo;
mod doctor;
mod line;
mod log;
mod matrix;
mod mpirun;
mod rank;
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
    #[command(name = mpirun::NAME, hide = true)]
    Mpirun(mpirun::MpirunArguments),
    #[command(name = rank::NAME, hide = true)]
    Rank(rank::RankArguments),
}

/// Where an error is to be an object, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Nowhere,
    /// What is printed there is for a program.
    StandardOutput,
    /// Standard output is the program's that is run.
    StandardError,
}

impl Command {
    fn error_object(&self) -> Object {
        let (wants_json, place) = match self {
            Command::Run(arguments) => (arguments.json, Object::StandardError),
            Command::Report(arguments) => (arguments.json, Object::StandardOutput),
            Command::Config(arguments) => (arguments.json, Object::StandardOutput),
            Command::Doctor(arguments) => (arguments.json, Object::StandardOutput),
            Command::Demo(arguments) => (arguments.json, Object::StandardOutput),
            Command::Simulate(arguments) => (arguments.wants_json(), Object::StandardOutput),
            Command::Log(arguments) => (arguments.json(), Object::StandardOutput),
            Command::Bench(arguments) => (arguments.json, Object::StandardOutput),
            Command::Clean(arguments) => (arguments.json, Object::StandardOutput),
            Command::Mpirun(_) | Command::Rank(_) => (false, Object::Nowhere),
        };
        if wants_json { place } else { Object::Nowhere }
    }
}

fn main() -> ExitCode {
    let line = line::read(std::env::args_os());
    let arguments = match Arguments::try_parse_from(&line) {
        Ok(arguments) => arguments,
        Err(error) => return line::refuse(&error, &line),
    };
    if !matches!(arguments.command, Command::Mpirun(_)) {
        tracing_subscriber::fmt().with_env_filter(filter()).with_writer(std::io::stderr).init();
    }
    let object = arguments.command.error_object();
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
        Command::Mpirun(arguments) => mpirun::run(&arguments),
        Command::Rank(arguments) => rank::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.print_object(object);
            ExitCode::from(failure.code())
        }
    }
}

/// What is reported on standard error: as the environment says, or else warnings.
fn filter() -> EnvFilter {
    let Ok(wanted) = std::env::var(FILTER_VARIABLE) else { return EnvFilter::new("warn") };
    let parsed = match wanted.split(',').find(|word| !is_level_or_ours(word.trim())) {
        Some(word) => Err(format!("`{word}` is no level, and no crate of ours")),
        None => EnvFilter::try_new(&wanted).map_err(|error| error.to_string()),
    };
    parsed.unwrap_or_else(|why| {
        eprintln!("warning: {FILTER_VARIABLE}={wanted:?} is ignored: {why}");
        EnvFilter::new("warn")
    })
}

/// A word without a level is the name of a crate to the filter, whatever it is: a level that is misspelt would turn everything off.
fn is_level_or_ours(word: &str) -> bool {
    let levels = ["", "off", "error", "warn", "info", "debug", "trace", "0", "1", "2", "3", "4", "5"];
    word.contains(['=', '[']) || word.starts_with("counterfoil") || levels.contains(&word.to_ascii_lowercase().as_str())
}

/// Why a command ends with an error.
#[derive(Debug)]
enum Failure {
    /// It was asked for something that makes no sense: exit code 2, as for what the argument parser refuses.
    Usage(Box<dyn Error>),
    /// The same, where no option's description says more: a file with settings, say, or a directory that is taken.
    Refused(Box<dyn Error>),
    /// It was tried and did not work: exit code 1.
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

    /// One object, as everything that is printed with `--json`.
    fn to_json(&self) -> String {
        let (Failure::Usage(error) | Failure::Refused(error) | Failure::Failed(error)) = self;
        serde_json::json!({ "error": error.to_string(), "exit_code": self.code() }).to_string()
    }

    fn print_object(&self, object: Object) {
        match object {
            Object::Nowhere => {}
            // Whether this can be written, too, changes nothing any more.
            Object::StandardOutput => drop(print(&self.to_json())),
            Object::StandardError => eprintln!("{}", self.to_json()),
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

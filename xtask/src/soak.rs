//! `cargo xtask soak demo` and `soak mpi`: run `counterfoil demo` with random parameters, between local processes or
//! over MPI, and check each run.

pub(crate) mod crash;
mod launch;
mod listed;
pub(crate) mod miri;
pub(crate) mod mpi_programs;
pub(crate) mod mutants;
mod parameters;
pub(crate) mod programs;
mod random;
pub(crate) mod recover;
pub(crate) mod runner;
pub(crate) mod simulate;
mod tally;
mod verdict;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};

use self::listed::Listed;
use self::parameters::{Cell, Parameters};
use self::random::SplitMix64;
use self::tally::Tally;
use self::verdict::Verdict;
use crate::mpi::{Choice, Toolkit};
use crate::workspace::{TaskError, Workspace, command_line};

/// Minimum share, among kills planned for an iteration, of kills between the victim's first and last message.
///
/// Other kills test a process's restart, but not its replay.
const KILLS_IN_TRAFFIC_MIN: f64 = 0.8;

/// Runs per progress line where stderr is not a terminal.
const RUNS_PER_PROGRESS_LINE: u64 = 20;

/// Options for `cargo xtask soak demo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of runs
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Run only this protocol
    #[arg(long)]
    protocol: Option<String>,
    /// Seed for all random parameters; the same seed gives the same command lines [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds after which a run is killed and counted as failed
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_s: u64,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// A failed run, with the command that repeats it.
struct Failure {
    run: u64,
    command: String,
    problems: Vec<String>,
    /// Directory with the run's stdout, stderr and command.
    output_dir: PathBuf,
}

/// Options for `cargo xtask soak mpi`.
#[derive(Debug, Args)]
pub(crate) struct OverMpi {
    #[command(flatten)]
    choice: Choice,
    /// Number of spares per run; without any, the whole job is started again [default: one for each kill]
    #[arg(long, value_name = "SPARES")]
    spares: Option<u32>,
    #[command(flatten)]
    options: Options,
}

/// MPI for the runs.
struct Mpi<'a> {
    name: &'a str,
    spares: Option<u32>,
}

/// Runs the soak test between local processes.
///
/// Returns `true` if no run failed and enough kills fell between messages.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    run_with(workspace, options, None)
}

/// Runs the soak test over MPI.
pub(crate) fn run_over_mpi(workspace: &Workspace, options: &OverMpi) -> Result<bool, TaskError> {
    let toolkit = Toolkit::find_or_install_any(workspace, &options.choice)?;
    eprintln!("MPI: {}", toolkit.mpi);
    toolkit.build_demo(workspace)?;
    run_with(workspace, &options.options, Some(Mpi { name: &toolkit.mpi.name, spares: options.spares }))
}

/// Runs the soak test, over an MPI if one is given.
fn run_with(workspace: &Workspace, options: &Options, mpi: Option<Mpi<'_>>) -> Result<bool, TaskError> {
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let program = workspace.build_release()?;
    let folder = workspace.target().join("soak").join(format!("seed-{seed}"));
    fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
    eprintln!("{} runs of `counterfoil demo`, seed {seed}", options.runs);

    let mut random = SplitMix64::new(seed);
    let listed = Listed::by(&program)?;
    let cells = Cell::of(&listed, options.protocol.as_deref())?;
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for run in 1..=options.runs {
        // A generator per run: a run's parameters do not depend on how many numbers the previous one drew.
        let cell = cells[usize::try_from(run - 1).unwrap_or(0) % cells.len()];
        let mut parameters = Parameters::draw(cell, &mut SplitMix64::new(random.next_u64()));
        if let Some(mpi) = &mpi {
            parameters.mpi = Some(mpi.name.to_owned());
            parameters.spares = mpi.spares;
        }
        let timeout = Duration::from_secs(options.timeout_s);
        let (verdict, failure) = run_once(&program, run, &parameters, timeout, &folder)?;
        tally.add(&parameters, &verdict);
        if let Some(failure) = failure {
            report_failure(&failure);
            failures.push(failure);
        }
        report_progress(run, options.runs, failures.len(), &parameters);
    }

    let passed = failures.is_empty() && tally.kills_in_traffic() >= KILLS_IN_TRAFFIC_MIN;
    write_report(options, seed, &tally, &failures, passed, &folder)?;
    Ok(passed)
}

/// Runs the demo once, keeping the output of a failed run.
fn run_once(
    program: &Path,
    run: u64,
    parameters: &Parameters,
    timeout: Duration,
    folder: &Path,
) -> Result<(Verdict, Option<Failure>), TaskError> {
    let output_dir = folder.join(format!("run-{run:04}"));
    fs::create_dir_all(&output_dir).map_err(TaskError::file(&output_dir))?;
    let arguments = parameters.arguments();
    let outcome = launch::launch(program, &arguments, timeout, &output_dir)?;
    let verdict = Verdict::judge(parameters, &outcome);
    if verdict.problems.is_empty() {
        fs::remove_dir_all(&output_dir).map_err(TaskError::file(&output_dir))?;
        return Ok((verdict, None));
    }
    let mut command = std::process::Command::new(program);
    command.args(&arguments);
    let failure = Failure { run, command: command_line(&command), problems: verdict.problems.clone(), output_dir };
    write(&failure.output_dir.join("command"), &format!("{}\n", failure.command))?;
    Ok((verdict, Some(failure)))
}

fn report_failure(failure: &Failure) {
    clear_progress();
    eprintln!("run {} FAILED: {}", failure.run, failure.problems.join("; "));
    eprintln!("  command: {}", failure.command);
    eprintln!("  output:  {}", failure.output_dir.display());
}

/// Reports each run on a terminal, and every [`RUNS_PER_PROGRESS_LINE`]th elsewhere.
fn report_progress(run: u64, runs: u64, failed: usize, last: &Parameters) {
    let line = format!("{run} of {runs} runs, {failed} failed; last: {last}");
    show_progress(&line, run == runs, run.is_multiple_of(RUNS_PER_PROGRESS_LINE));
}

/// Overwrites the progress line on a terminal.
///
/// Elsewhere prints the line only if `is_last` or `of_log` is set.
fn show_progress(line: &str, is_last: bool, of_log: bool) {
    if io::stderr().is_terminal() {
        clear_progress();
        eprint!("{line}");
        // A failure to print progress must not end the soak test.
        let _ = io::stderr().flush();
        if is_last {
            eprintln!();
        }
    } else if is_last || of_log {
        eprintln!("{line}");
    }
}

fn clear_progress() {
    if io::stderr().is_terminal() {
        eprint!("\r\u{1b}[K");
    }
}

/// Prints the table or the JSON object, and writes the object to `report.json` in `folder`.
fn write_report(
    options: &Options,
    seed: u64,
    tally: &Tally,
    failures: &[Failure],
    passed: bool,
    folder: &Path,
) -> Result<(), TaskError> {
    let report = json!({
        "seed": seed,
        "runs": options.runs,
        "wrong": failures.len(),
        "passed": passed,
        "kills_in_traffic_min": KILLS_IN_TRAFFIC_MIN,
        "groups": tally.to_json(),
        "failures": failures.iter().map(Failure::to_json).collect::<Vec<_>>(),
    });
    let path = folder.join("report.json");
    write(&path, &format!("{report:#}\n"))?;
    if options.json {
        println!("{report}");
        return Ok(());
    }
    println!("\n{}", tally.matrix());
    println!("number of runs, and of failed ones after a slash");
    println!("\n{}", tally.table());
    println!(
        "recovery times in ms: median / 95th percentile over the kills; \
         in traffic: between the victim's first and last message, of the kills planned for an iteration of a program that sends messages (at least {:.0} % required)",
        KILLS_IN_TRAFFIC_MIN * 100.0
    );
    println!("report: {}", path.display());
    for failure in failures {
        println!("failed: run {}: {}", failure.run, failure.command);
    }
    println!(
        "{} runs, {} failed, {:.1} % of the kills in iterations in traffic, seed {seed}: {}",
        options.runs,
        failures.len(),
        tally.kills_in_traffic() * 100.0,
        match (passed, failures.is_empty()) {
            (true, _) => "passed",
            (false, false) => "FAILED",
            (false, true) => "FAILED: too few kills in traffic to prove anything about replays",
        }
    );
    Ok(())
}

impl Failure {
    fn to_json(&self) -> Value {
        json!({
            "run": self.run,
            "command": self.command,
            "problems": self.problems,
            "output": self.output_dir.display().to_string(),
        })
    }
}

fn write(path: &Path, text: &str) -> Result<(), TaskError> {
    fs::write(path, text).map_err(TaskError::file(path))
}

/// Returns a seed from the current time.
///
/// A clock before 1970 gives the seed 0.
fn seed_from_clock() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    elapsed.as_secs() << 20 | u64::from(elapsed.subsec_micros())
}

//! `cargo xtask soak demo`: many runs of `counterfoil demo` with random parameters, all checked.

pub(crate) mod crash;
mod draw;
mod launch;
pub(crate) mod miri;
mod random;
pub(crate) mod simulate;
mod tally;
mod verdict;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};

use self::draw::Parameters;
use self::random::SplitMix64;
use self::tally::Tally;
use self::verdict::Verdict;
use crate::workspace::{TaskError, Workspace, command_line};

/// The smallest share of kills that must fall between the victim's first and last message: others
/// would show that a process can be restarted, not that it can be replayed.
const KILLS_IN_TRAFFIC_MIN: f64 = 0.9;

/// On a stream that is no terminal, progress is said after so many runs.
const PLAIN_PROGRESS_EVERY: u64 = 20;

/// How often, from which seed, and what is printed.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many times the demo is run
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Draws all parameters; the same seed gives the same command lines [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// After so many seconds a run is ended and counted as wrong
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    timeout_s: u64,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// A run that was wrong: enough to repeat it.
struct Failure {
    run: u64,
    command: String,
    problems: Vec<String>,
    kept: PathBuf,
}

/// Runs the soak; true if no run was wrong and enough kills fell into the traffic.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool, TaskError> {
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    let program = workspace.build_release()?;
    let folder = workspace.target().join("soak").join(format!("seed-{seed}"));
    fs::create_dir_all(&folder).map_err(TaskError::file(&folder))?;
    eprintln!("{} runs of `counterfoil demo`, seed {seed}", options.runs);

    let mut random = SplitMix64::new(seed);
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for run in 1..=options.runs {
        // One number for each run: what one run draws never moves the next one's parameters.
        let parameters = Parameters::draw(&mut SplitMix64::new(random.next_u64()));
        let timeout = Duration::from_secs(options.timeout_s);
        let (verdict, failure) = one_run(&program, run, &parameters, timeout, &folder)?;
        tally.add(&parameters, &verdict);
        if let Some(failure) = failure {
            report_failure(&failure);
            failures.push(failure);
        }
        report_progress(run, options.runs, failures.len(), &parameters);
    }

    let passed = failures.is_empty() && tally.kills_in_traffic() >= KILLS_IN_TRAFFIC_MIN;
    conclude(options, seed, &tally, &failures, passed, &folder)?;
    Ok(passed)
}

/// Runs the demo once; the output of a run that was wrong is kept.
fn one_run(
    program: &Path,
    run: u64,
    parameters: &Parameters,
    timeout: Duration,
    folder: &Path,
) -> Result<(Verdict, Option<Failure>), TaskError> {
    let kept = folder.join(format!("run-{run:04}"));
    fs::create_dir_all(&kept).map_err(TaskError::file(&kept))?;
    let arguments = parameters.arguments();
    let launched = launch::launch(program, &arguments, timeout, &kept)?;
    let verdict = Verdict::judge(parameters, &launched);
    if verdict.problems.is_empty() {
        fs::remove_dir_all(&kept).map_err(TaskError::file(&kept))?;
        return Ok((verdict, None));
    }
    let mut command = std::process::Command::new(program);
    command.args(&arguments);
    let failure = Failure { run, command: command_line(&command), problems: verdict.problems.clone(), kept };
    write(&failure.kept.join("command"), &format!("{}\n", failure.command))?;
    Ok((verdict, Some(failure)))
}

fn report_failure(failure: &Failure) {
    clear_progress();
    eprintln!("run {} is WRONG: {}", failure.run, failure.problems.join("; "));
    eprintln!("  to repeat it: {}", failure.command);
    eprintln!("  its output:   {}", failure.kept.display());
}

/// A line that is written over on a terminal, and now and then a plain line elsewhere.
fn report_progress(run: u64, runs: u64, wrong: usize, last: &Parameters) {
    let line = format!("{run} of {runs} runs, {wrong} wrong; last: {last}");
    if io::stderr().is_terminal() {
        clear_progress();
        eprint!("{line}");
        // Progress is a courtesy: a stream that refuses it must not end the soak.
        let _ = io::stderr().flush();
        if run == runs {
            eprintln!();
        }
    } else if run.is_multiple_of(PLAIN_PROGRESS_EVERY) || run == runs {
        eprintln!("{line}");
    }
}

fn clear_progress() {
    if io::stderr().is_terminal() {
        eprint!("\r\u{1b}[K");
    }
}

/// Prints the table or the object, and keeps the object beside the failed runs.
fn conclude(
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
    println!("\n{}", tally.table());
    println!(
        "recovery times in ms, median / 95th percentile over the kills; \
         in traffic = between the victim's first and last message (at least {:.0} % wanted)",
        KILLS_IN_TRAFFIC_MIN * 100.0
    );
    println!("report: {}", path.display());
    for failure in failures {
        println!("wrong: run {}: {}", failure.run, failure.command);
    }
    println!(
        "{} runs, {} wrong, {:.1} % of the kills in traffic, seed {seed}: {}",
        options.runs,
        failures.len(),
        tally.kills_in_traffic() * 100.0,
        if passed { "passed" } else { "FAILED" }
    );
    Ok(())
}

impl Failure {
    fn to_json(&self) -> Value {
        json!({
            "run": self.run,
            "command": self.command,
            "problems": self.problems,
            "output": self.kept.display().to_string(),
        })
    }
}

fn write(path: &Path, text: &str) -> Result<(), TaskError> {
    fs::write(path, text).map_err(TaskError::file(path))
}

/// A clock before 1970 gives the seed 0, which is as good as another.
fn seed_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() << 20 | u64::from(since.subsec_micros())
}

//! `counterfoil simulate`: runs protocols under random failure schedules, in one process and in virtual time.

mod campaign;
mod canaries;
mod options;
mod replay;
mod report;
mod scale;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use counterfoil_runtime::local::Interrupts;
use counterfoil_simulator::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Failure, plural, print, reproduce};
pub(crate) use options::SimulateArguments;
use options::SimulateCommand;
use report::{FirstFailure, Report};

/// Exit code of a campaign interrupted before it found a failure.
const INTERRUPTED: u8 = 130;
/// Number of steps above which a diagram is too wide for most screens.
const WIDE_DIAGRAM_STEPS: usize = 400;

pub(crate) fn run(arguments: &SimulateArguments) -> Result<ExitCode, Failure> {
    if let Some(SimulateCommand::Scale(scale)) = &arguments.command {
        return scale::run(scale);
    }
    if arguments.table_1 {
        return reproduce::table_1(arguments.json);
    }
    if let Some(schedule) = &arguments.replay {
        return replay::run(arguments, schedule);
    }
    if arguments.wants_canaries() {
        return canaries::run(arguments.json);
    }
    arguments.check().map_err(Failure::usage)?;
    let rule = arguments.rule();
    let seed = arguments.seed.unwrap_or_else(seed_from_clock);
    let seeds = arguments.seeds(seed).map_err(Failure::usage)?;
    let config = arguments.config();
    if arguments.shows_one_run() {
        if arguments.schedules != 1 {
            return Err(Failure::usage("--tell and --svg require --replay or --schedules 1"));
        }
        let schedule = config.schedule(seed, rule.properties.has_coordinator);
        return replay::run(arguments, &schedule);
    }
    let interrupts = Interrupts::install().map_err(Failure::failed)?;
    let bar = progress_bar(arguments);
    let show = |progress: Progress| {
        bar.set_position(progress.schedules);
        if progress.failed > 0 {
            bar.set_message(format!("{} failed", progress.failed));
        }
    };
    let done = campaign::run(&rule, &config, seeds.clone(), arguments.threads(), &interrupts, show);
    bar.finish_and_clear();
    let tally = done.map_err(Failure::failed)?;
    let failure = tally.summary.failures.first().map(|first| {
        let shrinking = spinner(arguments, "shrinking the first failure");
        let failure = FirstFailure::shrink(&rule, first);
        shrinking.finish_and_clear();
        failure
    });
    let report = Report { arguments, rule, seeds, tally, failure };
    print(&if arguments.json { report.to_json() } else { report.to_text() })?;
    let (failed, done) = (report.tally.summary.failed, report.tally.summary.schedules);
    if failed > 0 {
        eprintln!("error: {failed} of {} failed", plural::schedules(done));
        return Ok(ExitCode::from(1));
    }
    if report.interrupted() {
        eprintln!("interrupted after {done} of {}", plural::schedules(arguments.schedules));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates a progress bar on standard error; hidden if not a terminal.
fn progress_bar(arguments: &SimulateArguments) -> ProgressBar {
    if arguments.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(arguments.schedules);
    if let Ok(style) = ProgressStyle::with_template("{bar:32.cyan/blue} {pos}/{len} schedules, {eta} left {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn spinner(arguments: &SimulateArguments, message: &'static str) -> ProgressBar {
    if arguments.json {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner().with_message(message);
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

/// Returns microseconds since 1970, which JSON numbers represent exactly.
fn seed_from_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

//! `counterfoil simulate`: a protocol under many random schedules of failures, in one process and without a clock.

mod campaign;
mod canaries;
mod figure_8;
mod options;
mod protocol;
mod redraw;
mod replay;
mod report;
mod scale;
mod table_1;
mod words;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use counterfoil_runtime::local::Interrupts;
use counterfoil_runtime::sim::Progress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Failure, print};
pub(crate) use options::SimulateArguments;
use report::{Found, Report};

/// The exit code of a campaign that was interrupted before it found anything.
const INTERRUPTED: u8 = 130;
/// With more steps than this, a picture is wider than anybody's screen.
const STEPS_WIDE: usize = 400;

pub(crate) fn run(arguments: &SimulateArguments) -> Result<ExitCode, Failure> {
    if let Some(redraw) = &arguments.redraw {
        return redraw.run();
    }
    if arguments.table_1 {
        return redraw::table_1(arguments.json);
    }
    if let Some(schedule) = &arguments.replay {
        return replay::run(arguments, schedule);
    }
    if arguments.wants_canaries() {
        return canaries::run(arguments.json);
    }
    arguments.check().map_err(Failure::usage)?;
    let engine = arguments.protocol.engine();
    let seed = arguments.seed.unwrap_or_else(seed_from_clock);
    let seeds = arguments.seeds(seed).map_err(Failure::usage)?;
    let config = arguments.config();
    if arguments.wants_one_run() {
        if arguments.schedules != 1 {
            return Err(Failure::usage("--tell and --svg show one run: they go with --replay, or with --schedules 1"));
        }
        let schedule = config.schedule(seed, engine.coordinator);
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
    let done = campaign::run(&engine, &config, seeds.clone(), arguments.threads(), &interrupts, show);
    bar.finish_and_clear();
    let tally = done.map_err(Failure::failed)?;
    let found = tally.summary.failures.first().map(|first| {
        let shrinking = spinner(arguments, "making the first failure smaller");
        let found = Found::shrink(&engine, arguments.protocol, first);
        shrinking.finish_and_clear();
        found
    });
    let report = Report { arguments, seeds, tally, found };
    print(&if arguments.json { report.to_json() } else { report.to_text() })?;
    let (failed, done) = (report.tally.summary.failed, report.tally.summary.schedules);
    if failed > 0 {
        eprintln!("error: {failed} of {} failed", words::schedules(done));
        return Ok(ExitCode::from(1));
    }
    if report.interrupted() {
        eprintln!("interrupted after {done} of {}", words::schedules(arguments.schedules));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Drawn on standard error, and only on a terminal.
fn progress_bar(arguments: &SimulateArguments) -> ProgressBar {
    if arguments.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(arguments.schedules);
    if let Ok(style) = ProgressStyle::with_template("{bar:32.cyan/blue} {pos}/{len} schedules, {per_sec}, {eta} {msg}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn spinner(arguments: &SimulateArguments, words: &'static str) -> ProgressBar {
    if arguments.json {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner().with_message(words);
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

/// Microseconds since 1970: a number that every reader of JSON can hold.
fn seed_from_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

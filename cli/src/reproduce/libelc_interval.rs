//! Section 5.8 of Zhao 2005: the checkpoint interval minimising a program's expected time.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use counterfoil_protocols::event_logging;
use counterfoil_protocols::event_logging::optimal_interval;
use counterfoil_runtime::local::{Interrupts, JobReport, Kill, KillPoint, launch};
use counterfoil_workloads::Workload;
use serde_json::{Value, json};

use super::costs::{duration, progress_bar, workload};
use crate::sample::median;
use crate::table::Table;
use crate::{Failure, print, rank};

/// Intervals, by the optimal one.
const SHARES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Workload with many short iterations.
const WORKLOAD: &str = "laplace";
/// Killed rank and iteration, to measure a recovery.
const KILL: Kill = Kill { rank: 1, at: KillPoint::Iteration(20) };

/// Take checkpoints at intervals around the optimal one, and compare the program's expected times with the model of
/// Zhao 2005, section 5.8.
///
/// Laplace's equation under event-logging, on local processes. Runs without checkpoints and without failures measure
/// the program, its checkpoints and, with a kill, its recovery; then runs at a quarter to four times the optimal
/// interval take turns. Work and recovery lost in the expected failures, half an interval each, are added to the
/// measured time as in the paper's formula.
#[derive(Debug, Args)]
pub(crate) struct LibelcIntervalArguments {
    /// Number of ranks
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: u32,
    /// Problem size: S, W or A
    #[arg(long, default_value = "A")]
    class: String,
    /// Failures during a run without checkpoints
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    failures: u32,
    /// Runs at each interval
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print a JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The paper's quantities, in seconds.
#[derive(Clone, Copy, Debug)]
struct Model {
    /// Program time, T_O.
    program: f64,
    /// Checkpoint cost, T_C.
    checkpoint: f64,
    /// Recovery time, T_R.
    recovery: f64,
    /// Mean time between failures, T_UP.
    uptime: f64,
}

impl Model {
    fn optimum(self) -> f64 {
        let of = Duration::from_secs_f64;
        optimal_interval(of(self.checkpoint), of(self.uptime)).as_secs_f64()
    }

    /// Returns the expected time lost by a run's failures: recoveries, and half an interval's work each.
    fn lost(self, interval: f64) -> f64 {
        self.program / self.uptime * (self.recovery + interval / 2.0)
    }

    /// Returns the program's expected time with checkpoints, EPET.
    fn expected(self, interval: f64) -> f64 {
        self.program * (1.0 + self.checkpoint / interval) + self.lost(interval)
    }
}

/// Runs at one interval.
#[derive(Debug, Default)]
struct AtInterval {
    /// Wall times in seconds.
    walls: Vec<f64>,
    checkpoints: Vec<f64>,
}

pub(crate) fn run(arguments: &LibelcIntervalArguments) -> Result<ExitCode, Failure> {
    let workload = workload(WORKLOAD, &arguments.class, arguments.ranks)?;
    let interrupts = Interrupts::install().map_err(Failure::failed)?;
    let run = |checkpoint_every, mtbf, kill| {
        run_once(workload.as_ref(), arguments.ranks, (checkpoint_every, mtbf), kill, &interrupts)
    };
    let rounds = u64::from(arguments.rounds);
    let bar = progress_bar(arguments.json, WORKLOAD, rounds * (3 + SHARES.len() as u64), "runs");
    let (mut program, mut checkpoint, mut recovery) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        program.push(run(None, None, None)?.wall.as_secs_f64());
        let tally = run(Some(10), None, None)?.tally;
        checkpoint.push(tally.checkpoint_us as f64 / 1e6 / tally.checkpoints.max(1) as f64);
        recovery.push(recovery_of(&run(Some(10), None, Some(KILL))?));
        bar.inc(3);
    }
    let [program, checkpoint, recovery] = [program, checkpoint, recovery].map(median);
    let uptime = program / f64::from(arguments.failures);
    let model = Model { program, checkpoint, recovery, uptime };
    let mut at = SHARES.map(|_| AtInterval::default());
    for _ in 0..rounds {
        for (share, at) in SHARES.iter().zip(&mut at) {
            // The interval is proportional to the square root.
            let mtbf = Duration::from_secs_f64(uptime * share * share);
            let report = run(Some(1), Some(mtbf), None)?;
            at.walls.push(report.wall.as_secs_f64());
            at.checkpoints.push(report.tally.checkpoints as f64 / f64::from(arguments.ranks));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let lines = lines(model, at);
    let title =
        format!("{WORKLOAD} of class {} on {} local processes, event-logging", arguments.class, arguments.ranks);
    print(&if arguments.json { to_json(model, &lines).to_string() } else { report(&title, arguments, model, &lines) })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a job.
///
/// `checkpoints`: iterations between offered ones, and the mean time between failures.
fn run_once(
    workload: &dyn Workload,
    ranks: u32,
    (checkpoint_every, mtbf): (Option<u64>, Option<Duration>),
    kill: Option<Kill>,
    interrupts: &Interrupts,
) -> Result<JobReport, Failure> {
    let mut job = rank::job(workload, ranks, checkpoint_every)?;
    (job.settings.rule, job.settings.mtbf) = (event_logging::RULE, mtbf);
    job.kills = kill.into_iter().collect();
    launch(&job, Some(interrupts), &mut ()).map_err(Failure::failed)
}

/// Returns the time from the kill until the replacement has its state, without the repeated work.
fn recovery_of(report: &JobReport) -> f64 {
    let of_death = report.deaths.first().map(|death| death.recovery).unwrap_or_default();
    [of_death.detect, of_death.repair, of_death.start].into_iter().flatten().sum::<Duration>().as_secs_f64()
}

/// A table line; times in seconds.
#[derive(Debug)]
struct Line {
    /// The interval by the optimal one.
    share: f64,
    interval: f64,
    /// Number of checkpoints per rank.
    checkpoints: f64,
    wall: f64,
    /// The measured time with the expected loss.
    expected: f64,
    formula: f64,
}

fn lines(model: Model, at: [AtInterval; SHARES.len()]) -> Vec<Line> {
    let line = |(share, at): (f64, AtInterval)| {
        let (interval, wall) = (share * model.optimum(), median(at.walls));
        let (expected, formula) = (wall + model.lost(interval), model.expected(interval));
        Line { share, interval, checkpoints: median(at.checkpoints), wall, expected, formula }
    };
    SHARES.into_iter().zip(at).map(line).collect()
}

fn to_json(model: Model, lines: &[Line]) -> Value {
    let intervals = lines.iter().map(|line| {
        json!({
            "interval_s": line.interval,
            "interval_by_optimum": line.share,
            "checkpoints": line.checkpoints,
            "wall_s": line.wall,
            "expected_s": line.expected,
            "formula_s": line.formula,
        })
    });
    json!({
        "program_s": model.program,
        "checkpoint_s": model.checkpoint,
        "recovery_s": model.recovery,
        "mtbf_s": model.uptime,
        "optimum_s": model.optimum(),
        "intervals": intervals.collect::<Vec<_>>(),
    })
}

fn report(title: &str, arguments: &LibelcIntervalArguments, model: Model, lines: &[Line]) -> String {
    let headings = ["interval", "by the optimum", "checkpoints", "without failures", "expected", "formula"];
    let mut table = Table::new(&headings);
    for line in lines {
        table.row([
            duration(line.interval),
            line.share.to_string(),
            format!("{:.0}", line.checkpoints),
            duration(line.wall),
            duration(line.expected),
            duration(line.formula),
        ]);
    }
    format!(
        "Section 5.8 of Zhao 2005: {title}\n\n{table}\n\n\
         Without checkpoints the program takes {}. A checkpoint costs {}, a recovery {}, and a failure is expected every {}: the optimal \
         interval is {}. Medians of {} runs; checkpoints are those of a rank. `expected` adds to the measured time what {} failures cost: a \
         recovery and half an interval each. `formula` is the paper's expected time. The paper has no measurement of it.",
        duration(model.program),
        duration(model.checkpoint),
        duration(model.recovery),
        duration(model.uptime),
        duration(model.optimum()),
        arguments.rounds,
        arguments.failures
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_has_its_minimum_at_the_optimum_and_gives_the_papers_example() {
        // Minutes: a 100-minute program, 4 per checkpoint, 2 per recovery, a failure every 50; checkpoints every 20.
        let model = Model { program: 100.0, checkpoint: 4.0, recovery: 2.0, uptime: 50.0 };
        assert!((model.optimum() - 20.0).abs() < 1e-9);
        // The paper counts whole minutes, from 1 to 20, so each failure loses half a minute more: 145.
        assert!((model.expected(20.0) - 144.0).abs() < 1e-9);
        let least = model.expected(model.optimum());
        assert!([0.5, 0.9, 1.1, 2.0].iter().all(|share| model.expected(share * model.optimum()) > least));
    }

    #[test]
    fn a_line_adds_the_loss_to_the_measured_time() {
        let model = Model { program: 100.0, checkpoint: 4.0, recovery: 2.0, uptime: 50.0 };
        let at = SHARES.map(|_| AtInterval { walls: vec![120.0], checkpoints: vec![5.0] });
        let line = &lines(model, at)[2];
        assert_eq!(
            (line.interval.round(), line.checkpoints, line.wall, line.expected.round(), line.formula.round()),
            (20.0, 5.0, 120.0, 144.0, 144.0)
        );
    }
}

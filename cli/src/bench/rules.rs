//! Cost of each rule between local processes while nothing fails.

use counterfoil_runtime::Rule;
use counterfoil_runtime::local::{Interrupts, launch};
use counterfoil_workloads::{Class, by_name};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::sample::{median, quantile, sorted};
use crate::{Failure, rank};

const PROGRAMS: [&str; 3] = ["cg", "ft", "laplace"];
/// What is measured; the first is what the others are divided by, the second shows how far two runs of the same lie apart.
const KINDS: [(&str, Rule); 10] = [
    ("unlogged", Rule::Unlogged),
    ("unlogged, again", Rule::Unlogged),
    ("sender-based", Rule::SenderBased),
    ("pessimistic", Rule::Pessimistic),
    ("send-deterministic", Rule::SendDeterministic { clusters: 2 }),
    ("user-level", Rule::UserLevel),
    ("coordinated, bits exchanged", Rule::Coordinated { piggybacked: false }),
    ("coordinated, bits on the data", Rule::Coordinated { piggybacked: true }),
    ("event-logging", Rule::EventLogging),
    ("message-tagging", Rule::MessageTagging),
];

/// Settings of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) rounds: u32,
    pub(super) class: Class,
}

/// Runs of one program under one rule.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    program: &'static str,
    class: String,
    ranks: u32,
    rule: &'static str,
    /// Median of the runs' wall times, start and end of the processes included, in milliseconds.
    ms: f64,
    ratio: f64,
    ratio_p25: f64,
    ratio_p75: f64,
    rounds: u32,
}

/// Runs each program under each rule, in turn: two ranks, process-crash-safe logs, no checkpoints.
pub(super) fn run(options: Options, progress: &ProgressBar) -> Result<Vec<Row>, Failure> {
    const RANKS: u32 = 2;
    let interrupts = Interrupts::install().map_err(Failure::failed)?;
    let mut rows = Vec::new();
    for program in PROGRAMS {
        let workload = by_name(program, options.class).map_err(Failure::failed)?;
        let mut seconds = KINDS.map(|_| Vec::new());
        for round in 0..options.rounds as usize {
            progress.set_message(format!("{program}, round {} of {}", round + 1, options.rounds));
            // In another order in each round. The steps have no divisor in common with the number of kinds.
            let step = [1, 3, 7, 9][round % 4];
            for place in (0..KINDS.len()).map(|place| (place * step + round) % KINDS.len()) {
                let mut job = rank::job(workload.as_ref(), RANKS, None)?;
                job.settings.rule = KINDS[place].1;
                let report = launch(&job, Some(&interrupts), &mut ()).map_err(Failure::failed)?;
                seconds[place].push(report.wall.as_secs_f64());
            }
        }
        let [unlogged, others @ ..] = &seconds;
        for ((rule, _), taken) in KINDS[1..].iter().copied().zip(others) {
            let ratios = sorted(taken.iter().zip(unlogged).map(|(taken, unlogged)| taken / unlogged).collect());
            rows.push(Row {
                program,
                class: options.class.to_string(),
                ranks: RANKS,
                rule,
                ms: 1e3 * median(taken.clone()),
                ratio: quantile(&ratios, 0.5),
                ratio_p25: quantile(&ratios, 0.25),
                ratio_p75: quantile(&ratios, 0.75),
                rounds: options.rounds,
            });
        }
    }
    Ok(rows)
}

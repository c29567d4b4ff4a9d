//! Failure-free cost of each rule between local processes.

use counterfoil_protocols::RULES;
use counterfoil_protocols::api::{Bits, Rule, RuleOption};
use counterfoil_runtime::local::{Interrupts, launch};
use counterfoil_workloads::{Class, by_name};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::sample::{median, quantile, sorted};
use crate::{Failure, rank};

const PROGRAMS: [&str; 3] = ["cg", "ft", "laplace"];
/// Number of clusters, for rules with clusters.
const CLUSTERS: u32 = 2;

/// Returns the measured rules.
///
/// The first is the divisor for the others; the second repeats it, to show the spread between equal runs. The others
/// are all recovering rules, with each transport of a call's bits.
fn kinds() -> Vec<(String, Rule)> {
    let outlives_a_death = |rule: &Rule| rule.properties.recovers() || rule.properties.restarts_job;
    let (rules, baselines): (Vec<Rule>, Vec<Rule>) = RULES.into_iter().partition(outlives_a_death);
    let of_baseline =
        baselines.iter().flat_map(|rule| [(rule.name.to_owned(), *rule), (format!("{}, again", rule.name), *rule)]);
    let of_rule = |rule: Rule| match rule.takes(RuleOption::Bits) {
        true => Bits::ALL.map(|bits| (format!("{}, bits {}", rule.name, bits.name()), rule.with_bits(bits))).to_vec(),
        false => vec![(rule.name.to_owned(), rule.with_clusters(CLUSTERS))],
    };
    of_baseline.chain(rules.into_iter().flat_map(of_rule)).collect()
}

/// Measurement settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) rounds: u32,
    pub(super) class: Class,
}

/// Runs with one program and one rule.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    program: &'static str,
    class: String,
    ranks: u32,
    rule: String,
    /// Median wall time of the runs, in milliseconds; includes process start and end.
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
    let (kinds, mut rows) = (kinds(), Vec::new());
    // Steps coprime to the number of kinds: each round has its own order.
    let steps: Vec<usize> = (1..kinds.len()).filter(|step| gcd(*step, kinds.len()) == 1).collect();
    for program in PROGRAMS {
        let workload = by_name(program, options.class).map_err(Failure::failed)?;
        let mut seconds = vec![Vec::new(); kinds.len()];
        for round in 0..options.rounds as usize {
            progress.set_message(format!("{program}, round {} of {}", round + 1, options.rounds));
            let step = steps[round % steps.len()];
            for place in (0..kinds.len()).map(|place| (place * step + round) % kinds.len()) {
                let mut job = rank::job(workload.as_ref(), RANKS, None)?;
                job.settings.rule = kinds[place].1;
                let report = launch(&job, Some(&interrupts), &mut ()).map_err(Failure::failed)?;
                seconds[place].push(report.wall.as_secs_f64());
            }
        }
        let Some((unlogged, others)) = seconds.split_first() else { continue };
        for ((rule, _), taken) in kinds[1..].iter().zip(others) {
            let ratios = sorted(taken.iter().zip(unlogged).map(|(taken, unlogged)| taken / unlogged).collect());
            rows.push(Row {
                program,
                class: options.class.to_string(),
                ranks: RANKS,
                rule: rule.clone(),
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

/// Returns the greatest common divisor.
fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_measured_against_the_one_that_keeps_nothing() {
        let kinds = kinds();
        let names: Vec<&str> = kinds.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..3], ["unlogged", "unlogged, again", "sender-based"]);
        assert!(RULES.iter().all(|rule| kinds.iter().any(|(_, measured)| measured.name == rule.name)));
        assert!(names.contains(&"coordinated, bits piggybacked") && names.len() == RULES.len() + 2, "{names:?}");
    }
}

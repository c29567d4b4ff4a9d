//! Jobs that are started again when a rank is lost, under a rule by which the others save their states
//! ([`Properties::restarts_job`](counterfoil_protocols::api::Properties::restarts_job)).
//!
//! Such a rule keeps no messages, so that nothing is to be replayed and a program that can't rebuild its state is lost:
//! the world here is one of its own, with a program that can, connections that tell of a peer's end or don't, a
//! launcher that learns of each end late, and states that are written in parts, fail to be written, and are removed
//! when no failure needs them. Processes die at any event: while they start, rebuild, wait for the commit, or save.
//! Under a rule that keeps states in memory nothing is written, and who dies while it changes its state leaves none.

mod program;
mod world;

use std::ops::Range;

use counterfoil_protocols::api::Rule;

use world::{End, World};

/// Limits of random runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most ranks; at least 2.
    pub ranks_max: u32,
    /// Most iterations of the program.
    pub iterations_max: usize,
    /// Most kills.
    pub kills_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { ranks_max: 5, iterations_max: 8, kills_max: 5 }
    }
}

/// What runs have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Killed processes.
    pub kills: u64,
    /// Restarts of the job.
    pub restarts: u64,
    /// ... with states that were loaded before, since the recovery wasn't committed.
    pub loaded_again: u64,
    /// ... without any state.
    pub begun_anew: u64,
    /// ... with one state lost.
    pub lost_one: u64,
    /// ... with more than one.
    pub lost_two: u64,
    /// Processes that exited without saving a state that wasn't rebuilt.
    pub withheld: u64,
    /// Runs that ended since too much was lost.
    pub refused: u64,
    /// Runs that ended with the right result.
    pub right: u64,
}

/// Result of many runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// First violations, at most 16, each with its seed.
    pub violations: Vec<(u64, String)>,
    /// Runs with a violation.
    pub failed: u64,
    /// What all runs have met.
    pub coverage: Coverage,
}

/// Runs the job of a seed. Returns what it has met, or the violation.
///
/// # Errors
/// The first violation, as a sentence.
pub fn run(rule: &Rule, config: &Config, seed: u64) -> Result<Coverage, String> {
    let mut world = World::new(rule, config, seed)?;
    let end = world.run()?;
    let right = u64::from(end == End::Right);
    Ok(Coverage { right, ..world.coverage })
}

/// Runs the job of each seed.
pub fn campaign(rule: &Rule, config: &Config, seeds: Range<u64>) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        match run(rule, config, seed) {
            Ok(met) => summary.coverage.add(&met),
            Err(violation) => {
                summary.failed += 1;
                if summary.violations.len() < 16 {
                    summary.violations.push((seed, violation));
                }
            }
        }
    }
    summary
}

impl Coverage {
    fn add(&mut self, other: &Coverage) {
        let Coverage { kills, restarts, loaded_again, begun_anew, lost_one, lost_two, withheld, refused, right } =
            other;
        self.kills += kills;
        self.restarts += restarts;
        self.loaded_again += loaded_again;
        self.begun_anew += begun_anew;
        self.lost_one += lost_one;
        self.lost_two += lost_two;
        self.withheld += withheld;
        self.refused += refused;
        self.right += right;
    }
}

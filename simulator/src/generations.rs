//! Restarted jobs: after the loss of a rank, under a rule by which the others save their states
//! ([`Properties::restarts_job`](counterfoil_protocols::api::Properties::restarts_job)).
//!
//! Such a rule keeps no messages, so nothing is replayed and a program unable to rebuild its state is lost. Therefore
//! the world here is separate, with a program able to do so, connections with or without notice of a peer's end, a
//! launcher learning of each end late, and states written in parts, failing to be written, and removed when no failure
//! needs them. Processes die at any event: while they start, rebuild, wait for the commit, or save. Under a rule
//! keeping states in memory nothing is written, and a process dying while it changes its state leaves none.

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
    /// Most program iterations.
    pub iterations_max: usize,
    /// Most kills.
    pub kills_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config { ranks_max: 5, iterations_max: 8, kills_max: 5 }
    }
}

/// Counters of the cases reached by runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Killed processes.
    pub kills: u64,
    /// Job restarts.
    pub restarts: u64,
    /// Restarts with states loaded before, since the recovery wasn't committed.
    pub loaded_again: u64,
    /// Restarts without any state.
    pub begun_anew: u64,
    /// Restarts with one state lost.
    pub lost_one: u64,
    /// Restarts with more than one state lost.
    pub lost_two: u64,
    /// Processes exiting without saving a state not yet rebuilt.
    pub withheld: u64,
    /// Runs ended because too much was lost.
    pub refused: u64,
    /// Runs ended with the right result.
    pub right: u64,
}

/// Result of many runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// First violations, at most 16, each with its seed.
    pub violations: Vec<(u64, String)>,
    /// Runs with a violation.
    pub failed: u64,
    /// Counters of all runs.
    pub coverage: Coverage,
}

/// Runs the job of a seed and returns its counters, or the violation.
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

//! Campaigns: many schedules in a row.

use std::ops::Range;

use counterfoil_protocols::api::Rule;
use serde::{Deserialize, Serialize};

use super::coverage::Coverage;
use super::run;
use super::schedule::Config;
use super::settings::Settings;
use super::violation::Violation;
use crate::random::mix;

/// Failed schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Schedule seed.
    pub seed: u64,
    /// Schedule as text.
    pub schedule: String,
    /// Violation found.
    pub violation: Violation,
}

/// Campaign result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Number of schedules run.
    pub schedules: u64,
    /// Number of failed schedules.
    pub failed: u64,
    /// First failures, at most [`Summary::FAILURES_MAX`].
    pub failures: Vec<Failure>,
    /// Counters of all runs together.
    pub coverage: Coverage,
    /// Settings of all schedules.
    pub settings: Settings,
    /// Hash over all runs: equal for equal seeds and limits.
    pub fingerprint: u64,
}

impl Summary {
    /// Largest number of failures kept.
    pub const FAILURES_MAX: usize = 16;

    /// Adds a campaign over the following seeds.
    pub fn add(&mut self, next: &Summary) {
        self.schedules += next.schedules;
        self.failed += next.failed;
        let room = Summary::FAILURES_MAX.saturating_sub(self.failures.len());
        self.failures.extend(next.failures.iter().take(room).cloned());
        self.coverage.add(&next.coverage);
        self.settings.add(&next.settings);
        self.fingerprint = mix(self.fingerprint.rotate_left(7) ^ next.fingerprint);
    }
}

/// Campaign progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Number of schedules run.
    pub schedules: u64,
    /// Number of schedules in the whole campaign.
    pub of: u64,
    /// Number of failed schedules.
    pub failed: u64,
}

/// Runs the schedule of each seed in turn, and calls `on_progress` after each.
///
/// A failure doesn't end it.
pub fn campaign(rule: &Rule, seeds: Range<u64>, config: &Config, mut on_progress: impl FnMut(Progress)) -> Summary {
    let coordinator = rule.properties.has_coordinator;
    let of = seeds.end.saturating_sub(seeds.start);
    let mut summary = Summary::default();
    for seed in seeds {
        let schedule = config.schedule(seed, coordinator);
        let outcome = run(rule, &schedule);
        summary.schedules += 1;
        summary.settings.count(&schedule, coordinator);
        summary.coverage.add(&outcome.coverage);
        summary.fingerprint = mix(summary.fingerprint.rotate_left(7) ^ outcome.fingerprint);
        if let Some(violation) = outcome.violation {
            summary.failed += 1;
            if summary.failures.len() < Summary::FAILURES_MAX {
                summary.failures.push(Failure { seed, schedule: schedule.to_string(), violation });
            }
        }
        on_progress(Progress { schedules: summary.schedules, of, failed: summary.failed });
    }
    summary
}

//! Measurement of what the rules cost while nothing fails: the plan that a launcher passes to a job, and what it returns.

use counterfoil_runtime::{LogTier, Rule};
use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the workload.
    pub workload: String,
    /// Problem class of the workload: S, W or A.
    pub class: String,
    /// Number of runs under each rule.
    pub rounds: u32,
    /// Storage of the logs.
    pub tier: LogTier,
    /// Rules, in the order of the runs of a round; `None` is a run without any.
    pub rules: Vec<Option<Rule>>,
}

/// Runs under one rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The rule; `None` for runs without any, which are the control.
    pub rule: Option<Rule>,
    /// Length of each run in seconds.
    pub seconds: Vec<f64>,
    /// For each run: its length by the mean length of the runs without a rule before and after it.
    pub ratios: Vec<f64>,
}

//! Workload outcome: its answer, and the verification result.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Workload outcome, the same on all ranks except for [`Outcome::digest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// `true` if the answer is the known one; `None` if none is known.
    pub verified: Option<bool>,
    /// Answer, for display.
    pub value: Value,
    /// XXH3-64 of this rank's exact final result.
    ///
    /// All runs on the same number of ranks have the same digest.
    pub digest: u64,
}

/// Workload answer, for display.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Anything else.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The shortest text that parses to the same number.
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// Combines all ranks' digests, in rank order, into one for the job.
pub fn job_digest(outcomes: &[Outcome]) -> u64 {
    let digests: Vec<u8> = outcomes.iter().flat_map(|outcome| outcome.digest.to_le_bytes()).collect();
    xxh3_64(&digests)
}

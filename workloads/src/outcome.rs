//! What a workload found, and whether that is the known answer.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// What a workload found. The same on all ranks but for [`Outcome::digest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the answer is the known one; `None` if none is known.
    pub verified: Option<bool>,
    /// The answer, for people.
    pub value: Value,
    /// XXH3-64 of the exact bytes of this rank's final result. Every run on as many ranks gives the same digest.
    pub digest: u64,
}

/// An answer, for people.
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
            // The shortest text that reads back as the same number.
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// One digest for a job, from those of its ranks in rank order.
pub fn job_digest(outcomes: &[Outcome]) -> u64 {
    let digests: Vec<u8> = outcomes.iter().flat_map(|outcome| outcome.digest.to_le_bytes()).collect();
    xxh3_64(&digests)
}

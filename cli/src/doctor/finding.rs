//! Result of one check.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

/// State of a checked feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Present and sufficient.
    Good,
    /// Logging works without it, or with limitations.
    Lacking,
    /// Logging doesn't work without it.
    Missing,
}

/// A checked feature.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// Feature name, one or two words.
    what: &'static str,
    pub(super) state: State,
    /// Description of the result.
    found: String,
    /// Remedy; present unless the state is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// Machine-readable details.
    #[serde(flatten)]
    figures: Map<String, Value>,
}

impl Finding {
    pub(super) fn new(what: &'static str, found: impl Into<String>, figures: Value) -> Finding {
        let figures = if let Value::Object(figures) = figures { figures } else { Map::new() };
        Finding { what, state: State::Good, found: found.into(), advice: None, figures }
    }

    pub(super) fn with_advice(mut self, state: State, advice: impl Into<String>) -> Finding {
        self.state = state;
        self.advice = Some(advice.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.state {
            State::Good => "good",
            State::Lacking => "lacking",
            State::Missing => "missing",
        };
        write!(f, "{:<14} {mark:<8} {}", self.what, self.found)?;
        if let Some(advice) = &self.advice {
            write!(f, "\n{:<14} {:<8} {advice}", "", "->")?;
        }
        Ok(())
    }
}

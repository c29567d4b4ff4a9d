//! What is said of one thing.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Good,
    /// It works without, or with less.
    Lacking,
    /// Nothing works without.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// One or two words.
    what: &'static str,
    pub(super) state: State,
    /// What there is, for people.
    found: String,
    /// What to do about what lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// What there is, for programs.
    #[serde(flatten)]
    figures: Map<String, Value>,
}

impl Finding {
    pub(super) fn new(what: &'static str, found: impl Into<String>, figures: Value) -> Finding {
        let figures = if let Value::Object(figures) = figures { figures } else { Map::new() };
        Finding { what, state: State::Good, found: found.into(), advice: None, figures }
    }

    pub(super) fn but(mut self, state: State, advice: impl Into<String>) -> Finding {
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

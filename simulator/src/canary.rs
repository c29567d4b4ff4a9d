//! Canaries in text: their names in a schedule's line, and in serialised form.

use std::fmt;

use counterfoil_canaries as canaries;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

use super::schedule::Canary;

/// Writes the name of a rule's mistake.
pub(crate) fn serialize<S: Serializer>(canary: &canaries::Canary, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(canary.name())
}

/// Reads the name of a rule's mistake.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<canaries::Canary, D::Error> {
    let name = String::deserialize(deserializer)?;
    let unknown = || D::Error::custom(format_args!("no canary has the name {name:?}"));
    canaries::Canary::named(&name).ok_or_else(unknown)
}

impl Canary {
    /// Returns the name of its variant: `DropRecord`, `PhaseNotRaised`. No two have the same.
    pub fn variant(self) -> String {
        match self {
            Canary::Rule(canary) => canary.name().to_owned(),
            own => format!("{own:?}"),
        }
    }
}

/// Writes its name in a schedule's text: `DropRecord`, `send-deterministic/PhaseNotRaised`.
impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Canary::Rule(canary) => write!(f, "{}/{canary}", canary.family().replace('_', "-")),
            own => write!(f, "{own:?}"),
        }
    }
}

//! The names of a rule's own canaries, in a schedule's text and in what is serialised.

use counterfoil_protocols::send_deterministic::Canary;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// The canary of this name.
pub(super) fn by_name(name: &str) -> Option<Canary> {
    Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name)
}

pub(super) fn serialize<S: Serializer>(canary: &Canary, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{canary:?}"))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Canary, D::Error> {
    let name = String::deserialize(deserializer)?;
    by_name(&name).ok_or_else(|| D::Error::custom(format_args!("no canary has the name {name:?}")))
}

/// The same of the pessimistic rule's.
pub(super) mod pessimistic {
    use counterfoil_protocols::pessimistic::Canary;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// The canary of this name.
    pub(in crate::sim) fn by_name(name: &str) -> Option<Canary> {
        Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name)
    }

    pub(in crate::sim) fn serialize<S: Serializer>(canary: &Canary, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{canary:?}"))
    }

    pub(in crate::sim) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Canary, D::Error> {
        let name = String::deserialize(deserializer)?;
        by_name(&name).ok_or_else(|| D::Error::custom(format_args!("no canary has the name {name:?}")))
    }
}

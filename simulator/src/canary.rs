//! Names of the canaries of a rule, in a schedule's text and in serialised form.

use counterfoil_protocols::send_deterministic::Canary;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Returns the canary of this name.
pub(crate) fn by_name(name: &str) -> Option<Canary> {
    Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name)
}

pub(crate) fn serialize<S: Serializer>(canary: &Canary, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{canary:?}"))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Canary, D::Error> {
    let name = String::deserialize(deserializer)?;
    by_name(&name).ok_or_else(|| D::Error::custom(format_args!("no canary has the name {name:?}")))
}

/// Names of the pessimistic rule's canaries.
pub(crate) mod pessimistic {
    use counterfoil_protocols::pessimistic::Canary;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Returns the canary of this name.
    pub(crate) fn by_name(name: &str) -> Option<Canary> {
        Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name)
    }

    pub(crate) fn serialize<S: Serializer>(canary: &Canary, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{canary:?}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Canary, D::Error> {
        let name = String::deserialize(deserializer)?;
        by_name(&name).ok_or_else(|| D::Error::custom(format_args!("no canary has the name {name:?}")))
    }
}

/// Names of the event logging rule's canaries.
pub(crate) mod event_logging {
    use counterfoil_protocols::event_logging::Canary;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Returns the canary of this name.
    pub(crate) fn by_name(name: &str) -> Option<Canary> {
        Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name)
    }

    pub(crate) fn serialize<S: Serializer>(canary: &Canary, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{canary:?}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Canary, D::Error> {
        let name = String::deserialize(deserializer)?;
        by_name(&name).ok_or_else(|| D::Error::custom(format_args!("no canary has the name {name:?}")))
    }
}

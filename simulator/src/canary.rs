//! Names of the canaries of the rules, in a schedule's text and in serialised form.

/// Makes the module with the names of a rule's canaries.
macro_rules! names {
    ($($(#[$doc:meta])* $rule:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) mod $rule {
            use counterfoil_protocols::$rule::Canary;
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
    )*};
}

names! {
    /// Names of the send-deterministic rule's canaries.
    send_deterministic;
    /// Names of the pessimistic rule's canaries.
    pessimistic;
    /// Names of the user-level rule's canaries.
    user_level;
    /// Names of the coordinated rule's canaries.
    coordinated;
    /// Names of the event logging rule's canaries.
    event_logging;
}

//! Canaries of the rules: their names in a schedule's text and in serialised form, and which rule each belongs to.

use std::fmt;

use super::schedule::Canary;

/// Makes, for each rule with canaries, the module with their names, and the text form of all.
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident: $variant:ident, $prefix:literal;)*) => {
        $(
            $(#[$doc])*
            pub(crate) mod $rule {
                use counterfoil_protocols::$rule::Canary;
                use serde::de::Error;
                use serde::{Deserialize, Deserializer, Serializer};

                /// Returns the planted mistake, if it is one of this rule.
                pub(crate) fn planted(canary: Option<super::Canary>) -> Option<Canary> {
                    match canary {
                        Some(super::Canary::$variant(canary)) => Some(canary),
                        _ => None,
                    }
                }

                pub(crate) fn serialize<S: Serializer>(canary: &Canary, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(&format_args!("{canary:?}"))
                }

                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Canary, D::Error> {
                    let name = String::deserialize(deserializer)?;
                    let found = Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name);
                    found.ok_or_else(|| D::Error::custom(format_args!("no canary has the name {name:?}")))
                }
            }
        )*

        impl Canary {
            /// Returns the prefix of its rule, empty for a mistake of the simulator, and the name of its variant.
            fn prefix_and_variant(self) -> (&'static str, String) {
                match self {
                    $(Canary::$variant(canary) => ($prefix, format!("{canary:?}")),)*
                    own => ("", format!("{own:?}")),
                }
            }
        }
    };
}

rules! {
    /// Canaries of the send-deterministic rule.
    send_deterministic: SendDeterministic, "send-deterministic/";
    /// Canaries of the pessimistic rule.
    pessimistic: Pessimistic, "pessimistic/";
    /// Canaries of the user-level rule.
    user_level: UserLevel, "user-level/";
    /// Canaries of the coordinated rule.
    coordinated: Coordinated, "coordinated/";
    /// Canaries of event logging and message tagging.
    chandy_lamport: ChandyLamport, "chandy-lamport/";
}

impl Canary {
    /// Returns the name of its variant: `DropRecord`, `PhaseNotRaised`. No two have the same.
    pub fn variant(self) -> String {
        self.prefix_and_variant().1
    }
}

/// Writes its name in a schedule's text: `DropRecord`, `send-deterministic/PhaseNotRaised`.
impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, variant) = self.prefix_and_variant();
        write!(f, "{prefix}{variant}")
    }
}

//! Canaries: planted mistakes in the simulator and the rules, to be found by the oracles.
//!
//! Present only in builds with the feature `planted`.

use std::fmt;

#[cfg(feature = "planted")]
use counterfoil_canaries as canaries;
use counterfoil_protocols::api::Rule;
use serde::{Deserialize, Serialize};

/// Makes the enumeration of planted mistakes from the simulator's own, each with a description of its misbehaviour.
macro_rules! canaries {
    ($($variant:ident: $description:literal,)*) => {
        /// Planted mistake in the simulator or a rule, to prove the oracles find it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Canary {
            $(
                #[doc = $description]
                $variant,
            )*
            /// Mistake in a rule.
            #[cfg(feature = "planted")]
            Rule(#[serde(with = "by_name")] canaries::Canary),
        }

        impl Canary {
            /// All simulator mistakes.
            pub const ALL: [Canary; [$($description),*].len()] = [$(Canary::$variant),*];

            /// Describes its misbehaviour in a sentence.
            pub fn description(self) -> &'static str {
                match self {
                    $(Canary::$variant => $description,)*
                    #[cfg(feature = "planted")]
                    Canary::Rule(canary) => canary.description(),
                }
            }
        }
    };
}

canaries! {
    DropRecord: "The log loses one record in three, once it was transmitted.",
    ForgetPending: "A checkpoint lacks the messages that were received and not taken.",
    ForgetLog: "A checkpoint lacks the log.",
    ForgetChoices: "Outcomes that the program doesn't determine are not recorded.",
    DeliverDead: "A message of a dead incarnation is delivered.",
    DeliverDuplicate: "A duplicate is delivered.",
    FreeOneMore: "One record too many is freed.",
    SkipOne: "A replay begins one record too late.",
    DurableEarly: "A checkpoint is reported durable when its writing begins.",
    FreeNothing: "Nothing is freed.",
}

impl Canary {
    /// `true` in builds that plant mistakes.
    pub const PLANTED: bool = cfg!(feature = "planted");

    /// Returns the mistakes plantable in this build: the simulator's and all rules', or none.
    pub fn every() -> impl Iterator<Item = Canary> {
        #[cfg(feature = "planted")]
        let of_rules = canaries::Canary::ALL.map(Canary::Rule);
        #[cfg(not(feature = "planted"))]
        let of_rules = [];
        Canary::ALL.into_iter().filter(|_| Canary::PLANTED).chain(of_rules)
    }

    /// Returns `true` for a rule's mistake, `false` for the simulator's.
    pub fn is_of_a_rule(self) -> bool {
        match self {
            #[cfg(feature = "planted")]
            Canary::Rule(_) => true,
            _ => false,
        }
    }

    /// Returns `true` if the mistake can change anything in a run of this rule.
    ///
    /// Among rules' mistakes, only its own can.
    pub fn applies_to(self, rule: &Rule) -> bool {
        match self {
            #[cfg(feature = "planted")]
            Canary::Rule(canary) => canary.applies_to(rule.name),
            #[cfg(feature = "planted")]
            own => !canaries::without_effect(rule.name).any(|name| name == own.variant()),
            #[cfg(not(feature = "planted"))]
            _ => {
                let _ = rule;
                false
            }
        }
    }

    /// Returns its variant name, unique: `DropRecord`, `PhaseNotRaised`.
    pub fn variant(self) -> String {
        match self {
            #[cfg(feature = "planted")]
            Canary::Rule(canary) => canary.name().to_owned(),
            own => format!("{own:?}"),
        }
    }

    /// Returns its command-line name, unique: `drop-record`, `phase-not-raised`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for character in self.variant().chars() {
            if character.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(character.to_ascii_lowercase());
        }
        name
    }
}

/// Writes its name in a schedule's text: `DropRecord`, `send-deterministic/PhaseNotRaised`.
impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "planted")]
            Canary::Rule(canary) => write!(f, "{}/{canary}", canary.family().replace('_', "-")),
            own => write!(f, "{own:?}"),
        }
    }
}

/// Serialized form of a rule's mistake.
#[cfg(feature = "planted")]
mod by_name {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::canaries::Canary;

    pub(super) fn serialize<S: Serializer>(canary: &Canary, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(canary.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Canary, D::Error> {
        let name = String::deserialize(deserializer)?;
        Canary::named(&name).ok_or_else(|| D::Error::custom(format_args!("no canary has the name {name:?}")))
    }
}

//! The rules of [`counterfoil_protocols`] with planted mistakes: canaries, which the simulator's oracles and the tests
//! must find.
//!
//! The rules themselves know nothing of them. `mistakes/*.toml` lists each mistake with the code that is right and the
//! code that is wrong, and the build script writes the modules of this crate: the sources of the rules without
//! comments, where each such place tests whether its mistake is planted. A mistake whose code isn't found in the rule,
//! or is found twice, fails the build.
//!
//! [`Canary::plant`] plants one on the present thread. Without it the rules here do as those of
//! [`counterfoil_protocols`], whose [`api`] they implement; all other types are their own, and [`rules::RULES`] lists
//! them under the same names.
//!
//! ```
//! use counterfoil_canaries::Canary;
//!
//! let canary = Canary::named("PhaseNotRaised").ok_or("unknown")?;
//! assert_eq!(canary.family(), "send_deterministic");
//! let planted = canary.plant();
//! // Rules that run here, on this thread, make the mistake.
//! drop(planted);
//! # Ok::<(), &str>(())
//! ```
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

#[doc(no_inline)]
pub use counterfoil_protocols::{api, forward_protocol};

thread_local! {
    static PLANTED: Cell<Option<Canary>> = const { Cell::new(None) };
}

/// `true` if this mistake is planted; its name is that of a [`Canary`].
macro_rules! planted {
    ($name:ident) => {
        crate::is_planted(crate::Canary::$name)
    };
}

// `Canary`, `ABOUT` and `FAMILIES`.
include!(concat!(env!("OUT_DIR"), "/canary.rs"));

// The modules of the rules.
include!(concat!(env!("OUT_DIR"), "/rules.rs"));

/// What the list says of a mistake.
struct About {
    name: &'static str,
    family: &'static str,
    rules: &'static [&'static str],
    description: &'static str,
}

/// What the list says of the rules of a file.
struct Family {
    rules: &'static [&'static str],
    without_effect: &'static [&'static str],
}

/// Returns the names of the simulator's own mistakes that can change nothing in a run of a rule.
pub fn without_effect(rule: &str) -> impl Iterator<Item = &'static str> {
    FAMILIES
        .iter()
        .filter(move |family| family.rules.contains(&rule))
        .flat_map(|family| family.without_effect.iter().copied())
}

impl Canary {
    /// Returns the mistake of this name: `PhaseNotRaised`.
    pub fn named(name: &str) -> Option<Canary> {
        Canary::ALL.into_iter().find(|canary| canary.name() == name)
    }

    /// Returns its name, `PhaseNotRaised`. No two have the same.
    pub fn name(self) -> &'static str {
        ABOUT[self as usize].name
    }

    /// Returns the module of the rules that have it: `send_deterministic`.
    pub fn family(self) -> &'static str {
        ABOUT[self as usize].family
    }

    /// Returns what it does wrong, and where the paper has it, as a sentence.
    pub fn description(self) -> &'static str {
        ABOUT[self as usize].description
    }

    /// Returns `true` if the rule of this name can make it.
    pub fn applies_to(self, rule: &str) -> bool {
        ABOUT[self as usize].rules.contains(&rule)
    }

    /// Plants the mistake in all rules on this thread, instead of any other, until the value is dropped.
    #[must_use = "the mistake is planted until this is dropped"]
    pub fn plant(self) -> Planted {
        Planted { before: PLANTED.replace(Some(self)), thread: PhantomData }
    }
}

/// Writes its name.
impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Planted mistake. When it is dropped, the one before is planted again, if there was one.
#[derive(Debug)]
pub struct Planted {
    before: Option<Canary>,
    /// Belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.set(self.before);
    }
}

fn is_planted(canary: Canary) -> bool {
    PLANTED.get() == Some(canary)
}

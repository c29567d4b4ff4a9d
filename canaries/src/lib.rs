//! The rules from [`counterfoil_protocols`] with planted mistakes: canaries, to be found by the simulator's oracles and
//! the tests.
//!
//! The rules themselves don't depend on the mistakes. `mistakes/*.toml` lists each mistake with the right and the wrong
//! code, and the build script writes the modules in this crate: the rules without comments, in which each such place
//! tests whether its mistake is planted. A mistake whose code isn't found in the rule, or is found twice, fails the
//! build.
//!
//! [`Canary::plant`] plants one on the present thread. Without it the rules here behave like the rules in
//! [`counterfoil_protocols`]. They implement the same [`api`]; all other types are their own, and [`rules::RULES`]
//! lists them under the same names.
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

/// `true` if this mistake is planted, given by its [`Canary`] name.
macro_rules! planted {
    ($name:ident) => {
        crate::is_planted(crate::Canary::$name)
    };
}

// `Canary`, `ABOUT` and `FAMILIES`.
include!(concat!(env!("OUT_DIR"), "/canary.rs"));

// Modules with the rules.
include!(concat!(env!("OUT_DIR"), "/rules.rs"));

/// Data in the list on a mistake.
struct About {
    name: &'static str,
    family: &'static str,
    rules: &'static [&'static str],
    description: &'static str,
}

/// Data in the list on the rules in a file.
struct Family {
    rules: &'static [&'static str],
    without_effect: &'static [&'static str],
}

/// Returns the names of the simulator's own mistakes without effect in runs of a rule.
pub fn without_effect(rule: &str) -> impl Iterator<Item = &'static str> {
    FAMILIES
        .iter()
        .filter(move |family| family.rules.contains(&rule))
        .flat_map(|family| family.without_effect.iter().copied())
}

impl Canary {
    /// Returns the mistake with this name, such as `PhaseNotRaised`.
    pub fn named(name: &str) -> Option<Canary> {
        Canary::ALL.into_iter().find(|canary| canary.name() == name)
    }

    /// Returns its name, such as `PhaseNotRaised`.
    ///
    /// Names are unique.
    pub fn name(self) -> &'static str {
        ABOUT[self as usize].name
    }

    /// Returns the module of the rules with this mistake, such as `send_deterministic`.
    pub fn family(self) -> &'static str {
        ABOUT[self as usize].family
    }

    /// Returns the wrong behaviour and its place in the paper, as a sentence.
    pub fn description(self) -> &'static str {
        ABOUT[self as usize].description
    }

    /// Returns `true` if the rule with this name can make it.
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

/// A planted mistake.
///
/// Dropping it plants the previous one again, if there was one.
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

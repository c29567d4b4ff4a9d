//! The simulator, instantiated for each rule of the workspace.
//!
//! A program that chooses a rule while it runs uses these in place of [`run`] and its like. They are compiled here, once, and not in
//! each crate that uses them.
//!
//! ```
//! use counterfoil_simulator::{Config, engine};
//!
//! let schedule = Config::default().schedule(7, engine::PLAIN.coordinator);
//! assert_eq!((engine::PLAIN.run)(&schedule).violation, None);
//! ```

use std::ops::Range;

use super::campaign::{Summary, campaign};
use super::program::Pattern;
use super::recording::Recorded;
use super::rule::{Coordinated, EventLog, Pessimistic, Plain, SendDet, SimRule, Tagging, UserLevel};
use super::schedule::{Canary, Config, Schedule};
use super::shrink::{Shrunk, shrink};
use super::{Outcome, record, run, transcript};

/// Simulator instantiated for a rule.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// The rule has a coordinator, a node apart from the ranks that can fail.
    pub coordinator: bool,
    /// The coordinator acts when it is asked to: it collects, or begins a line of checkpoints.
    pub collects: bool,
    /// Frames of an older connection may arrive after a newer one is made.
    pub late: bool,
    /// Programs may depend on the order of receives.
    pub ordered: bool,
    /// Messages may be presented out of order.
    pub overtaking: bool,
    /// Checkpoints may be due by the clock of each rank.
    pub clocks: bool,
    /// Returns the patterns of a campaign.
    pub patterns: fn() -> Vec<Pattern>,
    /// Returns `true` if a canary has an effect.
    pub applies: fn(Canary) -> bool,
    /// Runs the schedules of a range of seeds, as [`campaign`] does.
    pub campaign: fn(Range<u64>, &Config) -> Summary,
    /// As [`run`].
    pub run: fn(&Schedule) -> Outcome,
    /// As [`transcript`].
    pub transcript: fn(&Schedule) -> (Outcome, Vec<String>),
    /// As [`record`].
    pub record: fn(&Schedule) -> (Outcome, Vec<Recorded>),
    /// As [`shrink`].
    pub shrink: fn(&Schedule, u32) -> Option<Shrunk>,
}

impl Engine {
    const fn of<P: SimRule>(ordered: bool) -> Engine {
        Engine {
            coordinator: P::PROPERTIES.has_coordinator,
            collects: P::COLLECTS,
            late: P::LATE,
            ordered,
            overtaking: P::OVERTAKING,
            clocks: P::CLOCKS,
            patterns: P::patterns,
            applies: P::is_affected_by,
            campaign: |seeds, config| campaign::<P>(seeds, config, |_| {}),
            run: run::<P>,
            transcript: transcript::<P>,
            record: record::<P>,
            shrink: shrink::<P>,
        }
    }
}

/// Sender-based logging that records the outcomes of wildcard receives.
pub static PLAIN: Engine = Engine::of::<Plain>(true);
/// Sender-based logging that records the receive order of each rank instead of outcomes.
pub static PESSIMISTIC: Engine = Engine::of::<Pessimistic>(true);
/// Guermouche 2011.
pub static SEND_DETERMINISTIC: Engine = Engine::of::<SendDet>(false);
/// Liu 2014 (ULML).
pub static USER_LEVEL: Engine = Engine::of::<UserLevel>(true);
/// Bronevetsky et al. (C3).
pub static COORDINATED: Engine = Engine::of::<Coordinated<true, false>>(true);
/// The same, with a collective's two bits on its data.
pub static COORDINATED_PIGGYBACKED: Engine = Engine::of::<Coordinated<true, true>>(true);
/// The same, with checkpoints only where the program offers them, and the bits on the data.
pub static COORDINATED_OFFERED: Engine = Engine::of::<Coordinated<false, true>>(true);
/// Zhao 2005 (libELC), event logging.
pub static EVENT_LOGGING: Engine = Engine::of::<EventLog>(true);
/// Zhao 2005 (libELC), message tagging.
pub static MESSAGE_TAGGING: Engine = Engine::of::<Tagging>(true);

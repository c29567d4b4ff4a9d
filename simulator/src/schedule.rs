//! Schedules: everything determining a run, to make it repeatable.

use serde::{Deserialize, Serialize};

use super::canary::Canary;
use super::program::{Pattern, Program, Shape};
use crate::random::Random;

/// Choice of the next event among the possible ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Mode {
    /// Choose with equal probability, except for a quarter of all transitions, which are slow, and for frames left
    /// under way by dead incarnations.
    Uniform,
    /// Always choose the highest priority.
    ///
    /// Priorities are drawn, one for each rank's program, each channel and each other transition; at this many moments
    /// the highest falls below all others. Follows probabilistic concurrency testing (Burckhardt et al. 2010): few
    /// moments reach cases needing one very late transition.
    Priorities {
        /// Number of falls.
        falls: u32,
    },
    /// Choose with equal probability, but stall one channel for a while so many times.
    ///
    /// Nothing goes on the wire there, or nothing arrives, unless nothing else is possible. Half the stalls begin soon
    /// after a death, so replays come when their receiver has long gone on.
    Stalls {
        /// Number of stalls.
        stalls: u32,
    },
    /// Choose as listed: index among the possible events, modulo their number, and 0 once the list is exhausted.
    ///
    /// A run's choices are in its [`Outcome`](super::Outcome); a list can be shrunk.
    Listed(Vec<u32>),
}

/// Part of a rank's log surviving its process.
///
/// Checkpoints and recorded choices survive it in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Tier {
    /// Only the contents of checkpoints.
    Volatile,
    /// All committed records.
    ProcessCrashSafe,
}

/// Process death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fault {
    /// Event number, from 0, before which it dies; the end of the run if it comes earlier.
    ///
    /// A rank already dead at the time dies again as soon as it has been replaced.
    pub at: u64,
    /// Rank to die; the one after the last is the coordinator, if the protocol has one.
    ///
    /// Taken modulo their number.
    pub node: u32,
    /// Seed of the random parts: which messages in flight still arrive, and whether a checkpoint in progress is
    /// durable.
    pub seed: u64,
    /// Number of effects before death within an event, if any.
    ///
    /// `Some(n)`: it dies in the first event from `at` on with more than `n` effects requested by its protocol, after
    /// `n` of them were carried out.
    pub effects: Option<u32>,
}

/// Input determining a run.
///
/// Its [`Display`](std::fmt::Display) is one line, read back by [`FromStr`](std::str::FromStr).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    /// Program parameters.
    pub shape: Shape,
    /// Part of the log surviving a process.
    pub tier: Tier,
    /// Choice of events.
    pub mode: Mode,
    /// Seed of the choice; ignored for a list.
    pub seed: u64,
    /// Deaths, in any order.
    pub faults: Vec<Fault>,
    /// Number of collections begun by the coordinator before the end; at the end it always begins some.
    pub collections: u32,
    /// Number of clusters of ranks; 0 is no division.
    pub clusters: u32,
    /// `true` if, under a rule rolling back living ranks, frames from an older connection can still arrive after a
    /// newer one is made, until its Hello was handled.
    ///
    /// Otherwise the older one is closed at once, as `counterfoil_protocols::api` promises.
    pub late: bool,
    /// `true` if the replacement of a rank breaks all connections between living ranks, which then connect again.
    ///
    /// Everything in flight on them is lost, as when an MPI job is repaired by revoking its communicator.
    pub revoked: bool,
    /// `true` if programs don't name receives with several possible messages, so a rule needing those names doesn't get
    /// them.
    pub unnamed: bool,
    /// `true` if programs give their state only where they offer a checkpoint, each due or not by the rank's own clock.
    ///
    /// The rule hears of those due, and in a held call of the impossibility of one there.
    pub clocks: bool,
    /// `true` if programs go on while their checkpoint is written.
    ///
    /// The next one may then be taken before it is durable, and replaces it.
    pub background: bool,
    /// `true` if a message can overtake earlier ones with other tags on its channel.
    ///
    /// This happens where a driver presents messages when the application takes them. For rules presenting messages in
    /// any order.
    pub overtaking: bool,
    /// Planted mistake to be found.
    pub canary: Option<Canary>,
}

/// Parameters for a campaign's schedules: every number in it is a limit, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Patterns to choose from; all, if it is empty.
    pub patterns: Vec<Pattern>,
    /// Fewest and most ranks, within 2 and [`Shape::RANKS_MAX`].
    pub ranks: (u32, u32),
    /// Fewest and most rounds.
    pub rounds: (u32, u32),
    /// Fewest and most faults.
    pub faults: (u32, u32),
    /// `true` if ranks take checkpoints, in three of four schedules.
    pub checkpoints: bool,
    /// `true` if half the programs depend on the order of takes ([`Shape::ordered`]).
    ///
    /// For rules forcing recorded outcomes.
    pub ordered: bool,
    /// `true` if the log survives its process in half the schedules ([`Tier::ProcessCrashSafe`]).
    pub surviving_logs: bool,
    /// `true` if the coordinator dies too, in protocols that have one.
    pub coordinator_faults: bool,
    /// Fewest and most collections.
    pub collections: (u32, u32),
    /// Fewest and most clusters; 0 is no division.
    pub clusters: (u32, u32),
    /// [`Schedule::late`], in half the schedules.
    ///
    /// For rules allowing it.
    pub late: bool,
    /// [`Schedule::revoked`], in half the schedules.
    pub revoked: bool,
    /// [`Schedule::unnamed`], in all schedules.
    pub unnamed: bool,
    /// [`Schedule::clocks`], in half the schedules.
    ///
    /// For rules allowing it.
    pub clocks: bool,
    /// [`Schedule::background`], in half the schedules.
    pub background: bool,
    /// [`Schedule::overtaking`], in half the schedules.
    pub overtaking: bool,
    /// Largest [`Fault::effects`], set in a third of the faults; `None`: no process dies within an event.
    pub effects: Option<u32>,
    /// Planted mistake to be found.
    pub canary: Option<Canary>,
}

impl Default for Config {
    /// Returns all patterns, 2 to 6 ranks, up to 4 rounds, 1 to 3 faults, with all random options enabled.
    fn default() -> Config {
        Config {
            patterns: Pattern::ALL.to_vec(),
            ranks: (2, 6),
            rounds: (1, 4),
            faults: (1, 3),
            checkpoints: true,
            ordered: true,
            surviving_logs: true,
            coordinator_faults: true,
            collections: (0, 0),
            clusters: (0, 0),
            late: false,
            revoked: false,
            unnamed: false,
            clocks: false,
            background: true,
            overtaking: false,
            effects: Some(Config::EFFECTS),
            canary: None,
        }
    }
}

impl Schedule {
    /// Largest number of collections.
    pub const COLLECTIONS_MAX: u32 = 64;
}

impl Config {
    /// Largest [`Fault::effects`], unless another one is wanted.
    pub const EFFECTS: u32 = 2;

    /// Returns a seed's schedule.
    ///
    /// `coordinator`: one more node can die.
    pub fn schedule(&self, seed: u64, coordinator: bool) -> Schedule {
        let mut random = Random::new(seed);
        let patterns = if self.patterns.is_empty() { &Pattern::ALL[..] } else { &self.patterns };
        let pattern = patterns[random.index(patterns.len())];
        let ranks = random.between(self.ranks.0, self.ranks.1).clamp(2, Shape::RANKS_MAX);
        let shape = Shape {
            pattern,
            ranks: pattern.fixed_ranks().unwrap_or(ranks),
            rounds: random.between(self.rounds.0, self.rounds.1).clamp(1, Shape::ROUNDS_MAX),
            seed: random.next(),
            checkpoint_one_in: if self.checkpoints { [0, 1, 1, 2][random.index(4)] } else { 0 },
            ordered: self.ordered && random.one_in(2),
        };
        let falls = random.between(0, 6);
        let mode = match random.below(4) {
            0 | 2 => Mode::Uniform,
            1 => Mode::Priorities { falls },
            _ => Mode::Stalls { stalls: 1 + falls },
        };
        let survives = self.surviving_logs && random.one_in(2);
        let length = Program::draw(&shape).events_estimate();
        let nodes = shape.ranks + u32::from(coordinator && self.coordinator_faults);
        Schedule {
            shape,
            tier: if survives { Tier::ProcessCrashSafe } else { Tier::Volatile },
            mode,
            seed: random.next(),
            faults: self.draw_faults(&mut random, length, nodes),
            collections: random.between(self.collections.0, self.collections.1).min(Schedule::COLLECTIONS_MAX),
            clusters: random.between(self.clusters.0, self.clusters.1).min(shape.ranks),
            late: self.late && random.one_in(2),
            revoked: self.revoked && random.one_in(2),
            unnamed: self.unnamed,
            background: self.background && random.one_in(2),
            overtaking: self.overtaking && random.one_in(2),
            clocks: self.clocks && random.one_in(2),
            canary: self.canary,
        }
    }

    /// Draws faults.
    ///
    /// A third of those after the first come soon after the previous one, a sixth at the same moment; a third hit the
    /// same node again.
    fn draw_faults(&self, random: &mut Random, length: u64, nodes: u32) -> Vec<Fault> {
        let mut faults: Vec<Fault> = Vec::new();
        for _ in 0..random.between(self.faults.0, self.faults.1) {
            let (at, node, seed) = (random.below(length), random.between(0, nodes - 1), random.next());
            let mut of_seed = Random::new(seed);
            let effects = self.effects.filter(|_| of_seed.one_in(3)).map(|most| of_seed.between(0, most));
            let mut fault = Fault { at, node, seed, effects };
            if let Some(before) = faults.last() {
                match random.below(6) {
                    0 | 1 => fault.at = before.at + random.below(40),
                    2 => fault.at = before.at,
                    _ => {}
                }
                if random.one_in(3) {
                    fault.node = before.node;
                }
            }
            faults.push(fault);
        }
        faults
    }
}

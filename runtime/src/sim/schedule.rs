//! A schedule: everything that a run follows from, so that it can be repeated.

use counterfoil_protocols::{pessimistic, send_deterministic};
use serde::{Deserialize, Serialize};

use super::program::{Pattern, Program, Shape};
use crate::random::Random;

/// How the next event is chosen among those that are possible.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Mode {
    /// With the same chance, but for a quarter of all things, which are slow, and for what dead incarnations have left
    /// under way.
    Uniform,
    /// Always that of the highest priority. Priorities are drawn, one for each rank's program, each channel and each
    /// other thing that can happen; at this many moments the highest falls below all others. After the probabilistic
    /// concurrency testing of Burckhardt et al. 2010: few moments reach what needs one thing to be very late.
    Priorities {
        /// How often a priority falls.
        falls: u32,
    },
    /// With the same chance, but so many times one channel stands still for a while: nothing goes on the wire there, or
    /// nothing arrives, unless nothing else is possible. Half of these times begin soon after a death, so that what is
    /// replayed comes when its receiver has long gone on.
    Stalls {
        /// How often.
        stalls: u32,
    },
    /// As listed: the position among the possible events; taken modulo their number, and 0 once the list is exhausted.
    /// What a run has chosen is in its [`Outcome`](super::Outcome); a list is what can be shrunk.
    Listed(Vec<u32>),
}

/// What of a rank's log survives its process. Checkpoints and recorded choices survive it in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Tier {
    /// Nothing: only what is in a checkpoint.
    Volatile,
    /// All that was committed.
    ProcessCrashSafe,
}

/// A process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fault {
    /// Before the event of this number, from 0. If the run would end before, then at its end. A rank that is dead at
    /// the time dies again as soon as it has been replaced.
    pub at: u64,
    /// Which rank; the one after the last is the coordinator, if the protocol has one. Taken modulo their number.
    pub node: u32,
    /// What is left to chance in it: which of the messages in flight still arrive, whether a checkpoint that was being
    /// written is durable.
    pub seed: u64,
}

/// An error that is made on purpose, to prove that the oracles find such errors: the simulator's, or one that a rule has for
/// this purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Canary {
    /// The log loses one record in three, once it was transmitted.
    DropRecord,
    /// A checkpoint lacks the messages that were received and not taken.
    ForgetPending,
    /// A checkpoint lacks the log.
    ForgetLog,
    /// Outcomes that the program doesn't determine are not recorded.
    ForgetChoices,
    /// A message of a dead incarnation is delivered.
    DeliverDead,
    /// A duplicate is delivered.
    DeliverDuplicate,
    /// One record more is freed than may be.
    FreeOneMore,
    /// A replay begins one record too late.
    SkipOne,
    /// A checkpoint is called durable when its writing begins.
    DurableEarly,
    /// Nothing is freed.
    FreeNothing,
    /// One of the send-deterministic rule's own.
    SendDeterministic(#[serde(with = "super::canary")] send_deterministic::Canary),
    /// One of the pessimistic rule's own.
    Pessimistic(#[serde(with = "super::canary::pessimistic")] pessimistic::Canary),
}

impl Canary {
    /// All of the simulator's.
    pub const ALL: [Canary; 10] = [
        Canary::DropRecord,
        Canary::ForgetPending,
        Canary::ForgetLog,
        Canary::ForgetChoices,
        Canary::DeliverDead,
        Canary::DeliverDuplicate,
        Canary::FreeOneMore,
        Canary::SkipOne,
        Canary::DurableEarly,
        Canary::FreeNothing,
    ];

    /// All of the send-deterministic rule's.
    pub fn of_send_deterministic() -> impl Iterator<Item = Canary> {
        send_deterministic::Canary::ALL.into_iter().map(Canary::SendDeterministic)
    }

    /// All of the pessimistic rule's.
    pub fn of_pessimistic() -> impl Iterator<Item = Canary> {
        pessimistic::Canary::ALL.into_iter().map(Canary::Pessimistic)
    }

    /// The simulator's, and those of all rules.
    pub fn every() -> impl Iterator<Item = Canary> {
        Canary::ALL.into_iter().chain(Canary::of_send_deterministic()).chain(Canary::of_pessimistic())
    }

    /// Whether it is a rule's own, and none of the simulator's.
    pub fn is_of_a_rule(self) -> bool {
        matches!(self, Canary::SendDeterministic(_) | Canary::Pessimistic(_))
    }

    /// Its name on a command line: `drop-record`, `phase-not-raised`. No two have the same.
    pub fn name(self) -> String {
        let variant = match self {
            Canary::SendDeterministic(canary) => format!("{canary:?}"),
            Canary::Pessimistic(canary) => format!("{canary:?}"),
            own => format!("{own:?}"),
        };
        let mut name = String::new();
        for character in variant.chars() {
            if character.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(character.to_ascii_lowercase());
        }
        name
    }
}

/// Everything that a run follows from. Its [`Display`](std::fmt::Display) is one line that
/// [`FromStr`](std::str::FromStr) reads back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    /// The program.
    pub shape: Shape,
    /// What survives a process.
    pub tier: Tier,
    /// How events are chosen.
    pub mode: Mode,
    /// The seed of the choosing; of no meaning in a list.
    pub seed: u64,
    /// Who dies when, in any order.
    pub faults: Vec<Fault>,
    /// How often the coordinator begins to find out what may be freed, before the end; there it always does.
    pub collections: u32,
    /// Into how many clusters the ranks are divided; 0 is no division.
    pub clusters: u32,
    /// In rules that [reconnect](super::SimProtocol::RECONNECTS): whether frames of an older connection can still arrive when a
    /// newer one is made, until its Hello is heard. Without, an older one is closed at once, as the protocols' frame promises.
    pub late: bool,
    /// Whether programs don't say where a receive can take one of several messages, so that a rule which asks for that isn't
    /// told.
    pub unnamed: bool,
    /// An error to be found.
    pub canary: Option<Canary>,
}

/// Which schedules a campaign draws: every number in it is a limit, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Patterns to choose from; all, if there is none.
    pub patterns: Vec<Pattern>,
    /// Fewest and most ranks, within 2 and [`Shape::RANKS_MAX`].
    pub ranks: (u32, u32),
    /// Fewest and most rounds.
    pub rounds: (u32, u32),
    /// Fewest and most faults.
    pub faults: (u32, u32),
    /// Whether ranks take checkpoints, in three of four schedules.
    pub checkpoints: bool,
    /// Whether half of the programs depend on the order in which messages are taken ([`Shape::ordered`]). For rules
    /// that force recorded outcomes.
    pub ordered: bool,
    /// Whether half of the schedules let the log survive its process ([`Tier::ProcessCrashSafe`]).
    pub surviving_logs: bool,
    /// Whether the coordinator dies too, in protocols that have one.
    pub coordinator_faults: bool,
    /// Fewest and most collections.
    pub collections: (u32, u32),
    /// Fewest and most clusters; 0 is no division.
    pub clusters: (u32, u32),
    /// [`Schedule::late`], in half of the schedules.
    pub late: bool,
    /// [`Schedule::unnamed`], in all schedules.
    pub unnamed: bool,
    /// An error to be found.
    pub canary: Option<Canary>,
}

impl Default for Config {
    /// All patterns, 2 to 6 ranks, up to 4 rounds, 1 to 3 faults, everything that is left to chance switched on.
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
            unnamed: false,
            canary: None,
        }
    }
}

impl Schedule {
    /// The most collections.
    pub const COLLECTIONS_MAX: u32 = 64;
}

impl Config {
    /// The schedule of a seed. `coordinator`: there is one more node that can die.
    pub fn schedule(&self, seed: u64, coordinator: bool) -> Schedule {
        let mut random = Random::new(seed);
        let patterns = if self.patterns.is_empty() { &Pattern::ALL[..] } else { &self.patterns };
        let shape = Shape {
            pattern: patterns[random.index(patterns.len())],
            ranks: random.between(self.ranks.0, self.ranks.1).clamp(2, Shape::RANKS_MAX),
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
            unnamed: self.unnamed,
            canary: self.canary,
        }
    }

    /// A third of the faults after the first come soon after the one before, a sixth at the same moment; a third hit
    /// the same node again.
    fn draw_faults(&self, random: &mut Random, length: u64, nodes: u32) -> Vec<Fault> {
        let mut faults: Vec<Fault> = Vec::new();
        for _ in 0..random.between(self.faults.0, self.faults.1) {
            let mut fault = Fault { at: random.below(length), node: random.between(0, nodes - 1), seed: random.next() };
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

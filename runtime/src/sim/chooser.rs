//! Chooses the next event.

use std::collections::BTreeMap;

use super::schedule::{Mode, Schedule};
use crate::random::{Random, mix};

/// Something that can happen next. Numbers are those of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A replacement starts.
    Start { node: u32 },
    /// `node` is told that `dead` has died.
    Notice { node: u32, dead: u32 },
    /// The next frame of a connection arrives.
    Arrive { from: u32, to: u32 },
    /// The next frame that a dead incarnation has left under way arrives.
    ArriveLate { from: u32, to: u32 },
    /// The next record of a lane goes on the wire.
    Transmit { from: u32, to: u32 },
    /// The application goes on.
    Step { node: u32 },
    /// The checkpoint that is being written is durable.
    Durable { node: u32 },
    /// The coordinator begins to find out what may be freed.
    Collect { node: u32 },
}

impl Turn {
    /// The same number for the same thing, whenever it can happen.
    pub(super) fn key(self) -> u64 {
        let (kind, a, b) = match self {
            Turn::Start { node } => (0, node, 0),
            Turn::Notice { node, dead } => (1, node, dead),
            Turn::Arrive { from, to } => (2, from, to),
            Turn::ArriveLate { from, to } => (3, from, to),
            Turn::Transmit { from, to } => (4, from, to),
            Turn::Step { node } => (5, node, 0),
            Turn::Durable { node } => (6, node, 0),
            Turn::Collect { node } => (7, node, 0),
        };
        kind << 40 | u64::from(a) << 20 | u64::from(b)
    }
}

#[derive(Debug)]
pub(super) enum Chooser {
    Uniform {
        random: Random,
        /// Which things are slow follows from it.
        seed: u64,
    },
    Priorities {
        seed: u64,
        /// At which events the highest falls, the next one last.
        falls: Vec<u64>,
        /// Who has fallen, and to where: the later, the lower.
        fallen: BTreeMap<u64, u64>,
    },
    Stalls {
        random: Random,
        /// Those that have yet to begin; the next one last.
        stalls: Vec<Stall>,
        /// What stands still, and until when.
        still: BTreeMap<u64, u64>,
        /// Those that can be chosen, by place.
        open: Vec<usize>,
    },
    Listed(Vec<u32>),
}

/// Priorities below this are of those that have fallen.
const FALLEN: u64 = 1 << 32;

/// So many events after a death, a stall begins that is near it.
const STALL_NEAR: u64 = 60;

/// A channel stands still for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    begin: u64,
    events: u64,
    channel: Turn,
}

impl Stall {
    fn draw(random: &mut Random, schedule: &Schedule, length: u64) -> Stall {
        let ranks = schedule.shape.ranks.max(2);
        let near = random.one_in(2).then(|| schedule.faults.get(random.index(schedule.faults.len()))).flatten();
        let (begin, to) = match near {
            Some(fault) => (fault.at.saturating_add(random.below(STALL_NEAR)), fault.node % ranks),
            None => (random.below(length), random.below(ranks.into()) as u32),
        };
        let from = (to + 1 + random.below(u64::from(ranks) - 1) as u32) % ranks;
        // What is replayed, or all that comes.
        let sends = near.is_some() || random.one_in(2);
        let channel = if sends { Turn::Transmit { from, to } } else { Turn::Arrive { from, to } };
        Stall { begin, events: 1 + random.below(length), channel }
    }
}

impl Chooser {
    /// `length`: about how many events there will be.
    pub(super) fn new(schedule: &Schedule, length: u64) -> Chooser {
        let Schedule { mode, seed, .. } = schedule;
        let mut random = Random::new(*seed);
        match mode {
            Mode::Uniform => Chooser::Uniform { seed: random.next(), random },
            Mode::Priorities { falls } => {
                let mut falls: Vec<u64> = (0..(*falls).min(1 << 16)).map(|_| random.below(length)).collect();
                falls.sort_unstable_by(|a, b| b.cmp(a));
                Chooser::Priorities { seed: random.next(), falls, fallen: BTreeMap::new() }
            }
            Mode::Stalls { stalls } => {
                let mut stalls: Vec<Stall> =
                    (0..(*stalls).min(1 << 16)).map(|_| Stall::draw(&mut random, schedule, length)).collect();
                stalls.sort_by_key(|stall| std::cmp::Reverse(stall.begin));
                Chooser::Stalls { random, stalls, still: BTreeMap::new(), open: Vec::new() }
            }
            Mode::Listed(choices) => Chooser::Listed(choices.clone()),
        }
    }

    /// The position of the turn that is chosen; there must be one.
    pub(super) fn choose(&mut self, turns: &[Turn], event: u64) -> usize {
        match self {
            Chooser::Uniform { random, seed } => {
                let place = random.index(turns.len());
                let late = matches!(turns[place], Turn::ArriveLate { .. });
                // Mostly another one instead, so that queues become long, and dead frames old.
                let slow = late || mix(*seed ^ turns[place].key()).is_multiple_of(4);
                if slow && !random.one_in(6) { random.index(turns.len()) } else { place }
            }
            Chooser::Priorities { seed, falls, fallen } => {
                let priority = |turn: &Turn, fallen: &BTreeMap<u64, u64>| {
                    let drawn = || mix(*seed ^ mix(turn.key())) | FALLEN;
                    fallen.get(&turn.key()).copied().unwrap_or_else(drawn)
                };
                let highest = |fallen: &BTreeMap<u64, u64>| {
                    let each = turns.iter().enumerate();
                    each.max_by_key(|(_, turn)| priority(turn, fallen)).map_or(0, |(place, _)| place)
                };
                while falls.pop_if(|at| *at <= event).is_some() {
                    let below = (FALLEN - 1).saturating_sub(event);
                    fallen.insert(turns[highest(fallen)].key(), below);
                }
                highest(fallen)
            }
            Chooser::Stalls { random, stalls, still, open } => {
                while let Some(stall) = stalls.pop_if(|stall| stall.begin <= event) {
                    still.insert(stall.channel.key(), event.saturating_add(stall.events));
                }
                still.retain(|_, until| *until > event);
                open.clear();
                open.extend((0..turns.len()).filter(|&place| !still.contains_key(&turns[place].key())));
                let place = random.index(if open.is_empty() { turns.len() } else { open.len() });
                open.get(place).copied().unwrap_or(place)
            }
            Chooser::Listed(choices) => {
                let choice = usize::try_from(event).ok().and_then(|event| choices.get(event));
                choice.map_or(0, |&choice| choice as usize % turns.len())
            }
        }
    }
}

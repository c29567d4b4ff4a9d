//! Scheduler: chooses the next transition.

use std::collections::BTreeMap;

use super::schedule::{Mode, Schedule};
use crate::random::{Random, mix};

/// Transition possible now, with node numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// A replacement starts.
    Start { node: u32 },
    /// `node` notices the death of `dead`.
    Notice { node: u32, dead: u32 },
    /// A connection's next frame arrives.
    Arrive { from: u32, to: u32 },
    /// The next frame left under way by a dead incarnation arrives.
    ArriveLate { from: u32, to: u32 },
    /// A lane's next record goes on the wire.
    Transmit { from: u32, to: u32 },
    /// The application takes its next step.
    Step { node: u32 },
    /// The checkpoint in progress becomes durable.
    Durable { node: u32 },
    /// The coordinator begins a collection.
    Collect { node: u32 },
}

impl Transition {
    /// Returns a number identifying the transition in the whole run.
    pub(crate) fn key(self) -> u64 {
        let (kind, a, b) = match self {
            Transition::Start { node } => (0, node, 0),
            Transition::Notice { node, dead } => (1, node, dead),
            Transition::Arrive { from, to } => (2, from, to),
            Transition::ArriveLate { from, to } => (3, from, to),
            Transition::Transmit { from, to } => (4, from, to),
            Transition::Step { node } => (5, node, 0),
            Transition::Durable { node } => (6, node, 0),
            Transition::Collect { node } => (7, node, 0),
        };
        kind << 40 | u64::from(a) << 20 | u64::from(b)
    }
}

#[derive(Debug)]
pub(crate) enum Chooser {
    Uniform {
        random: Random,
        /// Determines which transitions are slow.
        seed: u64,
    },
    Priorities {
        seed: u64,
        /// Events at which the highest priority falls, the next one last.
        falls: Vec<u64>,
        /// Fallen transitions with their new priorities: the later, the lower.
        fallen: BTreeMap<u64, u64>,
    },
    Stalls {
        random: Random,
        /// Future stalls; the next one last.
        stalls: Vec<Stall>,
        /// Stalled transitions, and the events ending their stalls.
        still: BTreeMap<u64, u64>,
        /// Indices of the unstalled transitions.
        open: Vec<usize>,
    },
    Listed(Vec<u32>),
}

/// Priorities below this belong to fallen transitions.
const FALLEN: u64 = 1 << 32;

/// Largest number of events from a death to a stall drawn near it.
const STALL_NEAR: u64 = 60;

/// Temporary stall of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    begin: u64,
    events: u64,
    channel: Transition,
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
        // Stall the transmissions, which near a death are replays, or the arrivals.
        let sends = near.is_some() || random.one_in(2);
        let channel = if sends { Transition::Transmit { from, to } } else { Transition::Arrive { from, to } };
        Stall { begin, events: 1 + random.below(length), channel }
    }
}

impl Chooser {
    /// `length`: estimated number of events.
    pub(crate) fn new(schedule: &Schedule, length: u64) -> Chooser {
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

    /// Returns the index of the chosen transition; requires at least one.
    pub(crate) fn choose(&mut self, transitions: &[Transition], event: u64) -> usize {
        match self {
            Chooser::Uniform { random, seed } => {
                let place = random.index(transitions.len());
                let late = matches!(transitions[place], Transition::ArriveLate { .. });
                // Mostly choose another one instead, so that queues become long, and dead frames old.
                let slow = late || mix(*seed ^ transitions[place].key()).is_multiple_of(4);
                if slow && !random.one_in(6) { random.index(transitions.len()) } else { place }
            }
            Chooser::Priorities { seed, falls, fallen } => {
                let priority = |transition: &Transition, fallen: &BTreeMap<u64, u64>| {
                    let drawn = || mix(*seed ^ mix(transition.key())) | FALLEN;
                    fallen.get(&transition.key()).copied().unwrap_or_else(drawn)
                };
                let highest = |fallen: &BTreeMap<u64, u64>| {
                    let each = transitions.iter().enumerate();
                    each.max_by_key(|(_, transition)| priority(transition, fallen)).map_or(0, |(place, _)| place)
                };
                while falls.pop_if(|at| *at <= event).is_some() {
                    let below = (FALLEN - 1).saturating_sub(event);
                    fallen.insert(transitions[highest(fallen)].key(), below);
                }
                highest(fallen)
            }
            Chooser::Stalls { random, stalls, still, open } => {
                while let Some(stall) = stalls.pop_if(|stall| stall.begin <= event) {
                    still.insert(stall.channel.key(), event.saturating_add(stall.events));
                }
                still.retain(|_, until| *until > event);
                open.clear();
                open.extend((0..transitions.len()).filter(|&place| !still.contains_key(&transitions[place].key())));
                let place = random.index(if open.is_empty() { transitions.len() } else { open.len() });
                open.get(place).copied().unwrap_or(place)
            }
            Chooser::Listed(choices) => {
                let choice = usize::try_from(event).ok().and_then(|event| choices.get(event));
                choice.map_or(0, |&choice| choice as usize % transitions.len())
            }
        }
    }
}

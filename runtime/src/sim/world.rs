//! Virtual ranks, network and time: one event after the other, until nothing can happen any more.

mod acting;
mod failing;
mod turns;

use counterfoil::{Incarnation, Rank};
use counterfoil_protocols::frame::Party;

use super::Outcome;
use super::chooser::{Chooser, Turn};
use super::coverage::Coverage;
use super::network::Network;
use super::oracle::Oracle;
use super::process::{Disk, Process, Ready};
use super::program::Program;
use super::protocol::SimProtocol;
use super::recording::{Happening, Witness};
use super::schedule::{Canary, Fault, Schedule};
use super::trace::{Event, Fingerprint};
use super::violation::{Violation, Wrong};

/// A place that processes come to and go from.
#[derive(Debug)]
struct Node<P> {
    process: Option<Box<Process<P>>>,
    disk: Disk,
    /// That of the present process, or of the next.
    incarnation: u32,
    /// Deaths that the process was not told of yet, a bit each.
    notices: u64,
    /// How far the application has ever come.
    furthest: u64,
}

/// A floor that is told and lost with its receiver is told again with the next one.
const COLLECTIONS_AT_REST: u32 = 2;

/// Everything there is in a run.
#[derive(Debug)]
pub(super) struct World<'a, P> {
    schedule: &'a Schedule,
    program: Program,
    nodes: Vec<Node<P>>,
    network: Network,
    oracle: Oracle,
    fingerprint: Fingerprint,
    coverage: Coverage,
    /// Time: how many events there were.
    event: u64,
    /// How often the coordinator has begun a collection.
    collections: u32,
    /// How many have begun since all was at rest for the first time.
    at_rest: u32,
    /// At which event the next one becomes possible.
    collection_at: u64,
    /// Those that have yet to strike.
    faults: Vec<Fault>,
    ready: Vec<Ready>,
    /// Nodes of which `ready` is out of date, a bit each.
    touched: u64,
    witness: Witness,
}

impl<'a, P: SimProtocol> World<'a, P> {
    /// Runs the schedule to its end, and adds to what the witness keeps.
    pub(super) fn run(schedule: &'a Schedule, witness: Witness) -> (Outcome, Witness) {
        let program = Program::draw(&schedule.shape);
        let count = program.ranks() + u32::from(P::COORDINATOR);
        let node = |_| Node { process: None, disk: Disk::default(), incarnation: 0, notices: 0, furthest: 0 };
        let mut faults = schedule.faults.clone();
        faults.sort_by_key(|fault| fault.at);
        let length = program.events_estimate();
        let mut world: World<'_, P> = World {
            oracle: Oracle::new(&program, P::RETENTION, P::REPETITION),
            schedule,
            program,
            nodes: (0..count).map(node).collect(),
            network: Network::new(count),
            fingerprint: Fingerprint::default(),
            coverage: Coverage::default(),
            event: 0,
            collections: 0,
            at_rest: 0,
            collection_at: 0,
            faults,
            ready: vec![Ready::default(); count as usize],
            touched: 0,
            witness,
        };
        let mut choices = Vec::new();
        let ended = world.play(length, &mut choices);
        let violation = ended.err().map(|wrong| Violation { event: world.event, wrong });
        world.coverage.events = world.event;
        (world.coverage.other_receive_epochs, world.coverage.orphans) = world.oracle.counted();
        let fingerprint = world.fingerprint.value();
        let outcome = Outcome { violation, coverage: world.coverage, fingerprint, choices };
        (outcome, world.witness)
    }

    fn play(&mut self, length: u64, choices: &mut Vec<u32>) -> Result<(), Wrong> {
        let mut chooser = Chooser::new(self.schedule, length);
        let Schedule { faults, collections, .. } = self.schedule;
        let events_max = 1000 + 20 * length * (faults.len() as u64 + u64::from(*collections) + 1);
        let between = length / (u64::from(*collections) + 1);
        self.collection_at = between;
        self.begin()?;
        let mut turns = Vec::new();
        loop {
            self.strike(false)?;
            self.list(&mut turns);
            if turns.is_empty() {
                if !self.faults.is_empty() {
                    self.strike(true)?;
                } else if P::COORDINATOR && self.at_rest < COLLECTIONS_AT_REST {
                    self.at_rest += 1;
                    self.collect(self.program.ranks(), None)?;
                } else {
                    return self.finish();
                }
                continue;
            }
            if self.event == events_max {
                return Err(Wrong::Endless { events: events_max });
            }
            let place = chooser.choose(&turns, self.event);
            choices.push(place as u32);
            if matches!(turns[place], Turn::Collect { .. }) {
                self.collection_at = self.event + between;
            }
            self.carry_out(turns[place])?;
            self.event += 1;
        }
    }

    /// Everything that can happen next, always in the same order.
    fn list(&mut self, turns: &mut Vec<Turn>) {
        turns.clear();
        for node in 0..self.nodes.len() as u32 {
            let Node { process, notices, .. } = &self.nodes[node as usize];
            let Some(process) = process else {
                turns.push(Turn::Start { node });
                continue;
            };
            if self.touched & 1 << node != 0 {
                let is_rank = node < self.program.ranks();
                let ready = if is_rank { process.ready(&self.program, node) } else { Ready::default() };
                self.ready[node as usize] = ready;
            }
            let Ready { outlets, step, durable } = self.ready[node as usize];
            let (arriving, late) = self.network.arriving(node);
            turns.extend(bits(*notices).map(|dead| Turn::Notice { node, dead }));
            turns.extend(bits(arriving).map(|from| Turn::Arrive { from, to: node }));
            turns.extend(bits(late).map(|from| Turn::ArriveLate { from, to: node }));
            turns.extend(bits(outlets).map(|to| Turn::Transmit { from: node, to }));
            turns.extend(step.then_some(Turn::Step { node }));
            turns.extend(durable.then_some(Turn::Durable { node }));
            let collects = node >= self.program.ranks() && self.collections < self.schedule.collections;
            turns.extend((collects && self.event >= self.collection_at).then_some(Turn::Collect { node }));
        }
        self.touched = 0;
    }

    /// Nothing can happen any more: is all as it should be?
    fn finish(&mut self) -> Result<(), Wrong> {
        let ranks = 0..self.program.ranks();
        let unfinished = |&rank: &u32| {
            let process = self.nodes[rank as usize].process.as_ref();
            !process.is_some_and(|process| process.is_finished(&self.program, rank))
        };
        let waiting: Vec<u32> = ranks.clone().filter(unfinished).collect();
        if !waiting.is_empty() {
            return Err(Wrong::Deadlock { ranks: waiting });
        }
        let recovering = |&node: &u32| {
            let process = self.nodes[node as usize].process.as_ref();
            process.is_some_and(|process| process.protocol.is_recovering())
        };
        let nodes: Vec<u32> = (0..self.nodes.len() as u32).filter(recovering).collect();
        if !nodes.is_empty() {
            return Err(Wrong::Recovering { nodes });
        }
        for rank in ranks.clone() {
            for peer in ranks.clone().filter(|&peer| peer != rank) {
                let process = self.nodes[rank as usize].process.as_ref();
                let records = process.map_or(0, |process| process.image.lanes[peer as usize].retained());
                self.note(Event::Retained { rank, peer, records })?;
                let process = self.nodes[rank as usize].process.as_ref();
                if let Some(sizes) = process.and_then(|process| process.protocol.table_sizes(Rank(peer))) {
                    self.note(Event::Tables { rank, peer, sizes })?;
                }
            }
        }
        self.oracle.finish()
    }

    fn note(&mut self, event: Event) -> Result<(), Wrong> {
        self.witness.note(self.event, event);
        self.fingerprint.note(self.event, event);
        self.oracle.note(event)
    }

    /// A line of the story, if anybody wants it.
    fn tell(&mut self, line: impl FnOnce() -> String) {
        self.witness.tell(self.event, line);
    }

    /// For whoever looks at the run; the oracles don't hear of it.
    fn record(&mut self, what: Happening) {
        self.witness.record(self.event, what);
    }

    fn canary(&self, canary: Canary) -> bool {
        self.schedule.canary == Some(canary)
    }

    /// Under which incarnation the living process of a node presents itself.
    fn incarnation(&self, node: u32) -> Option<Incarnation> {
        let Node { process, incarnation, .. } = &self.nodes[node as usize];
        process.as_ref().map(|process| process.protocol.incarnation(Incarnation(*incarnation)))
    }

    fn lives(&self, node: u32) -> bool {
        self.nodes[node as usize].process.is_some()
    }

    fn party(&self, node: u32) -> Party {
        if node < self.program.ranks() { Party::Rank(Rank(node)) } else { Party::Coordinator }
    }

    /// The number of a party; `None` if there is none such in this run.
    fn node_of(&self, party: Party) -> Option<u32> {
        let ranks = self.program.ranks();
        match party {
            Party::Rank(Rank(rank)) => (rank < ranks).then_some(rank),
            Party::Coordinator => P::COORDINATOR.then_some(ranks),
        }
    }
}

/// The numbers of the bits that are set, ascending.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(lowest)
    })
}

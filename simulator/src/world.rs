//! The run: virtual ranks, network and time, one event after the other until nothing can happen any more.

mod collectives;
mod connections;
mod effects;
mod failures;
mod lines;
mod transitions;

use counterfoil_log_core::{Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{Moment, Party, Rule};

use super::Outcome;
use super::call::Calls;
use super::canary::Canary;
use super::chooser::{Chooser, Transition};
use super::coverage::Coverage;
use super::damage::{Damage, Damages};
use super::network::Network;
use super::oracle::Oracle;
use super::process::{Disk, Machine, Process, Ready};
use super::program::Program;
use super::recording::{Activity, Recorder};
use super::schedule::{Fault, Schedule};
use super::trace::{Event, Fingerprint};
use super::violation::{Violation, ViolationKind};

/// Place of a rank or the coordinator, with its successive processes.
#[derive(Debug)]
struct Node {
    process: Option<Box<Process>>,
    disk: Disk,
    /// Incarnation of the current process, or of the next.
    incarnation: u32,
    /// Deaths not yet noticed by the process, a bit each.
    notices: u64,
    /// The application's farthest progress so far.
    furthest: u64,
    /// By peer: last message transmitted by any process of the node.
    transmitted: Vec<Ssn>,
}

/// Number of collections at the end: a floor lost with its receiver is sent again by the next one.
const COLLECTIONS_AT_REST: u32 = 2;

/// Run state.
#[derive(Debug)]
pub(crate) struct World<'a> {
    rule: Rule,
    schedule: &'a Schedule,
    program: Program,
    nodes: Vec<Node>,
    network: Network,
    calls: Calls,
    oracle: Oracle,
    fingerprint: Fingerprint,
    coverage: Coverage,
    /// Number of events so far, which is the time.
    event: u64,
    /// Number of collections begun by the coordinator.
    collections: u32,
    /// Number of collections begun since nothing else moved for the first time.
    at_rest: u32,
    /// Event at which the next collection becomes possible.
    collection_at: u64,
    /// Future faults.
    faults: Vec<Fault>,
    /// Number of effects carried out in the current event; `None` where none may be interrupted.
    effects: Option<u32>,
    /// Fault within the current event.
    struck: Option<Fault>,
    damages: Damages,
    ready: Vec<Ready>,
    /// Nodes with an outdated `ready`, a bit each.
    touched: u64,
    recorder: Recorder,
}

impl<'a> World<'a> {
    /// Runs the schedule to its end, and adds to the recorder.
    ///
    /// Also returns the number of damages not done.
    pub(crate) fn run(
        rule: Rule,
        schedule: &'a Schedule,
        recorder: Recorder,
        damages: Vec<Damage>,
    ) -> (Outcome, Recorder, usize) {
        let program = Program::draw(&schedule.shape);
        let count = program.ranks() + u32::from(rule.properties.has_coordinator);
        let node = |_| Node {
            process: None,
            disk: Disk::default(),
            incarnation: 0,
            notices: 0,
            furthest: 0,
            transmitted: vec![Ssn::ZERO; count as usize],
        };
        let mut faults = schedule.faults.clone();
        faults.sort_by_key(|fault| fault.at);
        let length = program.events_estimate();
        let mut world: World<'_> = World {
            calls: Calls::new(program.ranks()),
            oracle: Oracle::new(&program, rule.properties, schedule.clusters.min(program.ranks())),
            rule,
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
            effects: None,
            struck: None,
            damages: Damages::new(damages),
            ready: vec![Ready::default(); count as usize],
            touched: 0,
            recorder,
        };
        let mut choices = Vec::new();
        let ended = world.play(length, &mut choices);
        let violation = ended.err().map(|kind| Violation { event: world.event, kind });
        world.coverage.events = world.event;
        (world.coverage.other_receive_epochs, world.coverage.orphans) = world.oracle.counted();
        let fingerprint = world.fingerprint.value();
        let outcome = Outcome { violation, coverage: world.coverage, fingerprint, choices };
        (outcome, world.recorder, world.damages.left())
    }

    fn play(&mut self, length: u64, choices: &mut Vec<u32>) -> Result<(), ViolationKind> {
        let mut chooser = Chooser::new(self.schedule, length);
        let Schedule { faults, collections, .. } = self.schedule;
        let events_max = 1000 + 20 * length * (faults.len() as u64 + u64::from(*collections) + 1);
        let between = length / (u64::from(*collections) + 1);
        self.collection_at = between;
        self.begin()?;
        let mut transitions = Vec::new();
        loop {
            self.apply_faults(false)?;
            self.list(&mut transitions);
            if transitions.is_empty() {
                if !self.faults.is_empty() {
                    self.apply_faults(true)?;
                } else if self.rule.properties.has_coordinator && self.at_rest < COLLECTIONS_AT_REST {
                    self.at_rest += 1;
                    self.collect(self.program.ranks(), None)?;
                } else {
                    return self.finish();
                }
                continue;
            }
            if self.event == events_max {
                return Err(ViolationKind::Endless { events: events_max });
            }
            let place = chooser.choose(&transitions, self.event);
            choices.push(place as u32);
            if matches!(transitions[place], Transition::Collect { .. }) {
                self.collection_at = self.event + between;
            }
            self.apply(transitions[place])?;
            self.event += 1;
        }
    }

    /// Lists the possible transitions, always in the same order.
    fn list(&mut self, transitions: &mut Vec<Transition>) {
        transitions.clear();
        for node in 0..self.nodes.len() as u32 {
            let Node { process, notices, .. } = &self.nodes[node as usize];
            let Some(process) = process else {
                transitions.push(Transition::Start { node });
                continue;
            };
            if self.touched & 1 << node != 0 {
                let is_rank = node < self.program.ranks();
                let ready = if is_rank {
                    process.ready(&self.program, node, (self.schedule.background, self.schedule.clocks), &self.calls)
                } else {
                    Ready::default()
                };
                self.ready[node as usize] = ready;
            }
            let Ready { cursors, step, durable } = self.ready[node as usize];
            let (arriving, late) = self.network.arriving(node);
            transitions.extend(bits(*notices).map(|dead| Transition::Notice { node, dead }));
            transitions.extend(bits(arriving).map(|from| Transition::Arrive { from, to: node }));
            transitions.extend(bits(late).map(|from| Transition::ArriveLate { from, to: node }));
            transitions.extend(bits(cursors).map(|to| Transition::Transmit { from: node, to }));
            transitions.extend(step.then_some(Transition::Step { node }));
            transitions.extend(durable.then_some(Transition::Durable { node }));
            let collects = node >= self.program.ranks() && self.collections < self.schedule.collections;
            transitions.extend((collects && self.event >= self.collection_at).then_some(Transition::Collect { node }));
        }
        self.touched = 0;
    }

    /// Checks the state when nothing can happen any more.
    fn finish(&mut self) -> Result<(), ViolationKind> {
        let ranks = 0..self.program.ranks();
        let unfinished = |&rank: &u32| {
            let process = self.nodes[rank as usize].process.as_ref();
            !process.is_some_and(|process| process.is_finished(&self.program, rank))
        };
        let waiting: Vec<u32> = ranks.clone().filter(unfinished).collect();
        if !waiting.is_empty() {
            return Err(ViolationKind::Deadlock { ranks: waiting });
        }
        let recovering = |&node: &u32| {
            let process = self.nodes[node as usize].process.as_ref();
            process.is_some_and(|process| process.is_recovering())
        };
        let nodes: Vec<u32> = (0..self.nodes.len() as u32).filter(recovering).collect();
        if !nodes.is_empty() {
            return Err(ViolationKind::Recovering { nodes });
        }
        // A line may stay open if programs offer no more checkpoints for it.
        let settles = self.rule.options.moment == Moment::AnyTime;
        for node in self.nodes.iter().filter(|_| settles) {
            if let Some(Machine::Coordinator(coordinator)) = node.process.as_ref().map(|process| &process.machine)
                && let Some(what) = coordinator.waits_for()
            {
                return Err(ViolationKind::Unsettled { what });
            }
        }
        for rank in ranks.clone() {
            for peer in ranks.clone().filter(|&peer| peer != rank) {
                let process = self.nodes[rank as usize].process.as_ref();
                let records = process.map_or(0, |process| process.image.lanes[peer as usize].retained());
                self.note(Event::Retained { rank, peer, records })?;
                let process = self.nodes[rank as usize].process.as_ref();
                if let Some(sizes) = process.and_then(|process| process.rank()?.inspect().table_sizes(Rank(peer))) {
                    self.note(Event::Tables { rank, peer, sizes })?;
                }
            }
        }
        self.oracle.finish()
    }

    fn note(&mut self, event: Event) -> Result<(), ViolationKind> {
        self.recorder.note(self.event, event);
        self.fingerprint.note(self.event, event);
        self.oracle.note(event)
    }

    /// Adds a line to the log, if one is kept.
    fn log(&mut self, line: impl FnOnce() -> String) {
        self.recorder.log(self.event, line);
    }

    /// Adds to the recording; the oracles don't see it.
    fn record(&mut self, what: Activity) {
        self.recorder.record(self.event, what);
    }

    fn canary(&self, canary: Canary) -> bool {
        // Compiled away from builds without canaries.
        Canary::PLANTED && self.schedule.canary == Some(canary)
    }

    /// Returns the incarnation in the Hellos of a node's living process.
    fn incarnation(&self, node: u32) -> Option<Incarnation> {
        let Node { process, incarnation, .. } = &self.nodes[node as usize];
        process.as_ref().map(|process| process.incarnation(Incarnation(*incarnation)))
    }

    fn lives(&self, node: u32) -> bool {
        self.nodes[node as usize].process.is_some()
    }

    fn party(&self, node: u32) -> Party {
        if node < self.program.ranks() { Party::Rank(Rank(node)) } else { Party::Coordinator }
    }

    /// Returns a party's number; `None` if absent from this run.
    fn node_of(&self, party: Party) -> Option<u32> {
        let ranks = self.program.ranks();
        match party {
            Party::Rank(Rank(rank)) => (rank < ranks).then_some(rank),
            Party::Coordinator => self.rule.properties.has_coordinator.then_some(ranks),
        }
    }
}

/// Returns the indices of the set bits, ascending.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(lowest)
    })
}

//! The event logging rule, event by event: two ranks, their coordinator, and what they ask for.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Rank};
use counterfoil_protocols::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, Coordinator, DiscardReason, Effect, EntryKey, EntryKind, Incoming,
    Party, Protocol, Snapshot, command_header,
};
use counterfoil_protocols::chandy_lamport::{Config, LineCoordinator};
use counterfoil_protocols::event_logging::EventLogging;

const RANKS: u32 = 2;

/// Rank, with its checkpoints and its local log.
struct Node {
    rank: EventLogging,
    checkpoints: BTreeMap<Epoch, Vec<u8>>,
    entries: BTreeMap<EntryKey, Vec<u8>>,
    wants_checkpoint: bool,
    resumed: bool,
}

/// Job whose control messages arrive at once, unless they are withheld.
struct Job {
    nodes: Vec<Node>,
    coordinator: LineCoordinator,
    /// Requests that have yet to arrive: destination, header, body.
    requests: Vec<(Rank, WireHeader, Vec<u8>)>,
}

impl Job {
    fn new() -> Job {
        let node = |rank| {
            let rank = EventLogging::new(Config::new(Rank(rank), RANKS, Incarnation(0))).unwrap();
            let first = rank.first_checkpoint().unwrap();
            let checkpoints = BTreeMap::from([(first.epoch, first.tables)]);
            Node { rank, checkpoints, entries: BTreeMap::new(), wants_checkpoint: false, resumed: false }
        };
        let mut job = Job {
            nodes: (0..RANKS).map(node).collect(),
            coordinator: LineCoordinator::new(RANKS, 0),
            requests: Vec::new(),
        };
        for (a, b) in [(0, 1), (1, 0)] {
            let hello = job.nodes[a].rank.hello(Rank(b as u32)).unwrap();
            job.nodes[b].rank.handle_hello(Rank(a as u32), &hello).unwrap();
        }
        job.settle();
        assert!(job.nodes.iter().all(|node| node.rank.is_running()));
        job
    }

    /// Carries out effects, and delivers control messages between ranks and coordinator, until there are none.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            while let Some((to, body)) = self.coordinator.poll_message() {
                let header = command_header(to, &body);
                self.nodes[to.index()].rank.handle_control(Party::Coordinator, &header, &body).unwrap();
                moved = true;
            }
            for place in 0..self.nodes.len() {
                while let Some(effect) = self.nodes[place].rank.poll_effect() {
                    self.carry_out(place, effect);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn carry_out(&mut self, place: usize, effect: Effect) {
        let node = &mut self.nodes[place];
        match effect {
            Effect::Transmit { to: Party::Coordinator, body, .. } => {
                self.coordinator.handle_control(Rank(place as u32), &body).unwrap();
            }
            Effect::Transmit { to: Party::Rank(to), header, body } => self.requests.push((to, header, body)),
            Effect::KeepEntry { entry, bytes } => drop(node.entries.insert(entry, bytes)),
            Effect::DiscardEntries { kind, first, last } => {
                node.entries.retain(|key, _| key.kind != kind || !(first..=last).contains(&key.number));
            }
            Effect::KeepCheckpoints { first, last } => {
                node.checkpoints.retain(|epoch, _| (first..=last).contains(epoch));
            }
            Effect::RollBack { epoch } => {
                let tables = node.checkpoints[&epoch].clone();
                node.rank.restore(&tables, *node.checkpoints.keys().next().unwrap()).unwrap();
                node.recover();
            }
            Effect::SealLog { epoch } => node.rank.handle_log_sealed(epoch).unwrap(),
            Effect::TakeCheckpoint => node.wants_checkpoint = true,
            Effect::Resume => node.resumed = true,
            Effect::Replay { .. } | Effect::DiscardChoices { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, from: u32, tag: i32) -> WireHeader {
        let envelope = Envelope { source: Rank(from), destination: Rank(1 - from), tag, comm: 0, len: 0 };
        let mut header = self.nodes[from as usize].rank.handle_send(&envelope).unwrap().header;
        self.nodes[from as usize].rank.handle_transmit(&mut header).unwrap();
        header
    }

    fn arrive(&mut self, header: WireHeader) -> Incoming {
        let node = &mut self.nodes[header.destination().index()];
        let verdict = node.rank.handle_message(&header).unwrap();
        if let Incoming::Deliver { keep: Some(entry) } = verdict {
            node.entries.insert(entry, header.as_bytes().to_vec());
        }
        self.settle();
        verdict
    }

    /// Takes a checkpoint, which is durable at once.
    fn checkpoint(&mut self, rank: usize) {
        let node = &mut self.nodes[rank];
        let Snapshot { epoch, tables } = node.rank.handle_checkpoint().unwrap();
        node.checkpoints.insert(epoch, tables);
        node.wants_checkpoint = false;
        node.rank.handle_checkpoint_durable(epoch).unwrap();
        self.settle();
    }

    /// Lets all requests arrive.
    fn deliver_requests(&mut self) {
        for (to, header, body) in std::mem::take(&mut self.requests) {
            let from = Party::Rank(header.source());
            self.nodes[to.index()].rank.handle_control(from, &header, &body).unwrap();
        }
        self.settle();
    }

    /// Replaces a rank: all go back.
    fn replace(&mut self, place: usize, incarnation: u32) {
        let config = Config::new(Rank(place as u32), RANKS, Incarnation(incarnation));
        let node = &mut self.nodes[place];
        node.rank = EventLogging::new(config).unwrap();
        let (newest, oldest) = (node.checkpoints.last_key_value().unwrap(), node.checkpoints.keys().next().unwrap());
        node.rank.restore(newest.1, *oldest).unwrap();
        node.recover();
        self.settle();
        self.requests.clear();
    }

    fn committed(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.rank.committed().0).collect()
    }
}

impl Node {
    /// Presents the local log; messages that are presented to the program are in the result.
    fn recover(&mut self) -> Vec<WireHeader> {
        let entries = self.entries.clone().into_iter();
        let (notes, others): (Vec<_>, Vec<_>) = entries.partition(|(key, _)| key.kind == EntryKind::Note);
        let mut presented = Vec::new();
        for (key, bytes) in notes.into_iter().chain(others) {
            if self.rank.handle_recovered_entry(key, &bytes).unwrap() {
                presented.push(*WireHeader::parse(&bytes).unwrap());
            }
        }
        presented
    }

    fn copies(&self) -> usize {
        self.entries.keys().filter(|key| key.kind == EntryKind::Message).count()
    }
}

#[test]
fn a_line_is_committed_once_the_message_in_transit_over_it_is_copied() {
    let mut job = Job::new();
    let late = job.send(0, 7);
    job.checkpoint(0);
    job.deliver_requests();
    assert!(job.nodes[1].wants_checkpoint);
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!(job.committed(), [1, 1]);
    let copied = EntryKey { kind: EntryKind::Message, number: 0 };
    assert_eq!(job.arrive(late), Incoming::Deliver { keep: Some(copied) });
    assert_eq!(job.committed(), [2, 2]);

    job.replace(0, 1);
    assert_eq!(job.nodes[1].rank.epoch(), Epoch(2));
    assert_eq!(job.nodes[1].copies(), 1);
    // It counts as received: the next line is not crossed by it.
    job.checkpoint(0);
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!((job.committed(), job.nodes[1].copies()), (vec![3, 3], 0));
}

/// libELC identifies messages in transit when the request arrives, after some were consumed.
#[test]
fn messages_between_a_checkpoint_and_the_request_are_copied_until_it_says_that_they_are_not_in_transit() {
    let mut job = Job::new();
    let late = job.send(0, 7);
    job.checkpoint(1);
    assert!(matches!(job.arrive(late), Incoming::Deliver { keep: Some(_) }));
    // Rank 0's checkpoint precedes this message, and its request comes later.
    job.checkpoint(0);
    let intra = job.send(0, 7);
    assert!(matches!(job.arrive(intra), Incoming::Deliver { keep: Some(_) }));
    assert_eq!(job.nodes[1].copies(), 2);
    job.deliver_requests();
    assert_eq!((job.nodes[1].copies(), job.committed()), (1, vec![2, 2]));
}

#[test]
fn an_orphan_is_discarded_once_when_it_is_sent_again() {
    let mut job = Job::new();
    job.checkpoint(0);
    let orphan = job.send(0, 7);
    assert_eq!(job.arrive(orphan), Incoming::Deliver { keep: None });
    job.deliver_requests();
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!(job.committed(), [2, 2]);

    job.replace(0, 1);
    let again = job.send(0, 7);
    assert_eq!(job.arrive(again), Incoming::Discard(DiscardReason::Orphan { ssn: orphan.ssn() }));
    let next = job.send(0, 7);
    assert_eq!(job.arrive(next), Incoming::Deliver { keep: None });
}

#[test]
fn a_message_of_an_undone_attempt_is_discarded() {
    let mut job = Job::new();
    let undone = job.send(0, 7);
    job.replace(1, 1);
    assert!(matches!(job.arrive(undone), Incoming::Discard(DiscardReason::DeadIncarnation { .. })));
}

/// Begins a collective at rank 1, which is an interval behind.
fn begin_behind(job: &mut Job) -> CollectiveCall {
    let call = CollectiveCall { class: CollectiveClass::Barrier, comm: 0, number: 0, uniform: true };
    job.checkpoint(0);
    let rank = &mut job.nodes[1].rank;
    assert!(matches!(rank.handle_collective(&call).unwrap(), CollectivePlan::Exchange { word: 1, .. }));
    rank.handle_collective_words(&call, &[(Rank(0), 2), (Rank(1), 1)]).unwrap();
    job.settle();
    assert!(job.nodes[1].wants_checkpoint && std::mem::take(&mut job.nodes[1].resumed));
    assert_eq!(job.nodes[1].rank.handle_collective(&call).unwrap(), CollectivePlan::Hold);
    call
}

/// The average, rounded down, would be 1 (libELC, section 4.5.1).
#[test]
fn the_highest_interval_number_forces_a_checkpoint_before_a_collective() {
    let mut job = Job::new();
    let call = begin_behind(&mut job);
    job.checkpoint(1);
    assert!(job.nodes[1].resumed);
    assert!(matches!(job.nodes[1].rank.handle_collective(&call).unwrap(), CollectivePlan::Exchange { word: 2, .. }));
    job.deliver_requests();
    assert_eq!(job.committed(), [2, 2]);
}

#[test]
fn a_line_that_a_collective_bisects_because_the_program_cannot_be_checkpointed_is_never_committed() {
    let mut job = Job::new();
    let call = begin_behind(&mut job);
    job.nodes[1].rank.handle_checkpoint_refused().unwrap();
    job.settle();
    assert!(job.nodes[1].resumed);
    assert_eq!(job.nodes[1].rank.handle_collective(&call).unwrap(), CollectivePlan::Native { keep: None });
    job.nodes[1].rank.handle_collective_completed(&call).unwrap();
    job.checkpoint(1);
    job.deliver_requests();
    assert_eq!(job.committed(), [1, 1]);
    job.checkpoint(1);
    job.deliver_requests();
    job.checkpoint(0);
    job.deliver_requests();
    assert_eq!(job.committed(), [3, 3]);
}

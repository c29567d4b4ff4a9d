//! Two ranks and their coordinator, without a network.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Rank};
use counterfoil_protocols::api::{
    Coordinator, Effect, EntryKey, EntryKind, Incoming, Party, Protocol, Snapshot, command_header,
};
use counterfoil_protocols::chandy_lamport::{Config, LineCoordinator};
use counterfoil_protocols::event_logging::EventLogging;

pub(super) const RANKS: u32 = 2;

/// Rank, with its checkpoints and its local log.
pub(super) struct Node {
    pub(super) rank: EventLogging,
    pub(super) checkpoints: BTreeMap<Epoch, Vec<u8>>,
    pub(super) entries: BTreeMap<EntryKey, Vec<u8>>,
    pub(super) wants_checkpoint: bool,
    pub(super) resumed: bool,
    /// Calls with outcomes forgotten by its log, as last told.
    pub(super) choices_discarded: Option<(u64, Epoch)>,
}

/// Job with immediate control messages, unless withheld.
pub(super) struct Job {
    pub(super) nodes: Vec<Node>,
    pub(super) coordinator: LineCoordinator,
    /// Undelivered requests: destination, header, body.
    pub(super) requests: Vec<(Rank, WireHeader, Vec<u8>)>,
    /// All orders and reports so far, each with its rank.
    pub(super) orders: Vec<(Rank, Vec<u8>)>,
    pub(super) reports: Vec<(Rank, Vec<u8>)>,
    /// Rank for which the coordinator's orders are lost.
    pub(super) deaf: Option<Rank>,
}

impl Job {
    pub(super) fn new() -> Job {
        let node = |rank| {
            let rank = EventLogging::new(Config::new(Rank(rank), RANKS, Incarnation(0))).unwrap();
            let first = rank.first_checkpoint().unwrap();
            let checkpoints = BTreeMap::from([(first.epoch, first.tables)]);
            Node {
                rank,
                checkpoints,
                entries: BTreeMap::new(),
                wants_checkpoint: false,
                resumed: false,
                choices_discarded: None,
            }
        };
        let mut job = Job {
            nodes: (0..RANKS).map(node).collect(),
            coordinator: LineCoordinator::new(RANKS, 0),
            requests: Vec::new(),
            orders: Vec::new(),
            reports: Vec::new(),
            deaf: None,
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
    pub(super) fn settle(&mut self) {
        loop {
            let mut moved = false;
            while let Some((to, body)) = self.coordinator.poll_message() {
                moved = true;
                if self.deaf != Some(to) {
                    self.order(to, &body);
                    self.orders.push((to, body));
                }
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

    pub(super) fn order(&mut self, to: Rank, body: &[u8]) {
        let header = command_header(to, body);
        self.nodes[to.index()].rank.handle_control(Party::Coordinator, &header, body).unwrap();
    }

    fn carry_out(&mut self, place: usize, effect: Effect) {
        let node = &mut self.nodes[place];
        match effect {
            Effect::Transmit { to: Party::Coordinator, body, .. } => {
                self.coordinator.handle_control(Rank(place as u32), &body).unwrap();
                self.reports.push((Rank(place as u32), body));
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
            Effect::DiscardChoices { before, epoch } => node.choices_discarded = Some((before, epoch)),
            Effect::Replay { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn send(&mut self, from: u32, tag: i32) -> WireHeader {
        let envelope = Envelope { source: Rank(from), destination: Rank(1 - from), tag, comm: 0, len: 0 };
        let mut header = self.nodes[from as usize].rank.handle_send(&envelope).unwrap().header;
        self.nodes[from as usize].rank.handle_transmit(&mut header).unwrap();
        header
    }

    pub(super) fn arrive(&mut self, header: WireHeader) -> Incoming {
        let node = &mut self.nodes[header.destination().index()];
        let verdict = node.rank.handle_message(&header).unwrap();
        if let Incoming::Deliver { keep: Some(entry) } = verdict {
            node.entries.insert(entry, header.as_bytes().to_vec());
        }
        self.settle();
        verdict
    }

    /// Takes an immediately durable checkpoint.
    pub(super) fn checkpoint(&mut self, rank: usize) {
        let node = &mut self.nodes[rank];
        let Snapshot { epoch, tables } = node.rank.handle_checkpoint().unwrap();
        node.checkpoints.insert(epoch, tables);
        node.wants_checkpoint = false;
        node.rank.handle_checkpoint_durable(epoch).unwrap();
        self.settle();
    }

    /// Lets all requests arrive.
    pub(super) fn deliver_requests(&mut self) {
        for (to, header, body) in std::mem::take(&mut self.requests) {
            let from = Party::Rank(header.source());
            self.nodes[to.index()].rank.handle_control(from, &header, &body).unwrap();
        }
        self.settle();
    }

    /// Replaces a rank: all go back.
    pub(super) fn replace(&mut self, place: usize, incarnation: u32) {
        let config = Config::new(Rank(place as u32), RANKS, Incarnation(incarnation));
        let node = &mut self.nodes[place];
        node.rank = EventLogging::new(config).unwrap();
        let (newest, oldest) = (node.checkpoints.last_key_value().unwrap(), node.checkpoints.keys().next().unwrap());
        node.rank.restore(newest.1, *oldest).unwrap();
        node.recover();
        self.settle();
        self.requests.clear();
    }

    /// Commits a line without crossing messages.
    pub(super) fn commit_line(&mut self) {
        self.checkpoint(0);
        self.checkpoint(1);
        self.deliver_requests();
    }

    /// Returns what a rank asks for, formatted, but for its reports to the coordinator.
    pub(super) fn effects(&mut self, place: usize) -> Vec<String> {
        let rank = &mut self.nodes[place].rank;
        let effects = std::iter::from_fn(|| rank.poll_effect());
        let is_other = |effect: &Effect| !matches!(effect, Effect::Transmit { to: Party::Coordinator, .. });
        effects.filter(is_other).map(|effect| format!("{effect:?}")).collect()
    }

    pub(super) fn committed(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.rank.committed().0).collect()
    }
}

impl Node {
    /// Presents the local log; messages presented to the program are in the result.
    pub(super) fn recover(&mut self) -> Vec<WireHeader> {
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

    pub(super) fn copies(&self) -> usize {
        self.entries.keys().filter(|key| key.kind == EntryKind::Message).count()
    }
}

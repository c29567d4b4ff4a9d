//! Two ranks and their initiator, without a network.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Envelope, Epoch, Incarnation, Rank};
use counterfoil_protocols::api::{
    Bits, Coordinator, Effect, EntryKey, Floor, Incoming, Inspect, Moment, Party, Protocol, Transmission,
    command_header,
};
use counterfoil_protocols::coordinated::{Config, Coordinated, Initiator};

pub(super) const A: Rank = Rank(0);

pub(super) const B: Rank = Rank(1);

pub(super) fn config(rank: Rank, incarnation: u32) -> Config {
    let (moment, bits) = (Moment::Offered, Bits::Piggybacked);
    Config { rank, ranks: 2, incarnation: Incarnation(incarnation), moment, bits }
}

/// Two ranks and their initiator, with what they have on stable storage.
pub(super) struct Job {
    pub(super) ranks: Vec<Coordinated>,
    pub(super) initiator: Initiator,
    pub(super) entries: Vec<BTreeMap<EntryKey, Vec<u8>>>,
    pub(super) checkpoints: Vec<BTreeMap<Epoch, Vec<u8>>>,
    /// Undelivered orders and counts, by rank.
    pub(super) waiting: Vec<Vec<(Party, WireHeader, Vec<u8>)>>,
    /// Rank cut off for now.
    pub(super) deaf: Option<Rank>,
    /// All orders and statuses so far, each with its rank.
    pub(super) orders: Vec<(Rank, Vec<u8>)>,
    pub(super) statuses: Vec<(Rank, Vec<u8>)>,
}

impl Job {
    /// Starts a job, whose ranks execute.
    pub(super) fn new() -> Job {
        let ranks: Vec<Coordinated> = [A, B].map(|rank| Coordinated::new(config(rank, 0)).unwrap()).into();
        let first = |rank: &Coordinated| {
            let first = rank.first_checkpoint().unwrap();
            BTreeMap::from([(first.epoch, first.tables)])
        };
        let checkpoints = ranks.iter().map(first).collect();
        let (entries, waiting) = (vec![BTreeMap::new(); 2], vec![Vec::new(); 2]);
        let initiator = Initiator::new(2, 0);
        let (orders, statuses) = (Vec::new(), Vec::new());
        let mut job = Job { ranks, initiator, entries, checkpoints, waiting, deaf: None, orders, statuses };
        job.connect();
        job.settle();
        assert!(job.ranks.iter().all(Protocol::is_running));
        job
    }

    pub(super) fn rank(&mut self, rank: Rank) -> &mut Coordinated {
        &mut self.ranks[rank.index()]
    }

    fn connect(&mut self) {
        for (from, to) in [(A, B), (B, A)] {
            let hello = self.rank(from).hello(to).unwrap();
            self.rank(to).handle_hello(from, &hello).unwrap();
        }
    }

    /// Carries out all effects, until nothing moves.
    pub(super) fn settle(&mut self) {
        loop {
            let mut moved = false;
            for rank in [A, B] {
                while let Some(effect) = self.rank(rank).poll_effect() {
                    moved = true;
                    self.carry_out(rank, effect);
                }
            }
            while let Some((rank, body)) = self.initiator.poll_message() {
                self.orders.push((rank, body.clone()));
                self.waiting[rank.index()].push((Party::Coordinator, command_header(rank, &body), body));
            }
            let deaf = self.deaf;
            for rank in [A, B].into_iter().filter(|&rank| deaf != Some(rank)) {
                for (from, header, body) in std::mem::take(&mut self.waiting[rank.index()]) {
                    moved = true;
                    self.rank(rank).handle_control(from, &header, &body).unwrap();
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn carry_out(&mut self, rank: Rank, effect: Effect) {
        let at = rank.index();
        match effect {
            Effect::Transmit { to: Party::Coordinator, body, .. } => {
                self.initiator.handle_control(rank, &body).unwrap();
                self.statuses.push((rank, body));
            }
            Effect::Transmit { to: Party::Rank(to), header, body } => {
                self.waiting[to.index()].push((Party::Rank(rank), header, body));
            }
            Effect::KeepEntry { entry, bytes } => drop(self.entries[at].insert(entry, bytes)),
            Effect::DiscardEntries { kind, first, last } => {
                self.entries[at].retain(|key, _| key.kind != kind || !(first..=last).contains(&key.number));
            }
            Effect::KeepCheckpoints { first, last } => {
                self.checkpoints[at].retain(|epoch, _| (first..=last).contains(epoch));
            }
            Effect::SealLog { epoch } => self.rank(rank).handle_log_sealed(epoch).unwrap(),
            Effect::RollBack { epoch } => self.restore(rank, epoch),
            _ => {}
        }
    }

    /// Restores a rank, and connects it with the other.
    fn restore(&mut self, rank: Rank, epoch: Epoch) {
        let at = rank.index();
        let (tables, entries) = (self.checkpoints[at][&epoch].clone(), self.entries[at].clone());
        let oldest = *self.checkpoints[at].keys().next().unwrap();
        self.rank(rank).restore(&tables, oldest).unwrap();
        for (key, bytes) in &entries {
            self.rank(rank).handle_recovered_entry(*key, bytes).unwrap();
        }
        self.connect();
    }

    /// Replaces the process of a rank.
    pub(super) fn kill(&mut self, rank: Rank) {
        self.ranks[rank.index()] = Coordinated::new(config(rank, 1)).unwrap();
        self.waiting[rank.index()].clear();
        let newest = *self.checkpoints[rank.index()].keys().last().unwrap();
        self.restore(rank, newest);
    }

    pub(super) fn send(&mut self, from: Rank, to: Rank) -> (WireHeader, Transmission) {
        let envelope = Envelope { source: from, destination: to, tag: 0, comm: 0, len: 8 };
        let outgoing = self.rank(from).handle_send(&envelope).unwrap();
        (outgoing.header, outgoing.transmission)
    }

    /// Delivers a message, and keeps a copy if it is to be kept.
    pub(super) fn deliver(&mut self, header: &WireHeader) -> Incoming {
        let to = header.destination();
        let incoming = self.rank(to).handle_message(header).unwrap();
        if let Incoming::Deliver { keep: Some(entry) } = incoming {
            self.entries[to.index()].insert(entry, header.as_bytes().to_vec());
        }
        incoming
    }

    pub(super) fn begin_line(&mut self) {
        assert!(self.initiator.begin_collection(Floor::ByLine));
        self.settle();
    }

    pub(super) fn checkpoint(&mut self, rank: Rank) {
        assert!(self.rank(rank).wants_checkpoint());
        let snapshot = self.rank(rank).handle_checkpoint().unwrap();
        self.checkpoints[rank.index()].insert(snapshot.epoch, snapshot.tables);
        self.rank(rank).handle_checkpoint_durable(snapshot.epoch).unwrap();
        self.settle();
    }

    /// Commits a line, without messages crossing it.
    pub(super) fn commit_line(&mut self) {
        self.begin_line();
        self.checkpoint(A);
        self.checkpoint(B);
    }

    /// Presents all orders again, as from a replaced initiator.
    ///
    /// Returns the ranks' effects, except their statuses.
    pub(super) fn repeat_orders(&mut self, to: Rank) -> Vec<String> {
        let mut effects = Vec::new();
        for (rank, body) in self.orders.clone().into_iter().filter(|(rank, _)| *rank == to) {
            self.rank(rank).handle_control(Party::Coordinator, &command_header(rank, &body), &body).unwrap();
            effects.extend(std::iter::from_fn(|| self.rank(rank).poll_effect()));
        }
        effects.retain(|effect| !matches!(effect, Effect::Transmit { to: Party::Coordinator, .. }));
        effects.iter().map(|effect| format!("{effect:?}")).collect()
    }

    /// Returns epoch, committed line and phase of each rank, and whether it executes.
    pub(super) fn states(&self) -> Vec<(Epoch, Epoch, u32, bool)> {
        let state = |rank: &Coordinated| (rank.epoch(), rank.committed(), rank.phase_of_line(), rank.is_running());
        self.ranks.iter().map(state).collect()
    }
}

pub(super) const PLAIN: Incoming = Incoming::Deliver { keep: None };

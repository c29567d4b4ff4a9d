//! The coordinator.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use counterfoil_log_core::{Epoch, Rank};
use counterfoil_protocols::api::{Coordinator, CoordinatorError, Floor};

use super::Mistake;
use super::message::What;

/// The coordinator: makes lines, and brings all ranks back to the last.
#[derive(Debug)]
pub struct Initiator<const MISTAKE: u8> {
    ranks: u32,
    attempt: u32,
    committed: Epoch,
    /// Ranks that have rolled back in this attempt.
    ready: BTreeSet<Rank>,
    /// Lines that the ranks know as committed, in this attempt.
    reports: BTreeMap<Rank, Epoch>,
    running: bool,
    /// Checkpoint in progress: by rank, the number of calls before it.
    durable: Option<BTreeMap<Rank, u64>>,
    passed: BTreeSet<Rank>,
    messages: VecDeque<(Rank, Vec<u8>)>,
}

impl<const MISTAKE: u8> Initiator<MISTAKE> {
    /// Creates a coordinator, which brings the job to a line. `replaced`: number of earlier ones.
    pub fn new(ranks: u32, replaced: u32) -> Self {
        let mut initiator = Initiator {
            ranks,
            attempt: replaced << 16,
            committed: Epoch::FIRST,
            ready: BTreeSet::new(),
            reports: BTreeMap::new(),
            running: false,
            durable: None,
            passed: BTreeSet::new(),
            messages: VecDeque::new(),
        };
        initiator.recover();
        initiator
    }

    fn recover(&mut self) {
        self.attempt += 1;
        self.running = false;
        self.durable = None;
        self.ready.clear();
        self.reports.clear();
        self.broadcast(What::Collect, self.committed, 0);
    }

    fn broadcast(&mut self, what: What, epoch: Epoch, calls: u64) {
        let body = what.encode(self.attempt, epoch, calls);
        self.messages.extend((0..self.ranks).map(|rank| (Rank(rank), body.clone())));
    }

    fn is_all(&self, count: usize) -> bool {
        count == self.ranks as usize
    }

    fn next(&self) -> Epoch {
        Epoch(self.committed.0 + 1)
    }

    fn commit(&mut self) {
        self.committed = self.next();
        self.durable = None;
        self.broadcast(What::Commit, self.committed, 0);
    }
}

impl<const MISTAKE: u8> Coordinator for Initiator<MISTAKE> {
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
        let malformed = CoordinatorError::Malformed { from, len: body.len() };
        let (what, attempt, epoch, calls) = What::decode(body).ok_or(malformed)?;
        if what == What::Join {
            self.recover();
            return Ok(());
        }
        if attempt != self.attempt {
            return Ok(());
        }
        match what {
            What::Committed if !self.running => {
                self.reports.insert(from, epoch);
                if self.is_all(self.reports.len()) {
                    let known = self.reports.values().copied();
                    let line = if MISTAKE == Mistake::NEWEST { known.min() } else { known.max() };
                    self.committed = line.unwrap_or(Epoch::FIRST);
                    self.broadcast(What::Line, self.committed, 0);
                }
            }
            What::Ask => drop(self.begin_collection(Floor::ByLine)),
            What::Ready => {
                self.ready.insert(from);
                if self.is_all(self.ready.len()) {
                    self.running = true;
                    self.broadcast(What::Go, self.committed, 0);
                }
            }
            What::Durable if epoch == self.next() => {
                let Some(durable) = &mut self.durable else { return Ok(()) };
                durable.insert(from, calls);
                let (count, calls) = (durable.len(), durable.values().copied().max().unwrap_or(0));
                if self.is_all(count) {
                    match MISTAKE {
                        Mistake::COMMITTED_EARLY => self.commit(),
                        _ => self.broadcast(What::Pass, epoch, calls),
                    }
                }
            }
            What::Passed if epoch == self.next() => {
                self.passed.insert(from);
                if self.is_all(self.passed.len()) {
                    self.commit();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Begins a checkpoint of the job, which is what a collection needs first.
    fn begin_collection(&mut self, _: Floor) -> bool {
        let begins = self.running && self.durable.is_none();
        if begins {
            self.durable = Some(BTreeMap::new());
            self.passed.clear();
            self.broadcast(What::Please, self.next(), 0);
        }
        begins
    }

    fn is_collecting(&self) -> bool {
        self.durable.is_some()
    }

    fn is_recovering(&self) -> bool {
        !self.running
    }
}

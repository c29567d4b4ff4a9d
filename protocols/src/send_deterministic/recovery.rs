//! The recovery process: finds the recovery line, and lets phases go in ascending order.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_log_core::Rank;
use thiserror::Error;

use super::clusters::Clusters;
use super::line::{RankTable, floor_by_line, floor_by_smallest_epoch, recovery_line};
use super::notice::{self, Line, Order, Report, Sender};
use super::phases::{PhaseOrder, Window};

/// The process apart from the ranks (Guermouche 2011, Figure 4).
///
/// It keeps nothing that a rank doesn't have, so it may be lost: a new one begins with [`RecoveryProcess::begin_round`], learns
/// the number of the newest round from the ranks, and carries an interrupted recovery to its end. A recovery goes in rounds:
/// whatever fails while one is under way begins the next, in which nothing of the one before counts.
///
/// Costs: a round takes 5 messages a rank, and one more to each for every phase that has orphans.
#[derive(Debug)]
pub struct RecoveryProcess {
    ranks: u32,
    round: u64,
    stage: Stage,
    /// The order of phases since the last recovery, as far as a rank knows it, too.
    phases: PhaseOrder,
    /// Above all phases that any rank has been in before the present round.
    base: u32,
    /// The last line that was drawn, and the round that it is of.
    line: Option<(u64, Vec<Option<u32>>)>,
    /// The lowest incarnation of each rank that may still speak.
    living: Vec<u32>,
    collection: Option<Collection>,
    collections: u64,
    clusters: Option<Clusters>,
    messages: VecDeque<(Rank, Vec<u8>)>,
}

#[derive(Debug)]
enum Stage {
    /// Nothing to recover.
    Idle,
    /// Waiting for the tables of all ranks.
    Tables { tables: Vec<Option<RankTable>>, missing: u32 },
    /// Waiting until all ranks have obeyed the line and counted their orphans.
    Orphans { counted: Vec<bool>, missing: u32, open: OpenPhases },
    /// Phases are let go. `raised`: above all phases in which orphans were sent again so far.
    Releasing { open: OpenPhases, windows: Vec<Window>, raised: u32 },
}

/// How many ranks have orphans in each phase, by the place of the phase in the order.
type OpenPhases = BTreeMap<(u32, u32), u32>;

#[derive(Debug)]
struct Collection {
    floor: Floor,
    tables: Vec<Option<RankTable>>,
    missing: u32,
}

/// How far checkpoints and logs are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Each rank's epoch in the recovery line that the failure of all ranks would have: the most that can be given up.
    ByLine,
    /// The smallest epoch in the job (section III.A.4): one number for all.
    BySmallestEpoch,
}

/// Why something that a rank said was refused. Nothing is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// No such rank in this job.
    #[error("{rank} is not in a job of {ranks} ranks")]
    UnknownRank {
        /// The rank.
        rank: Rank,
        /// How many there are.
        ranks: u32,
    },
    /// Bytes that no rank sends.
    #[error("a report of {len} bytes from {from} that can't be read")]
    Malformed {
        /// Who sent it.
        from: Rank,
        /// Its length.
        len: usize,
    },
    /// A phase was reported free of orphans that had none.
    #[error("{from} says that phase {phase} has no orphans left, but had none there")]
    NotOpen {
        /// Who.
        from: Rank,
        /// Which phase.
        phase: u32,
    },
}

impl RecoveryProcess {
    /// The recovery process of a job of so many ranks, at its start. `clusters`: whose epochs are to be kept apart.
    #[must_use]
    pub fn new(ranks: u32, clusters: Option<Clusters>) -> RecoveryProcess {
        RecoveryProcess {
            ranks,
            round: 0,
            stage: Stage::Idle,
            phases: PhaseOrder::default(),
            base: 0,
            line: None,
            living: vec![0; ranks as usize],
            collection: None,
            collections: 0,
            clusters,
            messages: VecDeque::new(),
        }
    }

    /// The number of the present round; 0 before any.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The last recovery line that this process has drawn, and in which round: for each rank the epoch that it goes back to; `None` if
    /// it stays. For simulators and people.
    #[must_use]
    pub fn line(&self) -> Option<(u64, &[Option<u32>])> {
        self.line.as_ref().map(|(round, line)| (*round, line.as_slice()))
    }

    /// Whether a recovery is under way.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Whether a collection is under way.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        self.collection.is_some()
    }

    /// Begins a round. To be called where a recovery process takes the place of one that was lost; all else begins rounds by itself.
    pub fn begin_round(&mut self) {
        self.round += 1;
        self.collection = None;
        self.stage = Stage::Tables { tables: self.nothing_yet(), missing: self.ranks };
        self.base = 0;
        self.tell_all(&Order::Block { round: self.round });
    }

    /// Begins to find out what may be collected, unless a recovery is under way; says whether it did. One that was begun before
    /// and isn't finished is given up.
    pub fn begin_collection(&mut self, floor: Floor) -> bool {
        if self.is_recovering() {
            return false;
        }
        self.collections += 1;
        self.collection = Some(Collection { floor, tables: self.nothing_yet(), missing: self.ranks });
        self.tell_all(&Order::Collect { number: self.collections, round: self.round });
        true
    }

    /// A rank has sent a control message to [`Party::Coordinator`](crate::frame::Party::Coordinator).
    ///
    /// # Errors
    /// [`RecoveryError`]: the rank is not to be trusted.
    pub fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), RecoveryError> {
        if from.0 >= self.ranks {
            return Err(RecoveryError::UnknownRank { rank: from, ranks: self.ranks });
        }
        let report = notice::decode(body).ok_or(RecoveryError::Malformed { from, len: body.len() })?;
        match report {
            Report::Rollback { incarnation } => self.admit(from, incarnation),
            Report::StaleRound { round } if round >= self.round => {
                self.round = round;
                self.begin_round();
            }
            Report::Table { round, table, phase, phases } if round == self.round => {
                self.phases = std::mem::take(&mut self.phases).newer(phases);
                self.base = self.base.max(phase.saturating_add(1));
                self.take_table(from, table);
            }
            Report::Collection { number, table } if number == self.collections => self.take_collection(from, table),
            Report::Orphans { round, phases } if round == self.round => self.take_orphans(from, &phases),
            Report::NoOrphanPhase { round, phase, resent } if round == self.round => self.close(from, phase, resent)?,
            // Of an earlier round or collection.
            _ => {}
        }
        Ok(())
    }

    /// The next control message to send, and to whom.
    pub fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// A replacement is there. While tables are collected, and its predecessor's isn't among them, it joins the round.
    fn admit(&mut self, rank: Rank, incarnation: u32) {
        let living = &mut self.living[rank.index()];
        *living = incarnation.max(*living);
        match &self.stage {
            Stage::Tables { tables, .. } if tables[rank.index()].is_none() => {
                self.tell(rank, &Order::Block { round: self.round });
            }
            _ => self.begin_round(),
        }
    }

    fn take_table(&mut self, from: Rank, table: RankTable) {
        if table.incarnation < self.living[from.index()] {
            return;
        }
        let Stage::Tables { tables, missing } = &mut self.stage else { return };
        *missing -= u32::from(tables[from.index()].is_none());
        tables[from.index()] = Some(table);
        if *missing == 0 {
            let tables: Vec<RankTable> = std::mem::take(tables).into_iter().flatten().collect();
            self.draw_line(&tables);
        }
    }

    /// All tables are there (Figure 4, lines 9 to 17).
    fn draw_line(&mut self, tables: &[RankTable]) {
        let failed: Vec<Option<u32>> = tables.iter().map(|table| table.restored).collect();
        let line = recovery_line(tables, &failed);
        self.base = self.base.max(self.phases.tail());
        let phases = self.phases.clone();
        let mut lines: Vec<Line> = vec![Line { round: self.round, phases, ..Line::default() }; tables.len()];
        for ((rank, table), &epoch) in (0..).zip(tables).zip(&line) {
            // Restored there, and not moved since: what it has told its peers still holds.
            let there = table.restored == epoch && !table.ran;
            let incarnation = table.incarnation + u32::from(epoch.is_some() && !there);
            self.living[rank as usize] = incarnation;
            lines[rank as usize].addressee = table.incarnation;
            lines[rank as usize].restore = epoch.map(|epoch| (epoch, incarnation));
            for channel in table.channels.iter().filter(|channel| channel.peer < self.ranks) {
                let base = channel.sent_before(epoch);
                lines[channel.peer as usize].senders.push(Sender { rank, incarnation, base });
            }
        }
        for (line, known) in lines.iter_mut().zip(acquainted(tables)) {
            // Those who went back so far that they don't know of having sent anything, and those who have received from a rank
            // that went back so far that it doesn't know of them.
            let counted = line.senders.len();
            for sender in known {
                if line.senders[..counted].binary_search_by_key(&sender, |known| known.rank).is_err() {
                    let incarnation = self.living[sender as usize];
                    line.senders.push(Sender { rank: sender, incarnation, base: 0 });
                }
            }
        }
        for (rank, line) in (0..).map(Rank).zip(lines) {
            self.tell(rank, &Order::Line(line));
        }
        self.line = Some((self.round, line));
        self.stage =
            Stage::Orphans { counted: vec![false; self.ranks as usize], missing: self.ranks, open: BTreeMap::new() };
    }

    /// A rank stands on the line (Figure 4, lines 22 to 32).
    fn take_orphans(&mut self, from: Rank, phases: &[u32]) {
        let Stage::Orphans { counted, missing, open } = &mut self.stage else { return };
        if std::mem::replace(&mut counted[from.index()], true) {
            return;
        }
        for &phase in phases {
            *open.entry(self.phases.key(phase)).or_default() += 1;
        }
        *missing -= 1;
        if *missing == 0 {
            self.stage = Stage::Releasing { open: std::mem::take(open), windows: Vec::new(), raised: self.base };
            self.release();
        }
    }

    /// A rank has received all orphans of a phase again (Figure 4, lines 34 to 36).
    fn close(&mut self, from: Rank, phase: u32, resent: u32) -> Result<(), RecoveryError> {
        let Stage::Releasing { open, raised, .. } = &mut self.stage else { return Ok(()) };
        let key = self.phases.key(phase);
        let count = open.get_mut(&key).ok_or(RecoveryError::NotOpen { from, phase })?;
        *count -= 1;
        *raised = resent.saturating_add(1).max(*raised);
        if *count == 0 {
            open.remove(&key);
        }
        self.release();
        Ok(())
    }

    /// Tells before which phase no orphan is left (Figure 4, lines 38 to 41), if that has changed. What is done from now on may depend
    /// on more than what was done until now: it gets phases above all in which orphans were sent again, and they come before
    /// the first phase that is open.
    fn release(&mut self) {
        let Stage::Releasing { open, windows, raised } = &mut self.stage else { return };
        let (round, first) = (self.round, *raised);
        let order = match open.first_key_value() {
            Some((&(_, phase), _)) if windows.last().is_some_and(|window| window.before == phase) => return,
            Some((&(_, phase), _)) => {
                windows.push(Window { first, before: phase });
                Order::Ready { round, open: phase, raised: first }
            }
            None => {
                self.phases = self.phases.after(round, windows, first);
                self.stage = Stage::Idle;
                Order::Over { round, raised: first, phases: self.phases.clone() }
            }
        };
        self.tell_all(&order);
    }

    fn take_collection(&mut self, from: Rank, table: RankTable) {
        let Some(Collection { floor, tables, missing }) = &mut self.collection else { return };
        *missing -= u32::from(tables[from.index()].is_none());
        tables[from.index()] = Some(table);
        if *missing > 0 {
            return;
        }
        let floor = *floor;
        let tables: Vec<RankTable> = std::mem::take(tables).into_iter().flatten().collect();
        self.collection = None;
        let floors = match floor {
            Floor::ByLine => floor_by_line(&tables),
            Floor::BySmallestEpoch => vec![floor_by_smallest_epoch(&tables); tables.len()],
        };
        let epochs: Vec<u32> = tables.iter().map(|table| table.epoch).collect();
        let ceilings = self.clusters.as_ref().map(|clusters| clusters.ceilings(&epochs));
        for (rank, epoch) in (0..).map(Rank).zip(floors) {
            let ceiling = ceilings.as_ref().map_or(u32::MAX, |ceilings| ceilings[rank.index()]);
            self.tell(rank, &Order::Floor { round: self.round, epoch, ceiling });
        }
    }

    fn nothing_yet(&self) -> Vec<Option<RankTable>> {
        (0..self.ranks).map(|_| None).collect()
    }

    fn tell(&mut self, rank: Rank, order: &Order) {
        self.messages.push_back((rank, notice::encode(order)));
    }

    fn tell_all(&mut self, order: &Order) {
        let body = notice::encode(order);
        self.messages.extend((0..self.ranks).map(|rank| (Rank(rank), body.clone())));
    }
}

/// For each rank those whom it has met, or who have met it, each once.
fn acquainted(tables: &[RankTable]) -> Vec<Vec<u32>> {
    let mut known: Vec<Vec<u32>> = vec![Vec::new(); tables.len()];
    for (rank, table) in (0..).zip(tables) {
        for &peer in table.met.iter().filter(|&&peer| (peer as usize) < tables.len()) {
            known[rank as usize].push(peer);
            known[peer as usize].push(rank);
        }
    }
    for peers in &mut known {
        peers.sort_unstable();
        peers.dedup();
    }
    known
}

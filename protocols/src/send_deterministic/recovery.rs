//! The recovery process: computes the recovery line, and releases phases in ascending order.

use std::collections::{BTreeMap, VecDeque};

use counterfoil_log_core::Rank;

use super::clusters::Clusters;
use super::line::{RankTable, floor_by_line, floor_by_smallest_epoch, recovery_line};
use super::notice::{self, Command, Line, Report, Sender};
use super::phases::{PhaseOrder, Window};
use crate::api::{Coordinator, CoordinatorError, Floor};

/// Process apart from the ranks (Guermouche 2011, Figure 4).
///
/// It has no state that the ranks don't have, so it may be lost: [`RecoveryProcess::replacement`] begins a round and
/// completes an interrupted recovery. A recovery goes in rounds: any failure during a round begins the next, in which
/// nothing from the previous one counts. No two recovery processes in a job have rounds with the same number, so a
/// report answering a predecessor's command never counts as an answer to this one's.
///
/// Cost: 5 messages for each rank in a round, and one more to each for every phase with orphans.
#[derive(Debug)]
pub struct RecoveryProcess {
    ranks: u32,
    /// Number of the current round: the process's own incarnation in the upper half, and a count in the lower.
    round: u64,
    stage: Stage,
    /// Newest phase order reported by any rank.
    phases: PhaseOrder,
    /// Number above all phases of the ranks before the current round.
    base: u32,
    /// Last computed line, with its round.
    line: Option<(u64, Vec<Option<u32>>)>,
    /// Incarnation in which each rank last reported its restart: tables from earlier ones come from dead processes.
    living: Vec<u32>,
    collection: Option<Collection>,
    /// Number of the last collection, made like a round number.
    collections: u64,
    clusters: Option<Clusters>,
    messages: VecDeque<(Rank, Vec<u8>)>,
}

#[derive(Debug)]
enum Stage {
    /// No recovery is under way.
    Idle,
    /// Waiting for the tables of all ranks.
    Tables { tables: Vec<Option<RankTable>>, missing: u32 },
    /// Waiting until all ranks have obeyed the line and counted their orphans.
    Orphans { counted: Vec<bool>, missing: u32, open: OpenPhases },
    /// Releasing phases. `next_phase`: above all phases with orphans sent again so far.
    Releasing { open: OpenPhases, windows: Vec<Window>, next_phase: u32 },
}

/// Number of ranks with orphans in each phase, by phase order.
type OpenPhases = BTreeMap<(u32, u32), u32>;

#[derive(Debug)]
struct Collection {
    floor: Floor,
    tables: Vec<Option<RankTable>>,
    missing: u32,
}

impl RecoveryProcess {
    /// Creates the recovery process for a job of `ranks` ranks, at its start.
    ///
    /// `clusters`: clusters with epochs to be kept apart.
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

    /// Creates a recovery process in place of a lost one, and begins a round: a recovery may have been under way.
    ///
    /// `incarnation`: number of earlier recovery processes in the job.
    #[must_use]
    pub fn replacement(ranks: u32, clusters: Option<Clusters>, incarnation: u32) -> RecoveryProcess {
        let mut process = RecoveryProcess::new(ranks, clusters);
        process.round = u64::from(incarnation) << 32;
        process.collections = process.round;
        process.begin_round();
        process
    }

    /// Returns the number of the current round; 0 before any.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    fn begin_round(&mut self) {
        self.round += 1;
        self.collection = None;
        self.stage = Stage::Tables { tables: self.no_tables(), missing: self.ranks };
        self.base = 0;
        self.broadcast(&Command::Block { round: self.round });
    }

    /// Admits a replacement.
    ///
    /// While tables are collected, and its predecessor's isn't among them, it joins the round.
    fn admit(&mut self, rank: Rank, incarnation: u32) {
        let living = &mut self.living[rank.index()];
        *living = incarnation.max(*living);
        match &self.stage {
            Stage::Tables { tables, .. } if tables[rank.index()].is_none() => {
                self.send(rank, &Command::Block { round: self.round });
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
            self.compute_line(&tables);
        }
    }

    /// Computes the recovery line when all tables are there (Figure 4, lines 9 to 17).
    fn compute_line(&mut self, tables: &[RankTable]) {
        let failed: Vec<Option<u32>> = tables.iter().map(|table| table.restored).collect();
        let line = recovery_line(tables, &failed);
        self.base = self.base.max(self.phases.unused_from());
        let phases = self.phases.clone();
        let mut lines: Vec<Line> = vec![Line { round: self.round, phases, ..Line::default() }; tables.len()];
        // Valid for this line only: a rank that hasn't obeyed it when the next round begins keeps its incarnation.
        let mut living = Vec::new();
        for ((rank, table), &epoch) in (0..).zip(tables).zip(&line) {
            // Restored there, and nothing executed since: what it has told its peers still holds.
            let in_place = table.restored == epoch && !table.executed;
            let incarnation = table.incarnation + u32::from(epoch.is_some() && !in_place);
            living.extend((incarnation > 0).then_some((rank, incarnation)));
            lines[rank as usize].for_incarnation = table.incarnation;
            lines[rank as usize].restore = epoch.map(|epoch| (epoch, incarnation));
            for channel in &table.channels {
                let base = channel.sent_before(epoch);
                lines[channel.peer as usize].senders.push(Sender { rank, base });
            }
        }
        for (line, known) in lines.iter_mut().zip(known_peers(tables)) {
            // Add ranks rolled back too far to know of having sent anything, and receivers from a rank rolled back too
            // far to know of them.
            let counted = line.senders.len();
            for sender in known {
                if line.senders[..counted].binary_search_by_key(&sender, |known| known.rank).is_err() {
                    line.senders.push(Sender { rank: sender, base: 0 });
                }
            }
        }
        for (rank, line) in (0..).map(Rank).zip(lines) {
            self.send(rank, &Command::Line(Line { living: living.clone(), ..line }));
        }
        self.line = Some((self.round, line));
        self.stage =
            Stage::Orphans { counted: vec![false; self.ranks as usize], missing: self.ranks, open: BTreeMap::new() };
    }

    /// Takes the orphans of a rank that has obeyed the line (Figure 4, lines 22 to 32).
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
            self.stage = Stage::Releasing { open: std::mem::take(open), windows: Vec::new(), next_phase: self.base };
            self.release();
        }
    }

    /// Notes that a rank has received all orphans from a phase again (Figure 4, lines 34 to 36).
    fn close_phase(&mut self, from: Rank, phase: u32, resent_phase: u32) -> Result<(), CoordinatorError> {
        let Stage::Releasing { open, next_phase, .. } = &mut self.stage else { return Ok(()) };
        let key = self.phases.key(phase);
        let count = open.get_mut(&key).ok_or(CoordinatorError::NotOpen { from, phase })?;
        *count -= 1;
        *next_phase = resent_phase.saturating_add(1).max(*next_phase);
        if *count == 0 {
            open.remove(&key);
        }
        self.release();
        Ok(())
    }

    /// Broadcasts the first phase with orphans (Figure 4, lines 38 to 41), if it has changed.
    ///
    /// Events from now on may depend on more than before: they get phases above every phase with orphans sent again,
    /// ordered before the first open phase.
    fn release(&mut self) {
        let Stage::Releasing { open, windows, next_phase } = &mut self.stage else { return };
        let (round, first) = (self.round, *next_phase);
        let command = match open.first_key_value() {
            Some((&(_, phase), _)) if windows.last().is_some_and(|window| window.before == phase) => return,
            Some((&(_, phase), _)) => {
                windows.push(Window { first, before: phase });
                Command::Ready { round, open: phase, next_phase: first }
            }
            None => {
                self.phases = self.phases.with_windows(round, windows, first);
                self.stage = Stage::Idle;
                Command::Finished { round, next_phase: first, phases: self.phases.clone() }
            }
        };
        self.broadcast(&command);
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
            self.send(rank, &Command::Floor { round: self.round, epoch, ceiling });
        }
    }

    fn no_tables(&self) -> Vec<Option<RankTable>> {
        (0..self.ranks).map(|_| None).collect()
    }

    fn send(&mut self, rank: Rank, command: &Command) {
        self.messages.push_back((rank, notice::encode(command)));
    }

    fn broadcast(&mut self, command: &Command) {
        let body = notice::encode(command);
        self.messages.extend((0..self.ranks).map(|rank| (Rank(rank), body.clone())));
    }
}

impl Coordinator for RecoveryProcess {
    fn handle_control(&mut self, from: Rank, body: &[u8]) -> Result<(), CoordinatorError> {
        if from.0 >= self.ranks {
            return Err(CoordinatorError::UnknownRank { rank: from, ranks: self.ranks });
        }
        let report = Report::decode(body, self.ranks).ok_or(CoordinatorError::Malformed { from, len: body.len() })?;
        match report {
            Report::Rollback { incarnation } => self.admit(from, incarnation),
            // The job was ended and started again: rounds before that count on in the order of phases.
            Report::Table { round, phases, .. } if round == self.round && phases.round() >= self.round => {
                self.round = phases.round();
                self.begin_round();
            }
            Report::Table { round, table, phase, phases } if round == self.round => {
                self.phases = std::mem::take(&mut self.phases).newest(phases);
                self.base = self.base.max(phase.saturating_add(1));
                self.take_table(from, table);
            }
            Report::Collection { number, table } if number == self.collections => self.take_collection(from, table),
            Report::Orphans { round, phases } if round == self.round => self.take_orphans(from, &phases),
            Report::NoOrphanPhase { round, phase, resent_phase } if round == self.round => {
                self.close_phase(from, phase, resent_phase)?
            }
            // From an earlier round or collection.
            _ => {}
        }
        Ok(())
    }

    fn poll_message(&mut self) -> Option<(Rank, Vec<u8>)> {
        self.messages.pop_front()
    }

    fn begin_collection(&mut self, floor: Floor) -> bool {
        if self.is_recovering() {
            return false;
        }
        self.collections += 1;
        self.collection = Some(Collection { floor, tables: self.no_tables(), missing: self.ranks });
        self.broadcast(&Command::Collect { number: self.collections, round: self.round });
        true
    }

    fn is_collecting(&self) -> bool {
        self.collection.is_some()
    }

    fn is_recovering(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    fn line(&self) -> Option<(u64, &[Option<u32>])> {
        self.line.as_ref().map(|(round, line)| (*round, line.as_slice()))
    }
}

/// Returns for each rank the ranks known to it or knowing it, each once.
///
/// A sound table names ranks in the job only.
fn known_peers(tables: &[RankTable]) -> Vec<Vec<u32>> {
    let mut known: Vec<Vec<u32>> = vec![Vec::new(); tables.len()];
    for (rank, table) in (0..).zip(tables) {
        for &peer in &table.peers {
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

#[cfg(test)]
mod tests;

//! Recovery lines: notes for the oracles, and the check of the logs' contents against a line.

use counterfoil_log_core::{Epoch, Ssn};
use counterfoil_protocols::api::Coordinator;

use super::{Node, World};
use crate::process::{Machine, Process, Slot};
use crate::trace::Event;
use crate::violation::ViolationKind;

impl World<'_> {
    /// Notes that a rank has sent its table for a recovery line, and how far it has transmitted each lane by then.
    pub(super) fn note_table(&mut self, rank: u32, process: &mut Process) -> Result<(), ViolationKind> {
        let round = process.rank().and_then(|rank| rank.inspect().reported_round());
        if round <= std::mem::replace(&mut process.round, round) || self.is_struck(rank) {
            return Ok(());
        }
        for (peer, cursor) in (0..self.program.ranks()).zip(&process.cursors) {
            let upto = cursor.map_or(Ssn::ZERO, |cursor| cursor.next.prev());
            self.note(Event::Transmitted { rank, peer, upto })?;
        }
        self.note(Event::TableReported { rank })
    }

    /// Checks the line computed by the coordinator, if it is new.
    pub(super) fn note_line(&mut self, node: u32, process: &mut Process) -> Result<(), ViolationKind> {
        let Machine::Coordinator(coordinator) = &process.machine else { return Ok(()) };
        let Some((round, line)) = coordinator.line() else { return Ok(()) };
        let line = line.iter().map(|epoch| epoch.map(Epoch)).collect();
        if process.round.replace(round) >= Some(round) || self.is_struck(node) {
            return Ok(());
        }
        self.check_line(line)
    }

    /// Checks a recovery line.
    fn check_line(&mut self, line: Vec<Option<Epoch>>) -> Result<(), ViolationKind> {
        if !self.oracle.is_current() {
            return Ok(()); // A dead rank's replacement begins another round.
        }
        self.coverage.lines_of_several += u64::from(line.iter().flatten().count() > 1);
        (0..).zip(&line).try_for_each(|(rank, &epoch)| self.note(Event::Line { rank, epoch }))?;
        for to in 0..self.program.ranks() {
            for from in (0..self.program.ranks()).filter(|&from| from != to) {
                self.check_replay(from, to, &line)?;
            }
        }
        Ok(())
    }

    /// Checks that the log of `from`, where a line leaves it, has all messages lacking at `to` where the line leaves
    /// it.
    fn check_replay(&self, from: u32, to: u32, line: &[Option<Epoch>]) -> Result<(), ViolationKind> {
        let (has, sent) = self.oracle.channel_at(from, to, line);
        let Node { process, disk, .. } = &self.nodes[from as usize];
        let Some(process) = process else { return Ok(()) }; // Another round will follow.
        let epoch = line.get(from as usize).copied().flatten().filter(|&epoch| !self.oracle.stands_at(from, epoch));
        let saved = epoch.and_then(|epoch| disk.checkpoints.iter().find(|saved| saved.epoch == epoch));
        let lane = &saved.map_or(&process.image, |saved| &saved.image).lanes[to as usize];
        let lacks = |&ssn: &u64| !matches!(lane.get(Ssn(ssn)), Some(Slot::Kept(_)));
        match (has.0 + 1..=sent.0).find(lacks) {
            Some(number) => Err(ViolationKind::LineTooHigh { rank: to, from, number }),
            None => Ok(()),
        }
    }
}

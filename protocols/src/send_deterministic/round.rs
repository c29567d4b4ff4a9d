//! Part of a rank in a recovery.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use super::SendDeterministic;
use super::channel::Channel;
use super::notice::{self, Command, Covered, Line, Report, Sender};
use crate::api::{COMMAND, Effect, Party, ProtocolError};

/// Progress of a rank in a recovery: Status, OrphCount and OrphPhases in Guermouche 2011, Figure 3.
#[derive(Debug)]
pub(super) struct Round {
    number: u64,
    running: bool,
    table: TableState,
    /// Recovery line of this round, if known.
    line: Option<Line>,
    /// Epoch to which this rank was restored in an unfinished recovery.
    restored: Option<Epoch>,
    /// `true` if it has executed anything since then.
    executed: bool,
    /// Phase of this rank when it obeyed the line.
    line_phase: Phase,
    /// Phases without orphans in the whole job.
    released: Released,
    /// Number of orphans still missing, by receive phase at this rank.
    missing: BTreeMap<u32, u64>,
    /// Highest phase in which one was sent again.
    resent_phase: u32,
}

/// Status of this rank's table at the recovery process.
#[derive(Clone, Copy, Debug)]
enum TableState {
    /// Not asked for.
    NotRequested,
    /// Asked for, and not sent yet.
    Requested,
    /// Sent.
    Sent,
}

/// Phases no longer waiting for orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Released {
    /// None, as far as is known.
    Nothing,
    /// All before this one, in the recovery line's order.
    Before(u32),
    /// All: there is no orphan.
    All,
}

impl Default for Round {
    /// Returns the state without a recovery.
    fn default() -> Self {
        Round {
            number: 0,
            running: true,
            table: TableState::NotRequested,
            line: None,
            restored: None,
            executed: false,
            line_phase: Phase(0),
            released: Released::All,
            missing: BTreeMap::new(),
            resent_phase: 0,
        }
    }
}

impl Round {
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    pub(super) fn is_finished(&self) -> bool {
        self.released == Released::All
    }

    pub(super) fn restored(&self) -> Option<Epoch> {
        self.restored
    }

    pub(super) fn reported_round(&self) -> Option<u64> {
        matches!(self.table, TableState::Sent).then_some(self.number)
    }

    pub(super) fn executed(&self) -> bool {
        self.executed
    }

    /// Begins the state of a replacement restored to `epoch` and waiting for a round.
    pub(super) fn restarted(&mut self, epoch: Epoch) {
        *self = Round { running: false, restored: Some(epoch), released: Released::Nothing, ..Round::default() };
    }

    /// Returns the incarnation of a rank in the line of this round; `None` before the line.
    pub(super) fn line_incarnation(&self, rank: Rank) -> Option<Incarnation> {
        self.line.as_ref().map(|line| line.incarnation_of(rank))
    }

    /// Returns the new incarnation if the line rolls this rank back to the restored checkpoint.
    pub(super) fn pending_rollback(&self, epoch: Epoch, now: Incarnation) -> Option<Incarnation> {
        let (to, incarnation) = self.line.as_ref()?.restore?;
        (to == epoch.0 && incarnation != now.0).then_some(Incarnation(incarnation))
    }

    /// Records a rollback to `epoch`.
    pub(super) fn rolled_back(&mut self, epoch: Epoch) {
        (self.restored, self.executed) = (Some(epoch), false);
    }

    /// Returns `true` if a message must wait.
    ///
    /// `known`: it was received before.
    pub(super) fn must_hold(&self, known: bool, phase: Phase, executed: bool) -> bool {
        if self.released == Released::Nothing {
            // Orphans can't be told from other duplicates before the line is known.
            return !known || self.line.is_none();
        }
        // A duplicate changes nothing here, and other ranks may wait for it to be counted.
        !known && (!self.running || (!executed && !self.is_released(phase.0)))
    }

    fn is_released(&self, phase: u32) -> bool {
        match self.released {
            Released::Nothing => false,
            Released::Before(open) => self.line.as_ref().is_some_and(|line| line.phases.precedes(phase, open)),
            Released::All => true,
        }
    }

    /// Returns `true` if enough phases are released for this rank to run (Figure 3, line 73).
    ///
    /// A restored rank is at the beginning of its phase, so its state depends on orphans from lower phases only.
    fn may_run(&self) -> bool {
        let needs = if self.restored.is_some() { self.line_phase.0.saturating_sub(1) } else { self.line_phase.0 };
        self.is_released(needs)
    }
}

impl SendDeterministic {
    /// Handles a command from the recovery process.
    pub(super) fn handle_command(&mut self, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let rank = self.config.rank;
        let command = (header.tag() == COMMAND).then(|| notice::decode(body)).flatten();
        match command.filter(Command::is_sound).ok_or_else(|| SendDeterministic::malformed(rank, header, body))? {
            Command::Block { round } => self.block(round)?,
            Command::Line(line) => {
                let awaited = line.round == self.round.number && self.round.line.is_none();
                if awaited && line.for_incarnation == self.incarnation.0 {
                    self.handle_line(line)?;
                }
            }
            Command::Ready { round, open, next_phase } if round == self.round.number && self.round.line.is_some() => {
                self.handle_ready(Released::Before(open), next_phase)?;
            }
            Command::Finished { round, next_phase, phases }
                if round == self.round.number && self.round.line.is_some() =>
            {
                self.phases = phases;
                self.handle_ready(Released::All, next_phase)?;
            }
            Command::Collect { number, round } if round == self.round.number && self.round.is_finished() => {
                let table = self.checkpointed.clone();
                self.report(&Report::Collection { number, table });
            }
            Command::Floor { round, epoch, ceiling } if round == self.round.number && self.round.is_finished() => {
                self.ceiling = Epoch(ceiling.min(Epoch::MAX.0));
                // Receipts of messages without any event on their channels since transmission.
                self.apply_all_pending()?;
                self.raise_floor(Epoch(epoch))?;
            }
            // Commands from an earlier round.
            _ => {}
        }
        Ok(())
    }

    /// Implements Figure 3, lines 54 to 56: blocks and reports the messages sent.
    fn block(&mut self, number: u64) -> Result<(), ProtocolError> {
        if number <= self.round.number {
            // From a lost recovery process, or asked twice.
            return Ok(());
        }
        let Round { restored, executed, .. } = self.round;
        self.round = Round {
            number,
            running: false,
            table: TableState::Requested,
            restored,
            executed,
            released: Released::Nothing,
            ..Round::default()
        };
        // Ranks in the next cluster may roll back.
        self.ceiling = self.config.ceiling;
        self.channels().for_each(|channel| channel.set_line(None));
        self.apply_all_pending()?;
        self.send_table();
        Ok(())
    }

    /// Sends the table for the line, unless it was sent or there are receipts to learn first.
    pub(super) fn send_table(&mut self) {
        if !matches!(self.round.table, TableState::Requested) {
            return;
        }
        // A checkpoint doesn't know later receipts, a peer rolling back may repeat its own in other epochs, and a
        // receipt not known to hold rolls its sender back to be safe. Each Hello has them; all peers will send one
        // soon, whatever the recovery does.
        if self.channels().any(|channel| channel.awaits_receipts()) {
            return;
        }
        let (round, table) = (self.round.number, self.table());
        let (phase, phases) = (self.phase.0, self.phases.clone());
        self.report(&Report::Table { round, table, phase, phases });
        self.round.table = TableState::Sent;
        self.channels().for_each(Channel::freeze_receipts);
    }

    /// Implements Figure 3, lines 58 to 61: rolls back if the line says so and this rank isn't there already.
    fn handle_line(&mut self, line: Line) -> Result<(), ProtocolError> {
        let restore = line.restore;
        self.phases = line.phases.clone();
        self.round.line = Some(line);
        if let Some((epoch, incarnation)) = restore {
            let epoch = Epoch(epoch);
            // First of all: a rank dying right now must not restart beyond the line.
            self.effects.push_back(Effect::KeepCheckpoints { first: self.floor, last: epoch });
            if incarnation != self.incarnation.0 {
                self.effects.push_back(Effect::RollBack { epoch });
                return Ok(());
            }
        }
        self.register_orphans()
    }

    /// Implements Figure 3, lines 62 to 68: counts the orphans and reports their phases.
    ///
    /// Nothing is replayed by phase: messages waiting for their phase wait here, at the receiver.
    pub(super) fn register_orphans(&mut self) -> Result<(), ProtocolError> {
        let Some(line) = self.round.line.clone() else { return Ok(()) };
        self.round.line_phase = self.phase;
        // Peers met since this rank sent its table aren't among the senders.
        for channel in self.channels() {
            let incarnation = line.incarnation_of(channel.peer());
            channel.set_line(Some((incarnation, Ssn::ZERO)));
        }
        for &Sender { rank, base } in &line.senders {
            let (peer, base) = (Rank(rank), Ssn(base));
            let channel = self.channel(peer)?;
            channel.set_line(Some((line.incarnation_of(peer), base)));
            let orphans: Vec<(u64, Phase)> = channel.receipts.received_beyond(base).collect();
            for (count, phase) in orphans {
                *self.round.missing.entry(phase.0).or_default() += count;
            }
        }
        let phases = self.round.missing.keys().copied().collect();
        self.report(&Report::Orphans { round: line.round, phases });
        // Orphans can be counted now.
        self.effects.push_back(Effect::Resume);
        Ok(())
    }

    /// Implements Figure 3, lines 70 to 74.
    ///
    /// Execution from now on may depend on everything released, so its phase gets a number from the window beginning
    /// here.
    fn handle_ready(&mut self, released: Released, next_phase: u32) -> Result<(), ProtocolError> {
        // The recovery process knows that all ranks have obeyed the line.
        if let Some(line) = &self.round.line {
            self.living.clone_from(&line.living);
        }
        self.channels().for_each(Channel::assume_rolled_back);
        let round = &mut self.round;
        round.released = released;
        round.running |= round.may_run();
        round.executed |= round.running;
        if round.running {
            self.phase = self.phase.max(Phase(next_phase));
        }
        if self.round.is_finished() {
            (self.round.restored, self.round.executed) = (None, false);
            self.channels().for_each(Channel::end_recovery);
            self.apply_all_pending()?;
        }
        self.effects.push_back(Effect::Resume);
        Ok(())
    }

    /// Implements Figure 3, lines 29 to 32, by message number: counts a duplicate received beyond the sender's base.
    ///
    /// `resent_in`: phase in which it was sent this time.
    pub(super) fn count_orphan(&mut self, peer: Rank, ssn: Ssn, resent_in: Phase) -> Result<(), ProtocolError> {
        if self.round.is_finished() {
            return Ok(());
        }
        let Some(phase) = self.channel(peer)?.take_orphan(ssn) else { return Ok(()) };
        let Some(count) = self.round.missing.get_mut(&phase.0) else { return Ok(()) };
        self.round.resent_phase = self.round.resent_phase.max(resent_in.0);
        *count -= 1;
        if *count == 0 {
            self.round.missing.remove(&phase.0);
            let Round { number: round, resent_phase, .. } = self.round;
            self.report(&Report::NoOrphanPhase { round, phase: phase.0, resent_phase });
        }
        Ok(())
    }

    /// Implements section III.A.4: discards older checkpoints, and notifies the senders of records they need not keep.
    fn raise_floor(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        let mut floor = self.floor.max(epoch);
        // This rank restores no checkpoint before the floor, and no abandoned one.
        while floor < self.durable && self.abandoned.binary_search(&floor.0).is_ok() {
            floor = Epoch(floor.0 + 1);
        }
        self.floor = floor;
        self.abandoned.retain(|&abandoned| abandoned > floor.0);
        self.effects.push_back(Effect::KeepCheckpoints { first: floor, last: Epoch::MAX });
        let news = |channel: &mut Channel| {
            let (covers, (stable, stable_moved)) = (channel.cover(floor).is_some(), channel.advance_stable(floor));
            (covers || stable_moved).then_some((channel.peer(), channel.covered, stable))
        };
        let news: Vec<(Rank, Ssn, Ssn)> = self.channels().filter_map(news).collect();
        for (peer, upto, stable) in news {
            self.send_covered(peer, upto, stable);
        }
        Ok(())
    }

    /// Notifies `peer` of records it need not keep for this rank, and of receipts it need not remember.
    pub(super) fn send_covered(&mut self, peer: Rank, upto: Ssn, stable: Ssn) {
        let (rank, origin) = (self.config.rank, self.origin());
        let body = notice::encode(&Covered { epoch: self.floor.0, upto: upto.0, stable: stable.0 });
        let header = WireHeader::control(rank, peer, origin, notice::COVERED, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body });
    }
}

#[cfg(test)]
mod tests;

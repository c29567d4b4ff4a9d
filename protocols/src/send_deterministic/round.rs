//! A rank's part in a recovery.

use std::collections::BTreeMap;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Epoch, Incarnation, Phase, Rank, Ssn};

use super::channel::Channel;
use super::line::RankTable;
use super::notice::{self, Covered, Line, Order, Report};
use super::{Canary, SendDeterministic};
use crate::frame::{Effect, Party, ProtocolError};

/// Where a rank is in a recovery: Status, OrphCount and OrphPhases of Guermouche 2011, Figure 3.
#[derive(Debug)]
pub(super) struct Round {
    number: u64,
    running: bool,
    table: Table,
    /// The recovery line of this round, if it is known.
    line: Option<Line>,
    /// The epoch that this rank was restored to in a recovery that isn't over.
    restored: Option<Epoch>,
    /// Whether it has run since.
    ran: bool,
    /// The phase that it stood in when it obeyed the line.
    registered: Phase,
    /// Which phases have no orphan left in the whole job.
    released: Released,
    /// How many orphans are still missing, by the phase that this rank received them in.
    missing: BTreeMap<u32, u64>,
    /// The highest number of a phase in which one of them was sent again.
    resent: u32,
}

/// What the recovery process knows of what this rank has sent.
#[derive(Debug)]
enum Table {
    /// It hasn't asked.
    Unasked,
    /// It waits for the table.
    Awaited,
    /// It was told this one.
    Told(RankTable),
}

/// The phases that wait for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Released {
    /// Not known yet.
    Nothing,
    /// All before this one, in the order that came with the recovery line.
    Before(u32),
    /// There is no orphan.
    All,
}

impl Default for Round {
    /// No recovery.
    fn default() -> Self {
        Round {
            number: 0,
            running: true,
            table: Table::Unasked,
            line: None,
            restored: None,
            ran: false,
            registered: Phase(0),
            released: Released::All,
            missing: BTreeMap::new(),
            resent: 0,
        }
    }
}

impl Round {
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    pub(super) fn is_over(&self) -> bool {
        self.released == Released::All
    }

    pub(super) fn restored(&self) -> Option<Epoch> {
        self.restored
    }

    pub(super) fn told_in(&self) -> Option<u64> {
        matches!(self.table, Table::Told(_)).then_some(self.number)
    }

    pub(super) fn ran(&self) -> bool {
        self.ran
    }

    /// A replacement has been restored to `epoch` and waits for a round.
    pub(super) fn replaced(&mut self, epoch: Epoch) {
        *self = Round { running: false, restored: Some(epoch), released: Released::Nothing, ..Round::default() };
    }

    /// The line says that this rank goes back; is it this checkpoint that is being put back?
    pub(super) fn restores(&self, epoch: Epoch, now: Incarnation) -> Option<Incarnation> {
        let (to, incarnation) = self.line.as_ref()?.restore?;
        (to == epoch.0 && incarnation != now.0).then_some(Incarnation(incarnation))
    }

    /// It was put back.
    pub(super) fn went_back(&mut self, epoch: Epoch) {
        (self.restored, self.ran) = (Some(epoch), false);
    }

    /// Whether a message must wait. `known`: it was received before.
    pub(super) fn holds(&self, known: bool, phase: Phase, executed: bool) -> bool {
        if self.released == Released::Nothing {
            // Whose orphan a duplicate is isn't known before the line is.
            return !known || self.line.is_none();
        }
        // A duplicate changes nothing here, and others may wait for it to be counted.
        !known && (!self.running || (!executed && !self.is_released(phase.0)))
    }

    fn is_released(&self, phase: u32) -> bool {
        match self.released {
            Released::Nothing => false,
            Released::Before(open) => self.line.as_ref().is_some_and(|line| line.phases.precedes(phase, open)),
            Released::All => true,
        }
    }

    /// Whether what was let go is enough for this rank (Figure 3, line 73). A restored rank is at the beginning of its phase, so
    /// what it has done depends on orphans of lower phases only.
    fn may_run(&self) -> bool {
        let needs = if self.restored.is_some() { self.registered.0.saturating_sub(1) } else { self.registered.0 };
        self.is_released(needs)
    }
}

impl SendDeterministic {
    /// The recovery process says something.
    pub(super) fn take_order(&mut self, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let rank = self.config.rank;
        let order = (header.tag() == notice::RECOVERY).then(|| notice::decode(body)).flatten();
        match order.ok_or_else(|| SendDeterministic::malformed(rank, header, body))? {
            Order::Block { round } => self.block(round)?,
            Order::Line(line) => {
                let awaited = line.round == self.round.number && self.round.line.is_none();
                if awaited && line.addressee == self.incarnation.0 {
                    self.take_line(line)?;
                }
            }
            Order::Ready { round, open, raised } if round == self.round.number && self.round.line.is_some() => {
                // The last number there is comes after all others, in any order.
                let open = if self.has(Canary::PhasesIgnored) { u32::MAX } else { open };
                self.take_ready(Released::Before(open), raised)?;
            }
            Order::Over { round, raised, phases } if round == self.round.number && self.round.line.is_some() => {
                self.phases = phases;
                self.take_ready(Released::All, raised)?;
            }
            Order::Collect { number, round } if round == self.round.number && self.round.is_over() => {
                let table = self.checkpointed.clone();
                self.report(&Report::Collection { number, table });
            }
            Order::Floor { round, epoch, ceiling } if round == self.round.number && self.round.is_over() => {
                self.ceiling = Epoch(ceiling.min(Epoch::MAX.0));
                self.raise_floor(Epoch(epoch))?;
            }
            // Of an earlier round.
            _ => {}
        }
        Ok(())
    }

    /// Figure 3, lines 54 to 56: stand still, tell what was sent.
    fn block(&mut self, number: u64) -> Result<(), ProtocolError> {
        let known = self.round.number;
        if number < known || (number == known && self.round.line.is_some()) {
            self.report(&Report::StaleRound { round: known });
            return Ok(());
        }
        if let Table::Told(table) = &self.round.table
            && number == known
        {
            // Asked again, by a new recovery process perhaps: what has been heard since waits for the line.
            let table = table.clone();
            self.report_table(number, table);
            return Ok(());
        }
        let Round { restored, ran, .. } = self.round;
        self.round = Round {
            number,
            running: false,
            table: Table::Awaited,
            restored,
            ran,
            released: Released::Nothing,
            ..Round::default()
        };
        self.ceiling = self.config.ceiling;
        for peer in self.peers() {
            self.channel(peer)?.set_line(None);
            self.catch_up(peer)?;
        }
        self.tell_table();
        Ok(())
    }

    /// Tells the recovery process what it needs for the line, unless that was told, or there is something to learn first.
    pub(super) fn tell_table(&mut self) {
        // A checkpoint doesn't know what was received since, and what isn't known takes a sender back to be safe. Each
        // Hello says it; all peers are met soon, whatever the recovery does.
        let learns = self.round.restored.is_some() && self.channels().any(|channel| channel.has_to_learn());
        if learns || !matches!(self.round.table, Table::Awaited) {
            return;
        }
        let (round, table) = (self.round.number, self.table());
        self.round.table = Table::Told(table.clone());
        self.report_table(round, table);
        self.channels().for_each(Channel::await_line);
    }

    fn report_table(&mut self, round: u64, table: RankTable) {
        let (phase, phases) = (self.phase.0, self.phases.clone());
        self.report(&Report::Table { round, table, phase, phases });
    }

    /// Figure 3, lines 58 to 61: go back, if the line says so and this rank isn't there already.
    fn take_line(&mut self, line: Line) -> Result<(), ProtocolError> {
        let restore = line.restore;
        self.phases = line.phases.clone();
        self.round.line = Some(line);
        if let Some((epoch, incarnation)) = restore {
            let epoch = Epoch(epoch);
            if !self.has(Canary::BeyondLineKept) {
                // First of all: a rank that dies right now must not come back beyond the line.
                self.effects.push_back(Effect::KeepCheckpoints { first: self.floor, last: epoch });
            }
            let stays = self.has(Canary::RestoreOnlyBelow) && epoch >= self.epoch;
            if incarnation != self.incarnation.0 && !stays {
                self.effects.push_back(Effect::RollBack { epoch });
                return Ok(());
            }
        }
        self.stand_on_line()
    }

    /// Figure 3, lines 62 to 68: count the orphans, tell their phases. Nothing is replayed by phase: what waits for its phase
    /// waits here, at the receiver.
    pub(super) fn stand_on_line(&mut self) -> Result<(), ProtocolError> {
        let Some(line) = self.round.line.clone() else { return Ok(()) };
        self.round.registered = self.phase;
        for sender in line.senders {
            let channel = self.channel(Rank(sender.rank))?;
            channel.set_line(Some(sender));
            let orphans: Vec<(u64, Phase)> = channel.receipts.beyond(Ssn(sender.base)).collect();
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

    /// Figure 3, lines 70 to 74. What this rank does from now on may depend on all that is released, so its phase has a number of
    /// the window that begins here.
    fn take_ready(&mut self, released: Released, raised: u32) -> Result<(), ProtocolError> {
        // The recovery process knows that everybody stands on the line.
        self.channels().for_each(Channel::trust_line);
        let round = &mut self.round;
        round.released = released;
        round.running |= round.may_run();
        round.ran |= round.running;
        if round.running {
            self.phase = self.phase.max(Phase(raised));
        }
        if self.round.is_over() {
            (self.round.restored, self.round.ran) = (None, false);
            for peer in self.peers() {
                self.channel(peer)?.end_recovery();
                self.catch_up(peer)?;
            }
        }
        self.effects.push_back(Effect::Resume);
        Ok(())
    }

    /// Figure 3, lines 29 to 32, by number: a duplicate of what was received beyond the sender's place in the line.
    /// `resent_in`: the phase in which it was sent this time.
    pub(super) fn count_orphan(&mut self, peer: Rank, ssn: Ssn, resent_in: Phase) -> Result<(), ProtocolError> {
        if self.round.is_over() {
            return Ok(());
        }
        let Some(phase) = self.channel(peer)?.take_orphan(ssn) else { return Ok(()) };
        let Some(count) = self.round.missing.get_mut(&phase.0) else { return Ok(()) };
        self.round.resent = self.round.resent.max(resent_in.0);
        *count -= 1;
        if *count == 0 {
            self.round.missing.remove(&phase.0);
            let Round { number: round, resent, .. } = self.round;
            self.report(&Report::NoOrphanPhase { round, phase: phase.0, resent });
        }
        Ok(())
    }

    /// Section III.A.4: older checkpoints go, and the senders hear what they need not keep.
    fn raise_floor(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        self.floor = self.floor.max(epoch.min(self.durable));
        let floor = self.floor;
        self.effects.push_back(Effect::KeepCheckpoints { first: floor, last: Epoch::MAX });
        let news = |channel: &mut Channel| {
            let (covers, (settled, settles)) = (channel.cover(floor).is_some(), channel.settle(floor));
            (covers || settles).then_some((channel.peer(), channel.covered, settled))
        };
        let news: Vec<(Rank, Ssn, Ssn)> = self.channels().filter_map(news).collect();
        for (peer, upto, settled) in news {
            self.tell_covered(peer, upto, settled);
        }
        Ok(())
    }

    /// Tells `peer` what it need not keep for this rank, and what it need not remember of this rank's messages.
    pub(super) fn tell_covered(&mut self, peer: Rank, upto: Ssn, settled: Ssn) {
        let (rank, origin) = (self.config.rank, self.origin());
        let body = notice::encode(&Covered { epoch: self.floor.0, upto: upto.0, settled: settled.0 });
        let header = WireHeader::control(rank, peer, origin, notice::COVERED, body.len() as u64, None);
        self.effects.push_back(Effect::Transmit { to: Party::Rank(peer), header, body });
    }
}

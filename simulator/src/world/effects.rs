//! Carries out a protocol's effects.

use counterfoil_ack_piggyback::{Ack, WireHeader};
use counterfoil_log_core::{Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::{
    ChoiceRecord, Coordinator, Effect, EntryKey, EntryKind, Kept, Party, Protocol, Repetition, command_header,
};

use super::World;
use crate::canary::Canary;
use crate::network::Frame;
use crate::process::{Entry, InCall, Machine, Process, TransmitCursor};
use crate::rule::Refusal;
use crate::schedule::Fault;
use crate::trace::Event;
use crate::violation::ViolationKind;

impl World<'_> {
    /// Calls `event` with a process, and then carries out the resulting effects.
    pub(super) fn with<T>(
        &mut self,
        node: u32,
        event: impl FnOnce(&mut Self, &mut Process) -> Result<T, ViolationKind>,
    ) -> Result<T, ViolationKind> {
        let Some(mut process) = self.nodes[node as usize].process.take() else {
            return self.impossible(node, "something of a process that is dead".into());
        };
        let done = event(self, &mut process);
        let done = done.and_then(|done| self.carry_out_effects(node, &mut process).map(|()| done));
        if let Some(fault) = self.struck.take() {
            self.nodes[node as usize].process = Some(process);
            self.coverage.faults_within_events += 1;
            self.kill(node, fault)?;
            return done;
        }
        let is_choice = !self.schedule.unnamed && self.rule.properties.repeats != Repetition::SendsAndReceives;
        if node < self.program.ranks() && is_choice {
            process.begin_choice(&self.program, node);
        }
        let recovering = process.is_recovering();
        if std::mem::replace(&mut process.recovering, recovering) && !recovering && node < self.program.ranks() {
            self.note(Event::Recovered { rank: node })?;
        }
        self.nodes[node as usize].process = Some(process);
        self.touched |= 1 << node;
        done
    }

    /// Turns a refusal into a violation.
    pub(super) fn accept<T>(&self, node: u32, answer: Result<T, Refusal>) -> Result<T, ViolationKind> {
        answer.map_err(|Refusal(why)| ViolationKind::Refused { node, why })
    }

    /// Reports an event to a rank's state machine.
    pub(super) fn ask<T, E: std::error::Error>(
        &self,
        node: u32,
        process: &mut Process,
        event: impl FnOnce(&mut dyn Protocol) -> Result<T, E>,
    ) -> Result<T, ViolationKind> {
        self.accept(node, process.ask(event))
    }

    pub(super) fn impossible<T>(&self, node: u32, what: String) -> Result<T, ViolationKind> {
        Err(ViolationKind::Impossible { node, what })
    }

    /// Carries out all effects, in order; resulting ones come last.
    ///
    /// Stops where a fault strikes.
    pub(super) fn carry_out_effects(&mut self, node: u32, process: &mut Process) -> Result<(), ViolationKind> {
        loop {
            if self.struck.is_some() {
                return Ok(());
            }
            match &mut process.machine {
                Machine::Rank(_) => {
                    let Some(effect) = process.effects.pop_front() else { return self.note_table(node, process) };
                    let to_coordinator = matches!(effect, Effect::Transmit { to: Party::Coordinator, .. });
                    if to_coordinator && self.is_waiting_for(self.program.ranks(), process) || !self.is_struck(node) {
                        self.carry_out_effect(node, process, effect)?;
                    }
                }
                Machine::Coordinator(coordinator) => {
                    let Some((rank, body)) = coordinator.poll_message() else { return self.note_line(node, process) };
                    if self.is_waiting_for(rank.0, process) || !self.is_struck(node) {
                        self.send_or_queue(node, process, rank.0, body);
                    }
                }
            }
        }
    }

    /// Returns `true` if the node dies before its next effect.
    pub(super) fn is_struck(&mut self, node: u32) -> bool {
        let (Some(done), nodes, event) = (self.effects, self.nodes.len() as u32, self.event) else { return false };
        self.effects = Some(done + 1);
        let due = |fault: &Fault| fault.at <= event && fault.node % nodes == node && fault.effects == Some(done);
        if self.struck.is_none() {
            let place = self.faults.iter().position(due);
            self.struck = place.map(|place| self.faults.remove(place));
        }
        self.struck.is_some()
    }

    /// Carries out a rank's effect.
    fn carry_out_effect(&mut self, node: u32, process: &mut Process, effect: Effect) -> Result<(), ViolationKind> {
        match effect {
            Effect::Transmit { to: Party::Coordinator, body, .. } if self.rule.properties.has_coordinator => {
                self.send_or_queue(node, process, self.program.ranks(), body);
                Ok(())
            }
            Effect::Transmit { to, header, body } => {
                let Some(to) = self.node_of(to).filter(|&to| to != node) else {
                    return self.impossible(node, format!("a frame to {to:?}"));
                };
                if !self.rule.properties.rolls_back_survivors || self.has_met(process, to) {
                    self.network.send(node, to, Frame::Control([header.as_bytes(), &body].concat()));
                }
                Ok(())
            }
            Effect::Acknowledged { peer, ack, keep, .. } => self.acknowledge(node, process, peer, ack, keep),
            Effect::ReceiverRolledBack { peer, to } => {
                self.coverage.unacknowledged += 1;
                self.check_peer(node, peer)?;
                process.acked[peer.index()] = to;
                self.note_heard(Event::Unacknowledged { rank: node, peer: peer.0, to })
            }
            Effect::Covered { peer, upto, .. } => self.free(node, process, peer, upto),
            // The programs send nothing to themselves.
            Effect::Replay { peer, .. } if peer.0 == node => Ok(()),
            Effect::Replay { peer, incarnation, after, upto } => {
                self.check_peer(node, peer)?;
                let freed = process.image.lanes[peer.index()].freed();
                if after < freed && self.rule.properties.keeps == Kept::UntilCovered {
                    return Err(ViolationKind::Freed { rank: node, peer: peer.0, number: after.next().0 });
                }
                let skipped = u64::from(self.canary(Canary::SkipOne) && after > Ssn::ZERO);
                let next = Ssn(after.0.max(freed.0) + 1 + skipped);
                process.cursors[peer.index()] = Some(TransmitCursor { incarnation, next, upto });
                Ok(())
            }
            Effect::Resume => {
                self.resume(node, process)?;
                self.resume_call(node, process)
            }
            Effect::TakeCheckpoint => {
                process.checkpoint_asked = true;
                Ok(())
            }
            Effect::SendEntry { to, entry } => self.send_entry(node, process, to, entry),
            Effect::RunCollective { call } => {
                process.again.push_back(call);
                Ok(())
            }
            Effect::DiscardEntries { kind, first, last } => {
                let entries = &mut self.nodes[node as usize].disk.entries;
                entries.retain(|key, _| key.kind != kind || !(first..=last).contains(&key.number));
                Ok(())
            }
            Effect::SealLog { epoch } => self.ask(node, process, |rank| rank.handle_log_sealed(epoch)),
            Effect::DiscardChoices { before, .. } => {
                let choices = &mut self.nodes[node as usize].disk.choices;
                *choices = choices.split_off(&before);
                Ok(())
            }
            Effect::KeepEntry { entry: EntryKey { kind: EntryKind::Delivery, .. }, bytes } => {
                let record = self.accept(node, ChoiceRecord::decode(&bytes).map_err(Refusal::from))?;
                let record = ChoiceRecord::new(record);
                self.nodes[node as usize].disk.deliveries.insert(record.sequence, record);
                Ok(())
            }
            Effect::KeepEntry { entry, bytes } => {
                self.keep_entry(node, entry, Entry::Bytes(bytes));
                Ok(())
            }
            Effect::DiscardDeliveries { before } => {
                let deliveries = &mut self.nodes[node as usize].disk.deliveries;
                *deliveries = deliveries.split_off(&before);
                Ok(())
            }
            Effect::KeepCheckpoints { first, last } => self.keep_checkpoints(node, process, first, last),
            Effect::RollBack { epoch } => self.roll_back(node, process, epoch),
            other => self.impossible(node, format!("{other:?}")),
        }
    }

    /// Handles a frame other than a message or a connection's first.
    pub(super) fn handle_control(
        &mut self,
        node: u32,
        process: &mut Process,
        from: u32,
        bytes: &[u8],
    ) -> Result<(), ViolationKind> {
        let party = self.party(from);
        match (&mut process.machine, party) {
            (Machine::Coordinator(coordinator), _) => {
                let handled = coordinator.handle_control(Rank(from), bytes).map_err(Refusal::from);
                self.accept(node, handled)
            }
            (Machine::Rank(_), Party::Coordinator) => {
                let header = command_header(Rank(node), bytes);
                self.ask(node, process, |rank| rank.handle_control(party, &header, bytes))
            }
            (Machine::Rank(_), Party::Rank(_)) => {
                let (header, body) = self.accept(node, WireHeader::split(bytes).map_err(Refusal::from))?;
                self.note_ack(node, from, header)?;
                self.ask(node, process, |rank| rank.handle_control(party, header, body))
            }
        }
    }

    /// Notes the acknowledgement in the header of a frame arriving from a peer.
    pub(super) fn note_ack(&mut self, rank: u32, peer: u32, header: &WireHeader) -> Result<(), ViolationKind> {
        let Some(Ack { ssn: upto, .. }) = header.ack() else { return Ok(()) };
        self.note_heard(Event::AckHeard { rank, peer, incarnation: header.incarnation(), upto })
    }

    fn acknowledge(
        &mut self,
        node: u32,
        process: &mut Process,
        peer: Rank,
        ack: Ack,
        keep: bool,
    ) -> Result<(), ViolationKind> {
        self.check_peer(node, peer)?;
        let (first, last) = (process.acked[peer.index()].next(), Self::last(process, peer.0));
        if ack.ssn > last {
            return self.impossible(node, format!("{} of {last} acknowledged by {peer}", ack.ssn));
        }
        process.acked[peer.index()] = ack.ssn.max(process.acked[peer.index()]);
        if !keep && first <= ack.ssn {
            if !self.canary(Canary::FreeNothing) {
                let lane = &mut process.image.lanes[peer.index()];
                let before = lane.retained();
                lane.free(first, ack.ssn);
                self.coverage.released += before - lane.retained();
            }
            if self.is_struck(node) {
                return Ok(());
            }
        }
        self.note_heard(Event::Acknowledged { rank: node, peer: peer.0, upto: ack.ssn })
    }

    /// Notes an event about receipts, if the oracles judge by them.
    pub(super) fn note_heard(&mut self, event: Event) -> Result<(), ViolationKind> {
        if self.rule.properties.keeps == Kept::Logged { self.note(event) } else { Ok(()) }
    }

    /// Durably discards a rank's checkpoints outside `first..=last`.
    pub(super) fn keep_checkpoints(
        &mut self,
        node: u32,
        process: &mut Process,
        first: Epoch,
        last: Epoch,
    ) -> Result<(), ViolationKind> {
        let kept = |epoch: Epoch| (first..=last).contains(&epoch);
        self.nodes[node as usize].disk.checkpoints.retain(|saved| kept(saved.epoch));
        process.writing.take_if(|writing| writing.epoch > last);
        self.note(Event::CheckpointsKept { rank: node, first, last })
    }

    pub(super) fn check_peer(&self, node: u32, peer: Rank) -> Result<(), ViolationKind> {
        if peer.0 < self.program.ranks() && peer.0 != node {
            return Ok(());
        }
        self.impossible(node, format!("something about the channel to {peer}"))
    }

    /// Frees the records to a peer up to `last`, which it has covered.
    fn free(&mut self, rank: u32, process: &mut Process, peer: Rank, last: Ssn) -> Result<(), ViolationKind> {
        self.check_peer(rank, peer)?;
        let lane = &mut process.image.lanes[peer.index()];
        if last > lane.last() {
            return self.impossible(rank, format!("to free {last} of {} to {peer}", lane.last()));
        }
        if self.canary(Canary::FreeNothing) {
            return Ok(());
        }
        let one_more = self.canary(Canary::FreeOneMore) && last < lane.last();
        let last = if one_more { last.next() } else { last };
        let before = lane.retained();
        lane.free(Ssn::FIRST, last);
        self.coverage.freed += before - lane.retained();
        let freed = lane.freed();
        if let Some(cursor) = &mut process.cursors[peer.index()] {
            cursor.next = cursor.next.max(freed.next());
        }
        if self.rule.properties.keeps == Kept::All {
            return self.impossible(rank, format!("to free {last} to {peer}"));
        }
        self.note(Event::Freed { rank, peer: peer.0, upto: last })
    }

    /// Presents held messages again, until the protocol holds one.
    fn resume(&mut self, node: u32, process: &mut Process) -> Result<(), ViolationKind> {
        process.held_from.iter_mut().for_each(|held| *held = None);
        for from in 0..process.held.len() {
            let mut waiting = std::mem::take(&mut process.held[from]);
            while let Some(record) = waiting.pop_front() {
                if !self.judge(node, process, record)? {
                    break;
                }
            }
            process.held[from].append(&mut waiting);
        }
        Ok(())
    }

    /// Rolls a living rank back to an earlier checkpoint, and reconnects it.
    fn roll_back(&mut self, rank: u32, process: &mut Process, epoch: Epoch) -> Result<(), ViolationKind> {
        self.note(Event::RolledBack { rank, epoch })?;
        self.coverage.rollbacks += 1;
        let checkpoints = &self.nodes[rank as usize].disk.checkpoints;
        let oldest = checkpoints.first().map_or(Epoch::FIRST, |saved| saved.epoch);
        let Some(saved) = checkpoints.iter().find(|saved| saved.epoch == epoch) else {
            return self.impossible(rank, format!("a rollback to {epoch}, which has no checkpoint"));
        };
        process.image = saved.image.clone();
        process.cursors.iter_mut().for_each(|cursor| *cursor = None);
        process.held_from.iter_mut().for_each(|held| *held = None);
        process.acked.fill(Ssn::ZERO);
        process.writing = None;
        process.checkpoint_asked = false;
        process.again.clear();
        process.in_call = InCall::Not;
        process.end_choice();
        let before = process.incarnation(Incarnation(self.nodes[rank as usize].incarnation));
        let tables = &saved.tables;
        self.ask(rank, process, |machine| machine.restore(tables, oldest))?;
        self.recover_local_log(rank, process)?;
        self.fail_calls(Some(rank))?;
        self.reconnect(rank, process, before)
    }
}

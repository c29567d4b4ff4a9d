//! Carries out the actions of a protocol.

use std::collections::VecDeque;

use counterfoil_log_core::{Epoch, Incarnation, Rank, Ssn};
use counterfoil_protocols::api::Party;

use super::{Node, World};
use crate::network::Frame;
use crate::process::{Image, Process, Slot, TransmitCursor};
use crate::protocol::{Action, Actions, Refusal, Retention, SimProtocol};
use crate::random::{Random, mix};
use crate::schedule::{Canary, Fault};
use crate::trace::Event;
use crate::violation::ViolationKind;

impl<P: SimProtocol> World<'_, P> {
    /// Calls `event` with a process, and then carries out the resulting actions.
    pub(super) fn with<T>(
        &mut self,
        node: u32,
        event: impl FnOnce(&mut Self, &mut Process<P>, &mut Actions) -> Result<T, ViolationKind>,
    ) -> Result<T, ViolationKind> {
        let Some(mut process) = self.nodes[node as usize].process.take() else {
            return self.impossible(node, "something of a process that is dead".into());
        };
        let mut actions = Actions::new();
        let done = event(self, &mut process, &mut actions);
        let done = done.and_then(|done| self.perform_all(node, &mut process, &mut actions).map(|()| done));
        if let Some(fault) = self.struck.take() {
            self.nodes[node as usize].process = Some(process);
            self.coverage.faults_within_events += 1;
            self.kill(node, fault)?;
            return done;
        }
        if node < self.program.ranks() && !self.schedule.unnamed {
            process.begin_choice(&self.program, node);
        }
        let recovering = process.protocol.is_recovering();
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

    pub(super) fn impossible<T>(&self, node: u32, what: String) -> Result<T, ViolationKind> {
        Err(ViolationKind::Impossible { node, what })
    }

    /// Carries out all actions, in order; actions that result from them come last. Stops where a fault strikes.
    pub(super) fn perform_all(
        &mut self,
        node: u32,
        process: &mut Process<P>,
        actions: &mut Actions,
    ) -> Result<(), ViolationKind> {
        while !actions.is_empty() {
            for action in std::mem::take(actions) {
                if self.is_struck(node) {
                    actions.clear();
                    return Ok(());
                }
                self.perform(node, process, action, actions)?;
            }
        }
        Ok(())
    }

    /// Returns `true` if the node dies before its next effect.
    fn is_struck(&mut self, node: u32) -> bool {
        let (Some(done), nodes, event) = (self.effects, self.nodes.len() as u32, self.event) else { return false };
        self.effects = Some(done + 1);
        let due = |fault: &Fault| fault.at <= event && fault.node % nodes == node && fault.effects == Some(done);
        if self.struck.is_none() {
            let place = self.faults.iter().position(due);
            self.struck = place.map(|place| self.faults.remove(place));
        }
        self.struck.is_some()
    }

    fn perform(
        &mut self,
        node: u32,
        process: &mut Process<P>,
        action: Action,
        actions: &mut Actions,
    ) -> Result<(), ViolationKind> {
        if let Action::Control { to, bytes } = action {
            let Some(to) = self.node_of(to).filter(|&to| to != node) else {
                return self.impossible(node, format!("a frame to {to:?}"));
            };
            let ranks = self.program.ranks();
            let met =
                process.cursors[to as usize].is_some_and(|cursor| Some(cursor.incarnation) == self.incarnation(to));
            if !P::RECONNECTS || node.max(to) >= ranks || met {
                self.network.send(node, to, Frame::Control(bytes));
            }
            return Ok(());
        }
        if let Action::SetLine { line } = action {
            return self.draw_line(line);
        }
        if node >= self.program.ranks() {
            return self.impossible(node, format!("{action:?} of the coordinator"));
        }
        match action {
            Action::Control { .. } | Action::SetLine { .. } => Ok(()),
            Action::ReportTable => self.report_table(node, process),
            Action::Acknowledged { peer, upto } => {
                self.check_peer(node, peer)?;
                let last = Self::last(process, peer.0);
                if upto > last {
                    return self.impossible(node, format!("{upto} of {last} acknowledged by {peer}"));
                }
                if P::RECONNECTS {
                    self.note(Event::Acknowledged { rank: node, peer: peer.0, upto })?;
                }
                Ok(())
            }
            Action::ReceiverRolledBack { peer, to } => {
                self.coverage.unacknowledged += 1;
                self.check_peer(node, peer)?;
                if P::RECONNECTS {
                    self.note(Event::Unacknowledged { rank: node, peer: peer.0, to })?;
                }
                Ok(())
            }
            Action::Release { peer, first, last } => {
                self.check_peer(node, peer)?;
                if !self.canary(Canary::FreeNothing) {
                    let lane = &mut process.image.lanes[peer.index()];
                    let before = lane.retained();
                    lane.free(first, last);
                    self.coverage.released += before - lane.retained();
                }
                Ok(())
            }
            Action::Free { peer, first, last } => self.free(node, process, peer, first, last),
            Action::Replay { peer, incarnation, after, upto } => {
                self.check_peer(node, peer)?;
                let freed = process.image.lanes[peer.index()].freed();
                if after < freed && matches!(P::RETENTION, Retention::UntilCovered { .. }) {
                    return Err(ViolationKind::Freed { rank: node, peer: peer.0, number: after.next().0 });
                }
                let skipped = u64::from(self.canary(Canary::SkipOne) && after > Ssn::ZERO);
                let next = Ssn(after.0.max(freed.0) + 1 + skipped);
                process.cursors[peer.index()] = Some(TransmitCursor { incarnation, next, upto });
                Ok(())
            }
            Action::Extend { peer, upto } => {
                self.check_peer(node, peer)?;
                if let Some(cursor) = &mut process.cursors[peer.index()] {
                    cursor.upto = cursor.upto.max(upto);
                }
                Ok(())
            }
            Action::Resume => self.resume(node, process, actions),
            Action::DiscardChoices { before } => {
                let choices = &mut self.nodes[node as usize].disk.choices;
                *choices = choices.split_off(&before);
                Ok(())
            }
            Action::KeepDelivery { record } => {
                self.nodes[node as usize].disk.deliveries.insert(record.sequence, record);
                Ok(())
            }
            Action::DiscardDeliveries { before } => {
                let deliveries = &mut self.nodes[node as usize].disk.deliveries;
                *deliveries = deliveries.split_off(&before);
                Ok(())
            }
            Action::KeepCheckpoints { first, last } => {
                let kept = |epoch: Epoch| (first..=last).contains(&epoch);
                self.nodes[node as usize].disk.checkpoints.retain(|saved| kept(saved.epoch));
                process.writing.take_if(|writing| writing.epoch > last);
                self.note(Event::CheckpointsKept { rank: node, first, last })
            }
            Action::RollBack { epoch } => self.roll_back(node, process, epoch, actions),
        }
    }

    /// Notes that a rank sends its table, and how far it has transmitted each lane by then.
    fn report_table(&mut self, rank: u32, process: &Process<P>) -> Result<(), ViolationKind> {
        for (peer, cursor) in (0..self.program.ranks()).zip(&process.cursors) {
            let upto = cursor.map_or(Ssn::ZERO, |cursor| cursor.next.prev());
            self.note(Event::Transmitted { rank, peer, upto })?;
        }
        self.note(Event::TableReported { rank })
    }

    fn check_peer(&self, node: u32, peer: Rank) -> Result<(), ViolationKind> {
        if peer.0 < self.program.ranks() && peer.0 != node {
            return Ok(());
        }
        self.impossible(node, format!("something about the channel to {peer}"))
    }

    fn free(
        &mut self,
        rank: u32,
        process: &mut Process<P>,
        peer: Rank,
        first: Ssn,
        last: Ssn,
    ) -> Result<(), ViolationKind> {
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
        lane.free(first, last);
        self.coverage.freed += before - lane.retained();
        let freed = lane.freed();
        if let Some(cursor) = &mut process.cursors[peer.index()] {
            cursor.next = cursor.next.max(freed.next());
        }
        if P::RETENTION.is_bounded() {
            self.note(Event::Freed { rank, peer: peer.0, upto: last })?;
        }
        Ok(())
    }

    /// Presents held messages again, until the protocol holds one.
    fn resume(&mut self, node: u32, process: &mut Process<P>, actions: &mut Actions) -> Result<(), ViolationKind> {
        process.held_from.iter_mut().for_each(|held| *held = None);
        for from in 0..process.held.len() {
            let mut waiting = std::mem::take(&mut process.held[from]);
            while let Some(record) = waiting.pop_front() {
                if !self.judge(node, process, record, actions)? {
                    break;
                }
            }
            process.held[from].append(&mut waiting);
        }
        Ok(())
    }

    /// Checks a recovery line.
    fn draw_line(&mut self, line: Vec<Option<Epoch>>) -> Result<(), ViolationKind> {
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

    /// Checks that the log of `from`, where a line leaves it, has all messages that `to` lacks where the line leaves
    /// that.
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

    /// Rolls a living rank back to an earlier checkpoint. Its connections and held messages stay, unless the rule
    /// reconnects.
    fn roll_back(
        &mut self,
        rank: u32,
        process: &mut Process<P>,
        epoch: Epoch,
        actions: &mut Actions,
    ) -> Result<(), ViolationKind> {
        self.note(Event::RolledBack { rank, epoch })?;
        self.coverage.rollbacks += 1;
        let checkpoints = &self.nodes[rank as usize].disk.checkpoints;
        let oldest = checkpoints.first().map_or(Epoch::FIRST, |saved| saved.epoch);
        let saved = checkpoints.iter().find(|saved| saved.epoch == epoch);
        let tables = saved.map(|saved| saved.tables.clone());
        process.image = match saved {
            Some(saved) => saved.image.clone(),
            None => Image::new(&self.program, rank),
        };
        process.cursors.iter_mut().for_each(|cursor| *cursor = None);
        process.held_from.iter_mut().for_each(|held| *held = None);
        process.writing = None;
        process.end_choice();
        let before = process.protocol.incarnation(Incarnation(self.nodes[rank as usize].incarnation));
        let told = process.protocol.on_rolled_back(tables.as_deref(), oldest, actions);
        self.accept(rank, told)?;
        if P::RECONNECTS {
            self.reconnect(rank, process, before)?;
        }
        Ok(())
    }

    /// Reconnects a rolled back rank with all other ranks. Frames to it are lost; of the frames that it had sent
    /// before, some arrive.
    fn reconnect(&mut self, rank: u32, process: &mut Process<P>, before: Incarnation) -> Result<(), ViolationKind> {
        let mut random = Random::new(mix(self.event) ^ u64::from(rank));
        process.held.iter_mut().for_each(VecDeque::clear);
        for peer in (0..self.program.ranks()).filter(|&peer| peer != rank) {
            if !self.lives(peer) {
                self.network.close_older(peer, rank);
                continue;
            }
            self.network.cut(rank, peer, before, &mut random);
            let hello = process.protocol.on_connect(Party::Rank(Rank(peer)));
            self.network.connect(rank, peer, self.accept(rank, hello)?);
        }
        for peer in (0..self.program.ranks()).filter(|&peer| peer != rank) {
            let Some(other) = &mut self.nodes[peer as usize].process else { continue };
            other.cursors[rank as usize] = None;
            if !self.schedule.late {
                other.held[rank as usize].clear();
                self.network.close_older(rank, peer);
            }
            let hello = other.protocol.on_connect(Party::Rank(Rank(rank)));
            self.network.connect(peer, rank, self.accept(peer, hello)?);
            self.touched |= 1 << peer;
        }
        Ok(())
    }
}

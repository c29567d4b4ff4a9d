//! Process deaths, and replacements.

use counterfoil_log_core::{Epoch, Incarnation, Rank};
use counterfoil_protocols::api::{ChoiceRecord, Coordinator, Protocol, Snapshot};

use super::World;
use crate::process::{Checkpoint, Image, Machine, Process};
use crate::random::Random;
use crate::recording::Activity;
use crate::rule::{self, Refusal};
use crate::schedule::{Fault, Tier};
use crate::trace::Event;
use crate::violation::ViolationKind;

impl World<'_> {
    /// Starts all nodes' first processes, and connects them.
    pub(super) fn begin(&mut self) -> Result<(), ViolationKind> {
        let nodes = 0..self.nodes.len() as u32;
        for node in nodes.clone() {
            self.replace(node)?;
        }
        for a in nodes.clone() {
            for b in a + 1..nodes.end {
                self.connect(a, b)?;
            }
        }
        Ok(())
    }

    /// Kills the nodes of all due faults.
    ///
    /// `now`: the next fault is due, whatever its event.
    pub(super) fn apply_faults(&mut self, now: bool) -> Result<(), ViolationKind> {
        if now && let Some(first) = self.faults.first_mut() {
            first.at = self.event;
        }
        let mut place = 0;
        while let Some(&fault) = self.faults.get(place).filter(|fault| fault.at <= self.event) {
            let node = fault.node % self.nodes.len() as u32;
            if self.lives(node) && (now || fault.effects.is_none()) {
                self.faults.remove(place);
                self.kill(node, fault)?;
            } else {
                place += 1; // It dies within an event, or again when it has been replaced.
            }
        }
        Ok(())
    }

    pub(super) fn kill(&mut self, node: u32, fault: Fault) -> Result<(), ViolationKind> {
        self.count_fault(node);
        self.end(node, fault.seed)
    }

    /// Ends a process, to be replaced later.
    ///
    /// `seed` determines the fate of its frames.
    pub(super) fn end(&mut self, node: u32, seed: u64) -> Result<(), ViolationKind> {
        let mut random = Random::new(seed);
        let here = &mut self.nodes[node as usize];
        let Some(process) = here.process.take() else { return Ok(()) };
        let incarnation = process.incarnation(Incarnation(here.incarnation));
        here.incarnation += 1;
        here.notices = 0;
        if let Some(saved) = process.writing
            && random.one_in(2)
        {
            self.store(node, saved)?;
        }
        if self.schedule.tier == Tier::ProcessCrashSafe {
            self.nodes[node as usize].disk.lanes = Some(process.image.lanes);
        }
        self.calls.lose(node, || random.one_in(2));
        let in_flight = self.network.fail(node, incarnation, &mut random);
        self.coverage.in_flight_lost += in_flight.lost;
        self.coverage.in_flight_kept += in_flight.kept;
        for survivor in self.nodes.iter_mut().filter(|survivor| survivor.process.is_some()) {
            survivor.notices |= 1 << node;
        }
        self.note(Event::Killed { node })
    }

    fn count_fault(&mut self, node: u32) {
        let behind = |rank: u32| {
            let here = &self.nodes[rank as usize];
            let progress = here.process.as_ref().map(|process| process.image.application.progress);
            let recovers = here.process.as_ref().is_some_and(|process| process.is_recovering());
            recovers || progress.is_none_or(|progress| progress < here.furthest)
        };
        let recovering = (0..self.program.ranks()).any(behind);
        let faults = self.coverage.faults;
        let another_is_dead = (0..self.nodes.len() as u32).any(|other| !self.lives(other));
        let is_rank = node < self.program.ranks();
        if is_rank {
            self.count_splits();
        }
        let here = &self.nodes[node as usize];
        let process = here.process.as_ref().filter(|_| is_rank);
        let coverage = &mut self.coverage;
        coverage.faults += 1;
        coverage.coordinator_faults += u64::from(!is_rank);
        coverage.faults_at_once += u64::from(another_is_dead);
        coverage.faults_during_recovery += u64::from(recovering);
        coverage.faults_after_recovery += u64::from(faults > 0 && !another_is_dead && !recovering);
        coverage.faults_again += u64::from(here.incarnation > 0);
        let finished = process.is_some_and(|process| process.is_finished(&self.program, node));
        coverage.faults_when_finished += u64::from(finished);
        let phases = [
            &mut coverage.faults_when_asked,
            &mut coverage.faults_when_logging,
            &mut coverage.faults_when_ready,
            &mut coverage.faults_when_stopped,
        ];
        let phase = process.and_then(|process| process.rank()).map_or(0, |rank| rank.inspect().phase_of_line());
        phases.into_iter().zip(1..).filter(|(_, of)| *of == phase).for_each(|(count, _)| *count += 1);
        let collects = match here.process.as_ref().map(|process| &process.machine) {
            Some(Machine::Coordinator(coordinator)) => coordinator.is_collecting(),
            _ => false,
        };
        coverage.coordinator_faults_collecting += u64::from(collects);
        coverage.faults_while_writing += u64::from(process.is_some_and(|process| process.writing.is_some()));
    }

    /// Makes a checkpoint durable, replacing those of the same or a later epoch, which belong to an undone past.
    pub(super) fn store(&mut self, node: u32, saved: Checkpoint) -> Result<(), ViolationKind> {
        let epoch = saved.epoch;
        let checkpoints = &mut self.nodes[node as usize].disk.checkpoints;
        checkpoints.retain(|older| older.epoch < epoch);
        checkpoints.push(saved);
        self.coverage.checkpoints += 1;
        self.note(Event::Durable { rank: node, epoch })
    }

    /// Starts a replacement, and connects it with all living nodes.
    pub(super) fn start(&mut self, node: u32) -> Result<(), ViolationKind> {
        if node < self.program.ranks() {
            self.count_straddled(node);
            self.fail_calls(None)?;
        }
        self.replace(node)?;
        for peer in (0..self.nodes.len() as u32).filter(|&peer| peer != node) {
            if self.lives(peer) {
                self.report_death(peer, node)?;
                self.connect(node, peer)?;
            }
        }
        if self.schedule.revoked && node < self.program.ranks() { self.reconnect_survivors(node) } else { Ok(()) }
    }

    /// Breaks all connections between living ranks but `replaced`, and makes them again.
    fn reconnect_survivors(&mut self, replaced: u32) -> Result<(), ViolationKind> {
        let survivors: Vec<u32> =
            (0..self.program.ranks()).filter(|&rank| rank != replaced && self.lives(rank)).collect();
        for (place, &a) in survivors.iter().enumerate() {
            for &b in &survivors[place + 1..] {
                self.coverage.in_flight_lost += self.network.reset(a, b);
                self.coverage.reconnections += 1;
                for (node, peer) in [(a, b), (b, a)] {
                    self.with(node, |world, process| {
                        process.held[peer as usize].clear();
                        world.handle_lost(node, process, peer)
                    })?;
                }
                self.connect(a, b)?;
            }
        }
        Ok(())
    }

    fn replace(&mut self, node: u32) -> Result<(), ViolationKind> {
        let incarnation = Incarnation(self.nodes[node as usize].incarnation);
        let is_rank = node < self.program.ranks();
        let settings = rule::settings(&self.rule, self.schedule, self.program.ranks());
        let machine = match self.rule.make_coordinator {
            Some(make) if !is_rank => Machine::Coordinator(make(incarnation.0, &settings)),
            _ => {
                let made = (self.rule.make_rank)(Rank(node), incarnation, &settings).map_err(Refusal::from);
                Machine::Rank(self.accept(node, made)?)
            }
        };
        let first = match &machine {
            Machine::Rank(rank) if incarnation == Incarnation(0) => rank.first_checkpoint(),
            _ => None,
        };
        let disk = &mut self.nodes[node as usize].disk;
        let newest = disk.checkpoints.last();
        let epoch = newest.map_or(Epoch::FIRST, |saved| saved.epoch);
        let tables = newest.map(|saved| saved.tables.clone());
        let oldest = disk.checkpoints.first().map_or(Epoch::FIRST, |saved| saved.epoch);
        let mut image = match newest {
            Some(saved) => saved.image.clone(),
            None if is_rank => Image::new(&self.program, node),
            None => Image { application: Default::default(), pending: Vec::new(), lanes: Vec::new() },
        };
        if let Some(mut lanes) = disk.lanes.take() {
            if self.rule.properties.rolls_back_survivors {
                lanes.iter_mut().zip(&image.lanes).for_each(|(lane, saved)| lane.truncate(saved.last()));
            }
            image.lanes = lanes;
        }
        self.record(Activity::Started { node, epoch: epoch.0, again: incarnation > Incarnation(0) });
        if is_rank {
            self.note(Event::Started { rank: node, epoch })?;
        }
        if let Some(Snapshot { epoch, tables }) = first {
            self.note(Event::Checkpointed { rank: node, epoch })?;
            self.store(node, Checkpoint { epoch, tables, image: image.clone() })?;
        }
        let process = Process::new(machine, image, self.nodes.len() as u32);
        self.nodes[node as usize].process = Some(Box::new(process));
        self.with(node, |world, process| {
            if incarnation == Incarnation(0) || !is_rank {
                return Ok(());
            }
            let from = if tables.is_some() {
                &mut world.coverage.restarts_from_checkpoint
            } else {
                &mut world.coverage.restarts_from_start
            };
            *from += 1;
            if let Some(tables) = tables {
                world.ask(node, process, |rank| rank.restore(&tables, oldest))?;
                if !world.rule.properties.rolls_back_survivors {
                    // The process may have died between its checkpoint becoming durable and the end of the previous
                    // one.
                    world.keep_checkpoints(node, process, epoch, epoch)?;
                }
            }
            world.recover_local_log(node, process)
        })
    }

    /// Presents the local log to a restored rank's rule.
    pub(super) fn recover_local_log(&mut self, rank: u32, process: &mut Process) -> Result<(), ViolationKind> {
        let disk = &self.nodes[rank as usize].disk;
        let choices: Vec<ChoiceRecord> = disk.choices.values().copied().collect();
        let deliveries: Vec<ChoiceRecord> = disk.deliveries.values().copied().collect();
        for record in &choices {
            self.ask(rank, process, |machine| machine.handle_recovered_choice(&record.bytes))?;
        }
        for record in &deliveries {
            self.ask(rank, process, |machine| machine.handle_recovered_delivery(&record.bytes))?;
        }
        self.recover_entries(rank, process)
    }

    /// Reports a death to a node, unless it was reported.
    pub(super) fn report_death(&mut self, node: u32, dead: u32) -> Result<(), ViolationKind> {
        let notices = &mut self.nodes[node as usize].notices;
        if *notices & 1 << dead == 0 {
            return Ok(());
        }
        *notices &= !(1 << dead);
        self.with(node, |world, process| world.handle_lost(node, process, dead))
    }

    /// Connects two living nodes: each sends its Hello, and transmits nothing until it has the other's.
    fn connect(&mut self, a: u32, b: u32) -> Result<(), ViolationKind> {
        for (from, to) in [(a, b), (b, a)] {
            self.with(from, |world, process| {
                process.cursors[to as usize] = None;
                if world.rule.properties.rolls_back_survivors && !world.schedule.late {
                    process.held[to as usize].clear();
                    world.network.close_older(to, from);
                }
                let hello = world.hello(from, process, to)?;
                world.network.connect(from, to, hello);
                Ok(())
            })?;
        }
        Ok(())
    }
}

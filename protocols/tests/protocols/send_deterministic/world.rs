//! A job: nodes, the recovery process, FIFO channels between them, and a random order of everything else.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use counterfoil_log_core::Rank;
use counterfoil_protocols::api::{Coordinator, Floor, Protocol};
use counterfoil_protocols::send_deterministic::RecoveryProcess;

use super::node::{Disk, Frame, Node, Outcome};
use super::program::{Image, Program, failure_free, tokens};
use crate::random::Random;

/// Random job settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) failures: usize,
    /// Also lose the recovery process.
    pub(crate) coordinator_fails: bool,
    pub(crate) checkpoints: bool,
    pub(crate) collections: bool,
}

/// Checkpoints, and nothing fails.
pub(crate) const BASE: Settings =
    Settings { failures: 0, coordinator_fails: false, checkpoints: true, collections: false };

/// Runs the job of a seed.
pub(crate) fn job(seed: u64, settings: Settings) -> Outcome<Tally> {
    let mut random = Random::new(seed);
    let (ranks, count) = (2 + random.index(4), 1 + random.index(4));
    let hops = 20 + random.index(60);
    let program = tokens(&mut random, ranks, count, hops);
    World::new(program)?.run(&mut random, settings)
}

/// Job counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    pub(crate) rolled_back: u64,
    pub(crate) stayed: u64,
    pub(crate) rounds: u64,
    pub(crate) logged: u64,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) program: Program,
    pub(crate) nodes: Vec<Node>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) coordinator: RecoveryProcess,
    /// Number of its replacements.
    coordinators: u32,
    /// Rank pairs without a connection.
    broken: BTreeSet<(usize, usize)>,
    /// Indexed by from * ranks + to.
    pub(crate) channels: Vec<VecDeque<Frame>>,
    reports: Vec<VecDeque<Vec<u8>>>,
    commands: Vec<VecDeque<Vec<u8>>>,
    expected: (Vec<Vec<Vec<u64>>>, Vec<Image>),
    pub(crate) tally: Tally,
}

impl fmt::Display for World {
    /// Shows the state of the recovery process and every rank.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.coordinator)?;
        for (node, ops) in self.nodes.iter().zip(&self.program) {
            writeln!(
                f,
                "rank {} at {} of {}, phase {:?}, cursors {:?}, {:?}",
                node.rank,
                node.image.at,
                ops.len(),
                node.protocol.phase(),
                node.cursors,
                node.protocol.table()
            )?;
        }
        Ok(())
    }
}

impl World {
    pub(crate) fn new(program: Program) -> Outcome<World> {
        let ranks = program.len();
        let mut disks = vec![Disk::default(); ranks];
        let mut nodes = Vec::new();
        for (rank, disk) in disks.iter_mut().enumerate() {
            nodes.push(Node::start(rank, ranks, false, disk)?);
        }
        let mut world = World {
            expected: failure_free(&program),
            program,
            nodes,
            disks,
            coordinator: RecoveryProcess::new(ranks as u32, None),
            coordinators: 0,
            broken: BTreeSet::new(),
            channels: vec![VecDeque::new(); ranks * ranks],
            reports: vec![VecDeque::new(); ranks],
            commands: vec![VecDeque::new(); ranks],
            tally: Tally::default(),
        };
        for rank in 0..ranks {
            world.disconnect(rank);
        }
        Ok(world)
    }

    pub(crate) fn ranks(&self) -> usize {
        self.nodes.len()
    }

    /// Breaks all of a rank's connections: nothing reaches it.
    ///
    /// Frames sent by it earlier still arrive until it is connected anew.
    fn disconnect(&mut self, rank: usize) {
        let ranks = self.ranks();
        for peer in (0..ranks).filter(|&peer| peer != rank) {
            self.nodes[peer].cursors[rank] = None;
            self.channels[peer * ranks + rank].clear();
            self.broken.insert((rank.min(peer), rank.max(peer)));
        }
    }

    /// Replaces a broken connection by a new one.
    pub(crate) fn connect(&mut self, one: usize, other: usize) -> Outcome<bool> {
        if !self.broken.remove(&(one.min(other), one.max(other))) {
            return Ok(false);
        }
        let ranks = self.ranks();
        for (from, to) in [(one, other), (other, one)] {
            self.nodes[to].clear_arrived(from);
            // A replay position from an older connection doesn't hold on this one.
            self.nodes[from].cursors[to] = None;
            let hello = self.nodes[from].hello(to)?;
            self.channels[from * ranks + to] = VecDeque::from([hello]);
        }
        Ok(true)
    }

    /// Collects the output of a node.
    pub(crate) fn collect_output(&mut self, rank: usize) -> Outcome<()> {
        let ranks = self.ranks();
        let node = &mut self.nodes[rank];
        for (to, ssn, payload) in node.sent.drain(..) {
            let expected = self.expected.0[rank][to].get(ssn as usize - 1);
            if expected != Some(&payload) {
                return Err(format!("rank {rank} sends {payload:x} as {ssn} to {to}, expected {expected:x?}").into());
            }
        }
        self.reports[rank].extend(node.reports.drain(..));
        let rolled_back = std::mem::take(&mut node.rolled_back);
        for (to, frame) in std::mem::take(&mut node.out) {
            if !rolled_back && !self.broken.contains(&(rank.min(to), rank.max(to))) {
                self.channels[rank * ranks + to].push_back(frame);
            }
        }
        if rolled_back {
            self.tally.rolled_back += 1;
            self.disconnect(rank);
        }
        Ok(())
    }

    pub(crate) fn kill(&mut self, rank: usize) -> Outcome<()> {
        self.commands[rank].clear();
        self.tally.logged += self.nodes[rank].logged;
        self.nodes[rank] = Node::start(rank, self.ranks(), true, &mut self.disks[rank])?;
        self.disconnect(rank);
        self.collect_output(rank)
    }

    pub(crate) fn replace_coordinator(&mut self) {
        self.reports.iter_mut().for_each(VecDeque::clear);
        self.commands.iter_mut().for_each(VecDeque::clear);
        self.coordinators += 1;
        self.coordinator = RecoveryProcess::replacement(self.ranks() as u32, None, self.coordinators);
        self.route_commands();
    }

    pub(crate) fn route_commands(&mut self) {
        while let Some((to, body)) = self.coordinator.poll_message() {
            self.commands[to.index()].push_back(body);
        }
    }

    /// Executes one operation of `rank`'s program, if possible.
    pub(crate) fn execute(&mut self, rank: usize) -> Outcome<bool> {
        let moved = self.nodes[rank].step(&self.program[rank], &mut self.disks[rank])?;
        self.collect_output(rank)?;
        Ok(moved)
    }

    pub(crate) fn checkpoint(&mut self, rank: usize) -> Outcome<bool> {
        let moved = self.nodes[rank].checkpoint(&mut self.disks[rank])?;
        self.collect_output(rank)?;
        Ok(moved)
    }

    pub(crate) fn transmit(&mut self, from: usize, to: usize) -> Outcome<bool> {
        if self.broken.contains(&(from.min(to), from.max(to))) {
            return Ok(false);
        }
        let frame = self.nodes[from].transmit(to, &mut self.disks[from])?;
        let moved = frame.is_some();
        let ranks = self.ranks();
        self.channels[from * ranks + to].extend(frame);
        self.collect_output(from)?;
        Ok(moved)
    }

    pub(crate) fn deliver(&mut self, from: usize, to: usize) -> Outcome<bool> {
        let ranks = self.ranks();
        let Some(frame) = self.channels[from * ranks + to].pop_front() else { return Ok(false) };
        self.nodes[to].arrive(from, frame, &mut self.disks[to])?;
        self.collect_output(to)?;
        Ok(true)
    }

    pub(crate) fn report(&mut self, rank: usize) -> Outcome<bool> {
        let Some(body) = self.reports[rank].pop_front() else { return Ok(false) };
        self.coordinator.handle_control(Rank(rank as u32), &body)?;
        self.route_commands();
        Ok(true)
    }

    pub(crate) fn handle_command(&mut self, rank: usize) -> Outcome<bool> {
        let Some(body) = self.commands[rank].pop_front() else { return Ok(false) };
        self.nodes[rank].handle_command(&body, &mut self.disks[rank])?;
        self.collect_output(rank)?;
        Ok(true)
    }

    /// Runs everything but the programs until nothing moves.
    pub(crate) fn quiesce(&mut self) -> Outcome<()> {
        let ranks = self.ranks();
        let mut moved = true;
        while moved {
            moved = false;
            for rank in 0..ranks {
                moved |= self.report(rank)? || self.handle_command(rank)?;
                for peer in 0..ranks {
                    moved |= (rank != peer && self.connect(rank, peer)?)
                        || self.transmit(rank, peer)?
                        || self.deliver(rank, peer)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_finished(&self) -> bool {
        let done = |(node, ops): (&Node, &Vec<_>)| node.image.at == ops.len();
        self.nodes.iter().zip(&self.program).all(done)
            && !self.coordinator.is_recovering()
            && self.nodes.iter().all(|node| node.protocol.is_running() && !node.protocol.is_recovering())
            && self.broken.is_empty()
            && self.reports.iter().chain(&self.commands).all(VecDeque::is_empty)
    }

    /// Executes the next operation of `rank`, which must be possible, and everything outside the programs resulting
    /// from it.
    pub(crate) fn advance(&mut self, rank: usize) -> Outcome<()> {
        self.quiesce()?;
        if !self.execute(rank)? {
            return Err(format!("rank {rank} can't go on: {self}").into());
        }
        self.quiesce()
    }

    /// Takes a durable checkpoint at `rank`.
    pub(crate) fn save_checkpoint(&mut self, rank: usize) -> Outcome<()> {
        self.quiesce()?;
        if !(self.checkpoint(rank)? && self.checkpoint(rank)?) {
            return Err(format!("rank {rank} takes no checkpoint").into());
        }
        Ok(())
    }

    /// Runs until nothing moves, and compares with the failure-free run.
    pub(crate) fn finish(&mut self) -> Outcome<()> {
        let mut moved = true;
        while moved {
            self.quiesce()?;
            moved = false;
            for rank in 0..self.ranks() {
                moved |= self.execute(rank)?;
            }
        }
        let images: Vec<Image> = self.nodes.iter().map(|node| node.image.clone()).collect();
        if !self.is_finished() || images != self.expected.1 {
            return Err(format!("ended as {self}").into());
        }
        Ok(())
    }

    /// Returns `true` for each rolled-back or replaced rank.
    pub(crate) fn rolled_back(&self) -> Vec<bool> {
        self.nodes.iter().map(|node| node.protocol.incarnation().0 > 0).collect()
    }

    /// Runs to the end in a random order, with random failures, and compares with the failure-free run.
    pub(crate) fn run(&mut self, random: &mut Random, settings: Settings) -> Outcome<Tally> {
        let ranks = self.ranks();
        let length: usize = self.program.iter().map(Vec::len).sum();
        let mut failures: Vec<u64> = (0..settings.failures).map(|_| 1 + random.index(length * 12) as u64).collect();
        if settings.failures > 1 && random.one_in(2) {
            failures[1] = failures[0] + random.index(30) as u64; // During the recovery of the first.
        }
        let mut idle = 0;
        while !(self.is_finished() && failures.iter().all(|&at| at < self.tally.steps)) {
            self.tally.steps += 1;
            for &at in &failures {
                if at == self.tally.steps {
                    self.kill(random.index(ranks))?;
                    if settings.coordinator_fails && random.one_in(2) {
                        self.replace_coordinator();
                    }
                }
            }
            let (rank, peer) = (random.index(ranks), random.index(ranks));
            let moved = match random.index(10) {
                9 if rank != peer => self.connect(rank, peer)?,
                0 | 1 => self.execute(rank)?,
                2 | 3 if rank != peer => self.transmit(rank, peer)?,
                4 | 5 => self.deliver(rank, peer)?,
                6 => self.report(rank)?,
                7 => self.handle_command(rank)?,
                _ if settings.checkpoints && random.one_in(4) => self.checkpoint(rank)?,
                _ if settings.collections && random.one_in(12) => {
                    let floor = if random.one_in(2) { Floor::ByLine } else { Floor::BySmallestEpoch };
                    self.coordinator.begin_collection(floor);
                    self.route_commands();
                    false
                }
                _ => false,
            };
            idle = if moved { 0 } else { idle + 1 };
            if idle > 400 * ranks * ranks || self.tally.steps > 100_000 {
                return Err(format!("nothing moves after {} steps: {self}", self.tally.steps).into());
            }
        }
        let images: Vec<Image> = self.nodes.iter().map(|node| node.image.clone()).collect();
        if images != self.expected.1 {
            return Err(format!("ended as {images:?}, expected {:?}", self.expected.1).into());
        }
        self.tally.rounds = self.coordinator.round() & u64::from(u32::MAX);
        self.tally.logged += self.nodes.iter().map(|node| node.logged).sum::<u64>();
        self.tally.stayed = (settings.failures * ranks) as u64;
        Ok(self.tally)
    }
}

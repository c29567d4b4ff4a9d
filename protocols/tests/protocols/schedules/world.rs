//! Virtual ranks, an in-memory network with FIFO connections, and a seeded scheduler that also kills.

use std::collections::VecDeque;
use std::error::Error;

use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Incarnation, Rank, Ssn};
use counterfoil_protocols::api::Protocol;
use counterfoil_protocols::sender_based::Config;

use super::application::{Delivery, Payload, Program};
use super::oracle::Oracle;
use super::process::{Disk, Process};
use crate::random::Random;

/// Run settings; its seed determines the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) ranks: u32,
    pub(crate) rounds: u64,
    /// Ranks take checkpoints.
    pub(crate) checkpoints: bool,
    /// The sender log survives its process (the process-crash-safe tier).
    pub(crate) lanes_survive: bool,
    /// Present messages to the protocol when the application takes them, out of order, and not when they arrive: as
    /// over an MPI library, which keeps untaken messages to itself.
    pub(crate) judge_on_take: bool,
    /// Driver's mistake: choices aren't in a surviving log.
    pub(crate) sabotage_drop_choices: bool,
    /// Driver's mistake: a checkpoint is reported durable before it is.
    pub(crate) sabotage_cover_early: bool,
    /// Driver's mistake: a checkpoint without received, untaken messages.
    pub(crate) sabotage_drop_unexpected: bool,
    /// Driver's mistake: a checkpoint without the sender log.
    pub(crate) sabotage_drop_records: bool,
    /// Driver's mistake: messages missing at one incarnation of a peer are sent to another.
    pub(crate) sabotage_mix_connections: bool,
}

/// Counters showing that the schedules reach the intended cases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: u64,
    /// Kills while another rank was dead or had not caught up.
    pub(crate) kills_during_recovery: u64,
    /// Connections broken between two living ranks.
    pub(crate) cuts: u64,
    pub(crate) checkpoints: u64,
    pub(crate) choices_forced: u64,
    pub(crate) duplicates: u64,
    pub(crate) dead_messages: u64,
    pub(crate) dead_hellos: u64,
    pub(crate) explicit_acks: u64,
    pub(crate) rolled_back: u64,
    pub(crate) transmitted: u64,
    pub(crate) ticks: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.kills += other.kills;
        self.kills_during_recovery += other.kills_during_recovery;
        self.cuts += other.cuts;
        self.checkpoints += other.checkpoints;
        self.choices_forced += other.choices_forced;
        self.duplicates += other.duplicates;
        self.dead_messages += other.dead_messages;
        self.dead_hellos += other.dead_hellos;
        self.explicit_acks += other.explicit_acks;
        self.rolled_back += other.rolled_back;
        self.transmitted += other.transmitted;
        self.ticks += other.ticks;
    }
}

/// Result of a schedule, or a description of the mistake.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Hello(Vec<u8>),
    /// Header, message payload, notice body.
    Wire(WireHeader, Payload, Vec<u8>),
}

/// Output of a process for other ranks and for the oracle.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) frames: Vec<(Rank, Frame)>,
    pub(crate) sent: Vec<(Rank, Ssn, Payload)>,
    /// With the place among all deliveries at the rank.
    pub(crate) delivered: Vec<(usize, Delivery)>,
}

/// One direction in a connection between two incarnations.
#[derive(Debug)]
struct Connection {
    from: Rank,
    by: Incarnation,
    to: Rank,
    frames: VecDeque<Frame>,
    /// One attempt in so many delivers a frame: so a dead sender's connection may outlive its successor's.
    slowness: u64,
}

/// Fault and its tick.
pub(crate) type Fault = (u64, FaultKind);

#[derive(Clone, Debug)]
pub(crate) enum FaultKind {
    /// These ranks are killed.
    Kill(Vec<Rank>),
    /// The connection between these breaks, and is made anew if both live.
    Cut(Rank, Rank),
}

#[derive(Debug)]
pub(crate) struct World<'a> {
    settings: Settings,
    program: &'a Program,
    random: Random,
    /// Execution probability for a chosen rank, in quarters.
    eagerness: Vec<u64>,
    disks: Vec<Disk>,
    processes: Vec<Option<Process>>,
    incarnations: Vec<Incarnation>,
    connections: Vec<Connection>,
    /// Tick of each pending replacement.
    replacements: Vec<(u64, Rank)>,
    oracle: Oracle,
    tally: Tally,
}

/// Step limit: no schedule needs nearly as many, so exceeding it means a deadlock.
const TICKS_MAX: u64 = 400_000;

impl<'a> World<'a> {
    /// Runs the program to its end with these faults; returns the oracle's record and the counters.
    pub(crate) fn run(
        settings: Settings,
        program: &'a Program,
        mut random: Random,
        mut faults: Vec<Fault>,
    ) -> Outcome<(Oracle, Tally)> {
        let ranks = settings.ranks as usize;
        let mut world = World {
            settings,
            program,
            eagerness: (0..ranks).map(|_| 1 + random.below(4)).collect(),
            random,
            disks: (0..ranks).map(|_| Disk::default()).collect(),
            processes: (0..ranks).map(|_| None).collect(),
            incarnations: vec![Incarnation(0); ranks],
            connections: Vec::new(),
            replacements: Vec::new(),
            oracle: Oracle::default(),
            tally: Tally::default(),
        };
        world.all_ranks().try_for_each(|rank| world.start(rank))?;
        faults.sort_by_key(|&(tick, _)| std::cmp::Reverse(tick));
        while !(world.is_finished() && faults.is_empty() && world.replacements.is_empty()) {
            world.tally.ticks += 1;
            let now = world.tally.ticks;
            if now > TICKS_MAX {
                return Err(format!("deadlock: {}", world.describe()).into());
            }
            while let Some((_, fault)) = faults.pop_if(|(tick, _)| *tick <= now) {
                match fault {
                    FaultKind::Kill(ranks) => ranks.into_iter().for_each(|rank| world.kill(rank)),
                    FaultKind::Cut(a, b) => world.cut(a, b)?,
                }
            }
            if let Some(at) = world.replacements.iter().position(|&(tick, _)| tick <= now) {
                let (_, rank) = world.replacements.swap_remove(at);
                world.start(rank)?;
            }
            world.tick()?;
        }
        world.drain()?;
        world.oracle.finish(world.processes.iter().flatten().map(|process| process.memory.deliveries.as_slice()))?;
        Ok((world.oracle, world.tally))
    }

    fn all_ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.settings.ranks).map(Rank)
    }

    fn is_finished(&self) -> bool {
        let done = |(process, ops): (&Option<Process>, &Vec<_>)| {
            process.as_ref().is_some_and(|process| process.memory.at == ops.len() && !process.is_writing())
        };
        self.processes.iter().zip(&self.program.ops).all(done)
    }

    fn describe(&self) -> String {
        let at = |process: &Option<Process>| process.as_ref().map(|process| process.memory.at);
        let at: Vec<_> = self.processes.iter().map(at).collect();
        let of: Vec<_> = self.program.ops.iter().map(Vec::len).collect();
        format!("ranks are at {at:?} of {of:?}")
    }

    fn tick(&mut self) -> Outcome<()> {
        let rank = Rank(self.random.below(self.settings.ranks.into()) as u32);
        match self.random.below(10) {
            0..4 => {
                if self.random.below(4) < self.eagerness[rank.index()] {
                    self.step(rank)?;
                }
            }
            4..7 => {
                let peer = Rank(self.random.below(self.settings.ranks.into()) as u32);
                self.transmit(rank, peer)?;
            }
            _ => {
                if !self.connections.is_empty() {
                    let at = self.random.below(self.connections.len() as u64) as usize;
                    if self.random.one_in(self.connections[at].slowness) {
                        self.arrive(at)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, rank: Rank) -> Outcome<bool> {
        let (ops, disk) = (&self.program.ops[rank.index()], &mut self.disks[rank.index()]);
        let Some(process) = &mut self.processes[rank.index()] else { return Ok(false) };
        let mut outbox = Outbox::default();
        let moved = process.step(ops, disk, &mut outbox, &mut self.tally)?;
        self.dispatch(rank, outbox)?;
        Ok(moved)
    }

    fn transmit(&mut self, rank: Rank, peer: Rank) -> Outcome<bool> {
        let Some(process) = &mut self.processes[rank.index()] else { return Ok(false) };
        let Some((met, frame)) = process.transmit(peer, &mut self.tally)? else { return Ok(false) };
        if met != self.incarnations[peer.index()] && !self.settings.sabotage_mix_connections {
            // Lost in a connection with a dead other end.
        } else if peer == rank {
            let mut outbox = Outbox::default();
            process.arrive(rank, frame, &mut self.disks[rank.index()], &mut outbox, &mut self.tally)?;
            self.dispatch(rank, outbox)?;
        } else {
            self.dispatch(rank, Outbox { frames: vec![(peer, frame)], ..Outbox::default() })?;
        }
        Ok(true)
    }

    fn arrive(&mut self, at: usize) -> Outcome<bool> {
        let Connection { from, by, to, .. } = self.connections[at];
        let Some(frame) = self.connections[at].frames.pop_front() else {
            if by < self.incarnations[from.index()] {
                self.connections.swap_remove(at);
            }
            return Ok(false);
        };
        let Some(process) = &mut self.processes[to.index()] else { return Ok(false) };
        let mut outbox = Outbox::default();
        let open = process.arrive(from, frame, &mut self.disks[to.index()], &mut outbox, &mut self.tally)?;
        if !open {
            self.connections[at].frames.clear();
        }
        self.dispatch(to, outbox)?;
        Ok(true)
    }

    /// Checks a process's output, and puts its frames on the living connections; a frame without one is lost.
    fn dispatch(&mut self, rank: Rank, outbox: Outbox) -> Outcome<()> {
        self.check_acknowledgements(rank)?;
        let by = self.incarnations[rank.index()];
        for (to, frame) in outbox.frames {
            let living =
                |connection: &&mut Connection| (connection.from, connection.by, connection.to) == (rank, by, to);
            if let Some(connection) = self.connections.iter_mut().find(living) {
                connection.frames.push_back(frame);
            }
        }
        for (to, ssn, payload) in outbox.sent {
            self.oracle.note_sent(rank, to, ssn, payload)?;
        }
        for (place, delivery) in outbox.delivered {
            self.oracle.note_delivered(rank, place, delivery)?;
        }
        Ok(())
    }

    /// Starts the rank's next process, and connects it with all living ranks.
    fn start(&mut self, rank: Rank) -> Outcome<()> {
        let incarnation = self.incarnations[rank.index()];
        let process = Process::start(rank, incarnation, self.settings, &mut self.disks[rank.index()])?;
        self.processes[rank.index()] = Some(process);
        self.all_ranks().filter(|&peer| peer != rank).try_for_each(|peer| self.connect(rank, peer))
    }

    /// Connects two ranks, if both live: each sends its Hello first.
    fn connect(&mut self, a: Rank, b: Rank) -> Outcome<()> {
        let lives = |rank: Rank| self.processes[rank.index()].is_some();
        if !lives(a) || !lives(b) {
            return Ok(());
        }
        for (from, to) in [(a, b), (b, a)] {
            let Some(process) = &mut self.processes[from.index()] else { continue };
            let (by, frames) = (self.incarnations[from.index()], VecDeque::from([process.connect(to)?]));
            let slowness = [1, 1, 3, 20][self.random.below(4) as usize];
            self.connections.push(Connection { from, by, to, frames, slowness });
        }
        Ok(())
    }

    /// Breaks the connection; everything under way on it is lost.
    fn cut(&mut self, a: Rank, b: Rank) -> Outcome<()> {
        let ends = [(a, b), (b, a)];
        self.connections.retain(|connection| !ends.contains(&(connection.from, connection.to)));
        self.tally.cuts += 1;
        self.connect(a, b)
    }

    /// Kills a rank as SIGKILL does: frames to it are lost, frames from it may still arrive, in part.
    fn kill(&mut self, rank: Rank) {
        let caught_up = |(process, disk): (&Option<Process>, &Disk)| {
            process.as_ref().is_some_and(|process| process.protocol.choices() >= disk.choices.len() as u64)
        };
        let recovering = !self.processes.iter().zip(&self.disks).all(caught_up);
        let Some(process) = self.processes[rank.index()].take() else { return };
        self.tally.kills += 1;
        self.tally.kills_during_recovery += u64::from(recovering);
        process.crash(&mut self.disks[rank.index()], self.random.one_in(2));
        self.connections.retain(|connection| connection.to != rank);
        for connection in self.connections.iter_mut().filter(|connection| connection.from == rank) {
            let arrives = self.random.below(connection.frames.len() as u64 + 1) as usize;
            connection.frames.truncate(arrives);
        }
        for survivor in self.processes.iter_mut().flatten() {
            if self.random.one_in(2) {
                // Some ranks notice only when the replacement sends its Hello.
                survivor.protocol.handle_peer_lost(rank).expect("a rank of the job");
            }
        }
        self.incarnations[rank.index()] = self.incarnations[rank.index()].next();
        let pause = if self.random.one_in(2) { 10 } else { 400 };
        self.replacements.push((self.tally.ticks + self.random.below(pause), rank));
    }

    /// Delivers everything under way.
    fn drain(&mut self) -> Outcome<()> {
        loop {
            let mut moved = false;
            for at in (0..self.connections.len()).rev() {
                moved |= self.arrive(at)?;
            }
            for rank in self.all_ranks() {
                for peer in self.all_ranks() {
                    moved |= self.transmit(rank, peer)?;
                }
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Checks that the rank assumes no more receipts at any connected process than there are.
    fn check_acknowledgements(&self, rank: Rank) -> Outcome<()> {
        let Some(sender) = &self.processes[rank.index()] else { return Ok(()) };
        for receiver in self.processes.iter().flatten() {
            let Config { rank: peer, incarnation, .. } = *receiver.protocol.config();
            let (acked, received) = (sender.acked(peer), receiver.protocol.received_upto(rank));
            if sender.protocol.incarnation_of(peer) == incarnation && acked > received {
                return Err(format!("{peer} has received {received} of {rank}, which believes in {acked}").into());
            }
        }
        Ok(())
    }
}

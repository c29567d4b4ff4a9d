//! Programs of the virtual ranks.
//!
//! A program is a fixed list of steps for each rank: the sends do not depend on arrival order (send-determinism;
//! Guermouche 2011, section II.C), but a [`Step::Gather`] takes its messages in arrival order. No program can deadlock
//! by itself: sends never wait, and each list was drawn along one possible execution.

mod collective;

use std::fmt;
use std::str::FromStr;

use counterfoil_log_core::Rank;
use counterfoil_protocols::api::CollectiveClass;
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Communication pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Pattern {
    /// Each round: send to all neighbours on a torus, then take one message from each in any order.
    Stencil,
    /// Each round: a reduction up a binary tree, where inner ranks take their children's parts in any order, and a
    /// broadcast down.
    Tree,
    /// Each round: rank 0 hands two tasks to each worker, which takes them in reverse order of their tags; rank 0 takes
    /// all results in any order, tag after tag.
    MasterWorker,
    /// Each round: three messages to the next rank, taken out of order, so that several are in flight on each channel.
    Ring,
    /// Random sends and gathers; at the end of a round, all messages are taken.
    Graph,
    /// Like `Graph`, but untaken messages stay for later rounds, and checkpoints come at any moment: messages are
    /// received in one epoch and taken in another.
    Backlog,
    /// Each round: one collective operation as its point-to-point messages, from or to any rank.
    ///
    /// The operation is a broadcast, a reduction, a barrier, an exchange of all with all, or a reduction with its
    /// result at all ranks.
    Collective,
    /// Each round: a few random sends and gathers, and one native collective call of all ranks.
    ///
    /// The call is of any class with a result at every rank or none, from any root. Not in [`Pattern::ALL`]: for rules
    /// running calls natively.
    Calls,
    /// Like `Calls`, with additional calls with a result only at the root.
    ///
    /// Not in [`Pattern::ALL`]: for rules running those natively.
    CallsToRoot,
    /// Figure 1 of Guermouche 2011, as far as the text describes it, on five ranks.
    ///
    /// Message m7 goes from rank 4, which has no checkpoint, to rank 3; m8 and m9 go from ranks 0 and 2 to rank 1, and
    /// then m10 from there to rank 3. Not in [`Pattern::ALL`].
    Figure1,
    /// Figure 2 in the same paper, reduced to three ranks.
    ///
    /// Rank 1 receives m0 from rank 2, sends m1 to rank 0, and receives the answer m2. Not in [`Pattern::ALL`].
    Figure2,
}

impl Pattern {
    /// All patterns for campaigns.
    pub const ALL: [Pattern; 7] = [
        Pattern::Stencil,
        Pattern::Tree,
        Pattern::MasterWorker,
        Pattern::Ring,
        Pattern::Graph,
        Pattern::Backlog,
        Pattern::Collective,
    ];

    /// Patterns with native collective calls, for rules running them.
    pub const OF_CALLS: [Pattern; 2] = [Pattern::Calls, Pattern::CallsToRoot];

    fn name(self) -> &'static str {
        match self {
            Pattern::Stencil => "stencil",
            Pattern::Tree => "tree",
            Pattern::MasterWorker => "master-worker",
            Pattern::Ring => "ring",
            Pattern::Graph => "graph",
            Pattern::Backlog => "backlog",
            Pattern::Collective => "collective",
            Pattern::Calls => "calls",
            Pattern::CallsToRoot => "calls-to-root",
            Pattern::Figure1 => "figure-1",
            Pattern::Figure2 => "figure-2",
        }
    }

    /// Returns the number of ranks for a pattern with only one possible number.
    pub fn fixed_ranks(self) -> Option<u32> {
        match self {
            Pattern::Figure1 => Some(5),
            Pattern::Figure2 => Some(3),
            _ => None,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Pattern {
    type Err = ();

    /// Parses a pattern's name as [`Display`](fmt::Display) writes it.
    fn from_str(name: &str) -> Result<Pattern, ()> {
        let figures = [Pattern::Figure1, Pattern::Figure2];
        Pattern::ALL
            .into_iter()
            .chain(Pattern::OF_CALLS)
            .chain(figures)
            .find(|pattern| pattern.name() == name)
            .ok_or(())
    }
}

/// Parameters determining a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Communication pattern.
    pub pattern: Pattern,
    /// Number of ranks, from 2 to [`Shape::RANKS_MAX`].
    pub ranks: u32,
    /// Number of rounds, from 1 to [`Shape::ROUNDS_MAX`].
    pub rounds: u32,
    /// Seed of the random parts.
    pub seed: u64,
    /// Chance of a checkpoint by a rank after a round: one in this many; 0 is never.
    pub checkpoint_one_in: u32,
    /// `true` if payloads also depend on the order in which a rank took its messages.
    ///
    /// Such a program is not send-deterministic: only rules forcing recorded outcomes can repeat it.
    pub ordered: bool,
}

impl Shape {
    /// Largest number of ranks: the scheduler keeps a word with a bit for each.
    pub const RANKS_MAX: u32 = 32;
    /// Largest number of rounds.
    pub const ROUNDS_MAX: u32 = 64;
}

/// Step of a rank's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Sends.
    Send { to: u32, tag: i32 },
    /// Takes the next message from this source with this tag.
    Receive { source: u32, tag: i32 },
    /// Takes all of these (source and tag), in arrival order.
    Gather(Vec<(u32, i32)>),
    /// Makes the next collective call.
    Call,
    /// Takes a checkpoint.
    Checkpoint,
}

/// Each rank's steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Vec<Step>>,
    /// All ranks' collective calls, in order.
    pub(crate) calls: Vec<CollectiveClass>,
}

impl Program {
    pub(crate) fn draw(shape: &Shape) -> Program {
        let mut drawing = ProgramBuilder {
            ranks: shape.pattern.fixed_ranks().unwrap_or(shape.ranks).clamp(2, Shape::RANKS_MAX),
            random: Random::new(shape.seed),
            steps: Vec::new(),
            calls: Vec::new(),
            under_way: Vec::new(),
        };
        drawing.under_way = vec![Vec::new(); drawing.ranks as usize];
        drawing.steps = vec![Vec::new(); drawing.ranks as usize];
        for round in 0..shape.rounds.clamp(1, Shape::ROUNDS_MAX) {
            match shape.pattern {
                Pattern::Stencil => drawing.stencil(round as i32 % 3),
                Pattern::Tree => drawing.tree(),
                Pattern::MasterWorker => drawing.master_worker(),
                Pattern::Ring => drawing.ring(),
                Pattern::Graph => drawing.graph(),
                Pattern::Backlog => drawing.backlog(shape.checkpoint_one_in),
                Pattern::Collective => drawing.collective(),
                Pattern::Calls => drawing.call(false),
                Pattern::CallsToRoot => drawing.call(true),
                Pattern::Figure1 => drawing.figure_1(),
                Pattern::Figure2 => drawing.figure_2(),
            }
            if shape.pattern != Pattern::Backlog && shape.pattern.fixed_ranks().is_none() {
                drawing.checkpoints(shape.checkpoint_one_in);
            }
        }
        drawing.take_all();
        Program { steps: drawing.steps, calls: drawing.calls }
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.steps.len() as u32
    }

    /// Returns the number of messages sent.
    pub(crate) fn messages(&self) -> u64 {
        let sends = self.steps.iter().flatten().filter(|step| matches!(step, Step::Send { .. }));
        sends.count() as u64
    }

    /// Estimates the number of events in a run without faults.
    ///
    /// Counts a Hello each way between all pairs, for each message the send, the transmission, the arrival, and the
    /// take, and for each call its begin and its end.
    pub(crate) fn events_estimate(&self) -> u64 {
        let ranks = u64::from(self.ranks());
        ranks * (ranks - 1) + 4 * self.messages() + 2 * ranks * self.calls.len() as u64
    }
}

/// Program under construction.
struct ProgramBuilder {
    ranks: u32,
    random: Random,
    steps: Vec<Vec<Step>>,
    calls: Vec<CollectiveClass>,
    /// By rank: sent, untaken messages to it (source and tag).
    under_way: Vec<Vec<(u32, i32)>>,
}

impl ProgramBuilder {
    fn push(&mut self, rank: u32, step: Step) {
        self.steps[rank as usize].push(step);
    }

    fn send(&mut self, rank: u32, to: u32, tag: i32) {
        self.push(rank, Step::Send { to, tag });
    }

    fn checkpoints(&mut self, one_in: u32) {
        for rank in 0..self.ranks {
            if one_in > 0 && self.random.one_in(one_in.into()) {
                self.push(rank, Step::Checkpoint);
            }
        }
    }

    /// Returns the neighbours on a torus, as far as the number of ranks allows: two on a ring, and two across it.
    fn neighbours(&self, rank: u32) -> Vec<u32> {
        let width = self.ranks.isqrt();
        let around = [1, self.ranks - 1, width, self.ranks - width];
        let mut neighbours: Vec<u32> = around.map(|distance| (rank + distance) % self.ranks).to_vec();
        neighbours.sort_unstable();
        neighbours.dedup();
        neighbours.retain(|&neighbour| neighbour != rank);
        neighbours
    }

    fn stencil(&mut self, tag: i32) {
        for rank in 0..self.ranks {
            let mut neighbours = self.neighbours(rank);
            self.random.shuffle(&mut neighbours);
            for &to in &neighbours {
                self.send(rank, to, tag);
            }
            self.push(rank, Step::Gather(neighbours.into_iter().map(|source| (source, tag)).collect()));
        }
    }

    fn tree(&mut self) {
        const UP: i32 = 0;
        const DOWN: i32 = 1;
        for rank in 0..self.ranks {
            let children: Vec<u32> = [2 * rank + 1, 2 * rank + 2].into_iter().filter(|&c| c < self.ranks).collect();
            let parent = rank.checked_sub(1).map(|above| above / 2);
            if !children.is_empty() {
                self.push(rank, Step::Gather(children.iter().map(|&child| (child, UP)).collect()));
            }
            if let Some(parent) = parent {
                self.send(rank, parent, UP);
                self.push(rank, Step::Receive { source: parent, tag: DOWN });
            }
            for child in children {
                self.send(rank, child, DOWN);
            }
        }
    }

    fn master_worker(&mut self) {
        const TASKS: [i32; 2] = [0, 1];
        const RESULTS: [i32; 2] = [2, 3];
        let mut workers: Vec<u32> = (1..self.ranks).collect();
        for task in TASKS {
            self.random.shuffle(&mut workers);
            for &worker in &workers {
                self.send(0, worker, task);
            }
        }
        for &worker in &workers {
            for (task, result) in TASKS.into_iter().zip(RESULTS).rev() {
                self.push(worker, Step::Receive { source: 0, tag: task });
                self.send(worker, 0, result);
            }
        }
        for result in RESULTS {
            self.push(0, Step::Gather(workers.iter().map(|&worker| (worker, result)).collect()));
        }
    }

    fn ring(&mut self) {
        for rank in 0..self.ranks {
            let (next, previous) = ((rank + 1) % self.ranks, (rank + self.ranks - 1) % self.ranks);
            let mut tags = [0, 1, 2];
            self.random.shuffle(&mut tags);
            for tag in tags {
                self.send(rank, next, tag);
            }
            self.push(rank, Step::Receive { source: previous, tag: 2 });
            self.push(rank, Step::Gather(vec![(previous, 0), (previous, 1)]));
        }
    }

    fn figure_1(&mut self) {
        for rank in 0..4 {
            self.push(rank, Step::Checkpoint);
        }
        self.send(4, 3, 7);
        self.push(3, Step::Receive { source: 4, tag: 7 });
        self.send(0, 1, 8);
        self.send(2, 1, 9);
        self.push(1, Step::Receive { source: 0, tag: 8 });
        self.push(1, Step::Receive { source: 2, tag: 9 });
        self.send(1, 3, 10);
        self.push(3, Step::Receive { source: 1, tag: 10 });
    }

    fn figure_2(&mut self) {
        self.push(1, Step::Checkpoint);
        self.send(2, 1, 0);
        self.push(1, Step::Receive { source: 2, tag: 0 });
        self.send(1, 0, 1);
        self.push(0, Step::Receive { source: 1, tag: 1 });
        self.send(0, 1, 2);
        self.push(1, Step::Receive { source: 0, tag: 2 });
    }

    fn graph(&mut self) {
        for _ in 0..3 * self.ranks {
            self.play(1);
        }
        self.take_all();
    }

    /// Adds messages, and one collective call of all ranks.
    fn call(&mut self, to_root: bool) {
        for _ in 0..self.ranks {
            self.play(1);
        }
        let root = Rank(self.random.below(self.ranks.into()) as u32);
        let class = match self.random.below(4) {
            0 => CollectiveClass::Barrier,
            1 => CollectiveClass::AllToAll,
            2 if to_root => CollectiveClass::ToRoot(root),
            _ => CollectiveClass::FromRoot(root),
        };
        self.calls.push(class);
        (0..self.ranks).for_each(|rank| self.push(rank, Step::Call));
    }

    /// Lower ranks take more checkpoints, so messages from higher ones go from the past to the future.
    fn backlog(&mut self, checkpoint_one_in: u32) {
        for _ in 0..3 * self.ranks {
            self.play(2);
            if checkpoint_one_in > 0 && self.random.one_in(2 * u64::from(checkpoint_one_in)) {
                let bound = 1 + self.random.below(self.ranks.into());
                let rank = self.random.below(bound) as u32;
                self.push(rank, Step::Checkpoint);
            }
        }
    }

    /// Adds one step of a possible execution: some rank sends, or gathers some messages under way to it, at most one in
    /// `share`.
    fn play(&mut self, share: usize) {
        let rank = self.random.below(self.ranks.into()) as u32;
        if self.random.one_in(3) {
            let count = self.random.index(self.under_way[rank as usize].len() / share + 1);
            self.gather(rank, count);
        } else {
            let to = (rank + 1 + self.random.below(u64::from(self.ranks) - 1) as u32) % self.ranks;
            let tag = self.random.below(3) as i32;
            self.send(rank, to, tag);
            self.under_way[to as usize].push((rank, tag));
        }
    }

    /// Gathers all messages under way.
    fn take_all(&mut self) {
        for rank in 0..self.ranks {
            self.gather(rank, self.under_way[rank as usize].len());
        }
    }

    fn gather(&mut self, rank: u32, count: usize) {
        let waiting = &mut self.under_way[rank as usize];
        self.random.shuffle(waiting);
        let taken = waiting.split_off(waiting.len() - count);
        match taken[..] {
            [] => {}
            [(source, tag)] => self.push(rank, Step::Receive { source, tag }),
            _ => self.push(rank, Step::Gather(taken)),
        }
    }
}

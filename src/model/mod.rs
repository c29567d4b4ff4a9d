//! A log on a disk that loses what it may lose, beside a model of what must and what may be left.
//!
//! [`explore`] takes random steps with a [`Log`] whose memory is so small that it spills all the time, over a
//! [`SimulatedDisk`]. After each step it cuts the power before each of the disk's operations that the step was made of,
//! recovers what is left, and compares: the newest checkpoint is that of before the step or of after it, with every message
//! that is still needed and no other, and behind it those entries of the local log that were synced, perhaps some more.
//! From some of these logs it goes on. Cursors are held from step to step, and must show every message in its order.
//!
//! Tests and fuzz bodies run it; it is no part of the interface.

mod check;
mod disk_steps;
mod steps;

use std::path::PathBuf;
use std::sync::Arc;

use counterfoil_log_core::{Entry, Epoch, Rank, Ssn};
use counterfoil_log_io::{Fault, SimulatedDisk, Unsynced};

pub use counterfoil_log_io::model::{Exploration, Mismatch, numbers};

use crate::{Contents, Cursor, Keep, Log, OnFull, Options, StoreOptions, Tier};

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// How often the power was cut, and the log recovered.
    pub crashes: u64,
    /// How often of those during a recovery.
    pub crashes_in_recovery: u64,
    /// Recoveries that found a checkpoint.
    pub checkpoints: u64,
    /// Messages that were read back and compared.
    pub messages: u64,
    /// Messages that cursors showed which had been held since an earlier step.
    pub held_messages: u64,
    /// Entries of the local log that were found behind a checkpoint.
    pub tail_entries: u64,
    /// Memory that was given back because its messages were on disk.
    pub spilled_bytes: u64,
    /// Steps that ended with a write or a sync that failed.
    pub faults: u64,
    /// Steps that were refused: memory, the disk or its budget was full.
    pub refused: u64,
    /// Logs that stopped logging.
    pub stopped: u64,
}

impl Explored {
    /// Both together.
    pub fn add(&mut self, other: Explored) {
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.checkpoints += other.checkpoints;
        self.messages += other.messages;
        self.held_messages += other.held_messages;
        self.tail_entries += other.tail_entries;
        self.spilled_bytes += other.spilled_bytes;
        self.faults += other.faults;
        self.refused += other.refused;
        self.stopped += other.stopped;
    }
}

const RANK: Rank = Rank(0);
/// Lanes 0 to 3: a rank may send to itself.
const RANKS: u32 = 4;
const KIB: usize = 1024;

/// A source of random numbers.
type Chance<'a> = &'a mut dyn FnMut() -> u64;

/// A message that was sent. Its bytes follow from `salt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    ssn: Ssn,
    prefix: usize,
    len: usize,
    salt: u64,
}

/// A lane as it must be.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// SSN of the last message.
    last: Ssn,
    acked: Ssn,
    /// Messages up to here may be gone: nobody needs them any more. It never falls.
    dispensable: Ssn,
    /// The next message to be repeated.
    rewound: Option<Ssn>,
    sent: Vec<Sent>,
}

type Noted = (Ssn, Entry);

/// A checkpoint as a recovery must find it.
#[derive(Debug)]
struct Checkpoint {
    epoch: Epoch,
    contents: Contents,
    lanes: [Lane; RANKS as usize],
    local: Vec<Noted>,
}

/// What must be durable, and what may be.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// Oldest first.
    kept: Vec<Arc<Checkpoint>>,
    /// Entries of the local log behind the newest of them which were handed to the disk.
    tail: Vec<Noted>,
    /// How many of them were synced.
    synced: usize,
}

/// A cursor that is held, and the SSN that it is at.
#[derive(Debug)]
struct Held {
    peer: Rank,
    cursor: Cursor,
    at: Ssn,
    opened_at: Ssn,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// No room in memory, on disk, or in the budget.
    Refused,
    /// A write or a sync failed.
    Failed,
}

/// A log, and what is known of it.
#[derive(Debug)]
struct World {
    options: Options,
    disk: SimulatedDisk,
    /// Dropped before the log is recovered.
    cursors: Vec<Held>,
    log: Option<Log>,
    truth: Truth,
    lanes: [Lane; RANKS as usize],
    /// The local log: all that is in it.
    local: Vec<Noted>,
    /// Entries up to here were handed to the disk.
    local_handed: Ssn,
    /// Makes messages that are sent again different.
    salt: u64,
    /// Checkpoints that the log took, for their epochs.
    newest_epoch: u32,
    steps: Vec<String>,
}

/// Takes random steps and cuts the power, as often as `exploration` says. All chance comes from `chance`.
///
/// # Errors
/// [`Mismatch`]: what is wrong, and the steps that led there.
pub fn explore(chance: &mut dyn FnMut() -> u64, exploration: Exploration) -> Result<Explored, Mismatch> {
    let mut explored = Explored::default();
    let mut cuts = numbers(chance());
    while explored.crashes < exploration.crashes {
        let mut world = World::new(chance, exploration.lie);
        for _ in 0..STEPS_MAX {
            if explored.crashes >= exploration.crashes {
                break;
            }
            let step = world.step(chance, &mut cuts, Cuts::Everywhere, &mut explored);
            step.map_err(|mismatch| world.explain(mismatch))?;
        }
        world.count(&mut explored);
    }
    Ok(explored)
}

/// Takes `steps` steps as `chance` says, and cuts the power at one place of each.
///
/// # Errors
/// [`Mismatch`]: what is wrong, and the steps that led there.
pub fn follow(chance: &mut dyn FnMut() -> u64, steps: usize) -> Result<Explored, Mismatch> {
    let mut explored = Explored::default();
    let mut cuts = numbers(chance());
    let mut world = World::new(chance, None);
    for _ in 0..steps.min(STEPS_MAX) {
        let step = world.step(chance, &mut cuts, Cuts::Once, &mut explored);
        step.map_err(|mismatch| world.explain(mismatch))?;
    }
    world.count(&mut explored);
    Ok(explored)
}

/// Steps of one world: what it has sent is read back again and again.
const STEPS_MAX: usize = 150;

/// At which of a step's operations the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cuts {
    Everywhere,
    Once,
}

impl World {
    fn new(chance: Chance<'_>, lie: Option<Unsynced>) -> World {
        let mut options = Options::new(RANK, RANKS);
        options.tier = if chance().is_multiple_of(8) { Tier::Volatile } else { Tier::NodeLocal };
        (options.memory_bytes_max, options.chunk_bytes) =
            ([32, 48, 96][below(chance, 3)] * KIB, [4, 8][below(chance, 2)] * KIB);
        (options.prefault_bytes, options.local_bytes_max) = (0, 64 * KIB);
        options.cursors_max = 4;
        options.keep = [Keep::Checkpoint, Keep::Checkpoint, Keep::Checkpoint, Keep::All, Keep::Acked][below(chance, 5)];
        options.on_full = if chance().is_multiple_of(6) { OnFull::StopLogging } else { OnFull::Block };
        let segment_bytes = [8, 16, 32][below(chance, 3)] * KIB as u64;
        let is_large = segment_bytes > 8 * KIB as u64 && chance() & 1 == 0;
        options.store = Some(StoreOptions {
            disk_bytes_max: [1200, 1300, 4096][below(chance, 3)] * KIB as u64,
            segment_bytes,
            block_bytes: if is_large { 8 * KIB } else { 4 * KIB },
            compress: chance() & 1 == 0,
            checkpoints_kept: 1 + below(chance, 3),
            seed: Some(chance()),
            ..StoreOptions::new(PathBuf::new())
        });
        let disk = SimulatedDisk::new([4, 8][below(chance, 2)] * KIB);
        if chance().is_multiple_of(4) {
            disk.set_capacity(1300 << 10);
        }
        if let Some(lie) = lie {
            disk.lie(lie);
        }
        World {
            options,
            disk,
            cursors: Vec::new(),
            log: None,
            truth: Truth::default(),
            lanes: Default::default(),
            local: Vec::new(),
            local_handed: Ssn::ZERO,
            salt: 0,
            newest_epoch: 1,
            steps: Vec::new(),
        }
    }

    /// One step, and the power cut before operations of it and behind it.
    fn step(
        &mut self,
        chance: Chance<'_>,
        cut: Chance<'_>,
        cuts: Cuts,
        explored: &mut Explored,
    ) -> Result<(), Mismatch> {
        let before = self.truth.clone();
        // Now and then something of the step fails.
        if chance().is_multiple_of(32) {
            let fault = if chance() & 1 == 0 { Fault::Error } else { Fault::Short(below(chance, 5000)) };
            self.disk.fail_at(self.disk.operations() + chance() % 12, fault);
        }
        self.disk.remember();
        let outcome = self.take_step(chance, explored)?;
        let mut history = self.disk.take_history();
        history.push(self.disk.clone());
        let after = self.truth.clone();
        // Entries of the local log that are on their way, each of which may have got there.
        let synced = if after.tail.len() > before.tail.len() { before.synced } else { after.synced };
        let truths = [before, Truth { synced, ..after.clone() }, after];
        match outcome {
            Outcome::Done => {}
            Outcome::Refused => explored.refused += 1,
            Outcome::Failed => explored.faults += 1,
        }
        let goes_on_at = if outcome == Outcome::Failed || chance().is_multiple_of(32) {
            Some(below(cut, history.len()))
        } else {
            None
        };
        let only = (cuts == Cuts::Once).then(|| goes_on_at.unwrap_or_else(|| below(cut, history.len())));
        let mut goes_on = None;
        for (index, disk) in history.iter().enumerate() {
            let is_idle = history.len() == 1 && !cut().is_multiple_of(4);
            if goes_on_at != Some(index) && (is_idle || only.is_some_and(|only| only != index)) {
                continue;
            }
            let left = disk.crash(cut);
            let again = cut().is_multiple_of(32);
            let found = self.check(&left, &truths, again, cut, explored)?;
            if goes_on_at == Some(index) {
                goes_on = Some((left, found));
            }
        }
        if let Some((disk, found)) = goes_on {
            self.steps.push("power cut".to_owned());
            self.count(explored);
            self.disk = disk;
            self.go_on(found)?;
        }
        Ok(())
    }

    /// What the log did before it ends.
    fn count(&mut self, explored: &mut Explored) {
        if let Some(log) = &self.log {
            let stats = log.stats();
            explored.spilled_bytes += stats.spilled_bytes;
            explored.stopped += u64::from(stats.stopped_logging);
        }
    }

    fn explain(&self, Mismatch(what): Mismatch) -> Mismatch {
        Mismatch(format!("{what}\nwith {:?}\nafter\n  {}", self.options, self.steps.join("\n  ")))
    }
}

fn below(chance: Chance<'_>, bound: usize) -> usize {
    (chance() % bound.max(1) as u64) as usize
}

impl Sent {
    /// Prefix and payload: bytes that nobody else has; those of every other message can be compressed.
    fn wire(&self) -> Vec<u8> {
        let mut word = self.salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let byte = |at: usize| {
            if self.salt.is_multiple_of(2) || at.is_multiple_of(16) {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(self.salt);
            }
            (word >> 56) as u8
        };
        (0..self.len).map(byte).collect()
    }
}

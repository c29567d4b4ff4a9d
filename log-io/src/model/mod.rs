//! A store on a disk that loses what it may lose, beside a model of what must and what may be left.
//!
//! [`explore`] takes random steps with a store on a [`SimulatedDisk`]. After each step it cuts the power before each of the
//! disk's operations that the step was made of, opens what is left, and compares: the checkpoints are those of before the
//! step or of after it, with every record; of the local log's entries those that were synced are there, and perhaps some
//! that were appended after, in their order. From some of these stores it goes on.
//!
//! Tests and fuzz bodies run it; it is no part of the interface.

mod check;
mod steps;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use counterfoil_log_core::{ChunkImage, Rank, Record, Ssn};

use crate::{
    Access, Block, CheckpointImage, LaneSource, LocalImage, RecordSource, SimulatedDisk, Store, StoreOptions, Unsynced,
};

/// Pseudo-random numbers (SplitMix64): a seed gives the same ones everywhere.
pub fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = seed;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// What [`explore`] is to do.
#[derive(Clone, Copy, Debug)]
pub struct Exploration {
    /// How often the power is cut at least.
    pub crashes: u64,
    /// What the disk only pretends to make durable. A right model finds that out.
    pub lie: Option<Unsynced>,
}

/// The store, or the log on it, isn't what it must be.
#[derive(Debug)]
pub struct Mismatch(pub String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// How often the power was cut, and the store opened again.
    pub crashes: u64,
    /// How often of those while a store was being opened.
    pub crashes_in_recovery: u64,
    /// Blocks that a noted floor left out of a checkpoint.
    pub blocks_below_floors: u64,
    /// Blocks that were read back and compared.
    pub blocks: u64,
    /// Entries of the local log that were found behind a checkpoint.
    pub tail_entries: u64,
    /// Writes and syncs that were made to fail.
    pub faults: u64,
    /// Steps that a full disk or the budget refused.
    pub refused: u64,
    /// Chunks that were written from where they lay in memory.
    pub chunks: u64,
}

impl Explored {
    /// Both together.
    pub fn add(&mut self, other: Explored) {
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.blocks_below_floors += other.blocks_below_floors;
        self.blocks += other.blocks;
        self.tail_entries += other.tail_entries;
        self.faults += other.faults;
        self.refused += other.refused;
        self.chunks += other.chunks;
    }
}

const RANK: Rank = Rank(1);
const RANKS: u32 = 3;

/// A source of random numbers.
type Chance<'a> = &'a mut dyn FnMut() -> u64;

/// What is in a block: SSN, length of the prefix, body.
type Contents = Vec<(Ssn, usize, Vec<u8>)>;

/// What must be durable, and what may be.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// There is a store.
    exists: bool,
    /// Oldest first.
    kept: Vec<CheckpointImage>,
    floors: BTreeMap<Rank, Ssn>,
    /// Entries of the local log that were appended since the newest checkpoint, or since the session began.
    tail: Vec<LocalImage>,
    /// How many of them were synced.
    synced: usize,
}

/// A lane as the layer above the store has it.
#[derive(Clone, Debug, Default)]
struct Lane {
    next: u64,
    covered: Ssn,
    blocks: Vec<Block>,
}

/// A store, and what is known of it.
#[derive(Debug)]
struct World {
    options: StoreOptions,
    disk: SimulatedDisk,
    store: Option<Store>,
    truth: Truth,
    lanes: [Lane; RANKS as usize],
    /// The local log: all that is in it.
    local: Vec<LocalImage>,
    next_local: u64,
    contents: HashMap<(u32, u64), Contents>,
    /// Makes records that are appended again different.
    salt: u64,
    /// Chunks that were written from where they lay in memory.
    chunks: u64,
    steps: Vec<String>,
}

/// Takes random steps and cuts the power, as often as `exploration` says. All chance comes from `chance`.
///
/// # Errors
/// [`Mismatch`]: what is wrong, and the steps that led there.
pub fn explore(chance: &mut dyn FnMut() -> u64, exploration: Exploration) -> Result<Explored, Mismatch> {
    let mut explored = Explored::default();
    while explored.crashes < exploration.crashes {
        let mut world = World::new(chance, exploration.lie);
        for _ in 0..400 {
            if explored.crashes >= exploration.crashes {
                break;
            }
            if let Err(Mismatch(what)) = world.step(chance, &mut explored) {
                let steps = world.steps.join("\n  ");
                return Err(Mismatch(format!("{what}\nwith {:?}\nafter\n  {steps}", world.options)));
            }
        }
        explored.chunks += world.chunks;
    }
    Ok(explored)
}

impl World {
    fn new(chance: Chance<'_>, lie: Option<Unsynced>) -> World {
        let segment_bytes = [8, 16, 32][below(chance, 3)] << 10;
        let block_bytes = if segment_bytes > 8 << 10 && chance() & 1 == 0 { 8 << 10 } else { 4 << 10 };
        let options = StoreOptions {
            disk_bytes_max: [100 << 10, 200 << 10, 1 << 20][below(chance, 3)],
            segment_bytes,
            block_bytes,
            compress: chance().is_multiple_of(3),
            reserve_bytes: 8 << 10,
            checkpoints_kept: 1 + below(chance, 3),
            seed: Some(chance()),
            ..StoreOptions::new(RANK, RANKS)
        };
        let disk = SimulatedDisk::new([4, 8][below(chance, 2)] << 10);
        if chance() & 1 == 0 {
            disk.set_capacity([120 << 10, 250 << 10][below(chance, 2)]);
        }
        if let Some(lie) = lie {
            disk.lie(lie);
        }
        World {
            options,
            disk,
            store: None,
            truth: Truth::default(),
            lanes: Default::default(),
            local: Vec::new(),
            next_local: 1,
            contents: HashMap::new(),
            salt: 0,
            chunks: 0,
            steps: Vec::new(),
        }
    }

    /// One step, and the power cut before each of its operations and behind it.
    fn step(&mut self, chance: Chance<'_>, explored: &mut Explored) -> Result<(), Mismatch> {
        let before = self.truth.clone();
        // Now and then something of the step fails.
        let is_faulty = chance().is_multiple_of(24);
        if is_faulty {
            let fault = if chance() & 1 == 0 { crate::Fault::Error } else { crate::Fault::Short(below(chance, 5000)) };
            self.disk.fail_at(self.disk.operations() + chance() % 12, fault);
        }
        self.disk.remember();
        let outcome = self.take_step(chance)?;
        let mut history = self.disk.take_history();
        history.push(self.disk.clone());
        let after = self.truth.clone();
        let truths = [before, after];
        let goes_on_at = (chance().is_multiple_of(12)).then(|| below(chance, history.len()));
        let mut goes_on = None;
        for (index, disk) in history.iter().enumerate() {
            let left = disk.crash(chance);
            let again = chance().is_multiple_of(32);
            let recovered = self.check(&left, &truths, again, chance, explored)?;
            if goes_on_at == Some(index) {
                goes_on = Some((left, recovered));
            }
        }
        match outcome {
            Outcome::Done => {}
            Outcome::Refused => explored.refused += 1,
            Outcome::Failed => {
                // Nothing more is written to it.
                explored.faults += 1;
                if let Some(store) = &mut self.store {
                    self.disk.remember();
                    let refused = [store.sync().is_err(), store.checkpoint(&CheckpointImage::default()).is_err()];
                    if refused != [true; 2] || !self.disk.take_history().is_empty() {
                        return Err(Mismatch("a store that failed goes on".to_owned()));
                    }
                }
                if goes_on.is_none() {
                    let left = self.disk.crash(chance);
                    let recovered = self.check(&left, &truths, false, chance, explored)?;
                    goes_on = Some((left, recovered));
                }
            }
        }
        if let Some((disk, truth)) = goes_on {
            self.steps.push("power cut".to_owned());
            self.go_on(disk, truth)?;
        }
        Ok(())
    }

    /// Goes on with the store that a recovery found.
    fn go_on(&mut self, disk: SimulatedDisk, truth: Truth) -> Result<(), Mismatch> {
        self.disk = disk;
        self.truth = truth;
        self.store = None;
        self.rebuild();
        if self.truth.exists { self.open(Access::ReadWrite).map(drop) } else { Ok(()) }
    }

    /// The live index as the newest checkpoint has it.
    fn rebuild(&mut self) {
        let newest = self.truth.image();
        self.lanes = Default::default();
        self.local.clear();
        if let Some(image) = &newest {
            for lane in &image.lanes {
                self.lanes[lane.peer.index()] =
                    Lane { next: lane.next.0, covered: lane.covered, blocks: lane.blocks.clone() };
            }
            self.local.clone_from(&image.local);
        }
        self.local.extend(self.truth.tail.iter().cloned());
        self.next_local = self.local.last().map_or(self.next_local, |entry| entry.ssn.0 + 1);
    }

    fn open(&mut self, access: Access) -> Result<(), Mismatch> {
        let opened = Store::open(Box::new(self.disk.clone()), self.options.clone(), access);
        let (store, _) = opened.map_err(|error| Mismatch(format!("can't be opened again: {error}")))?;
        self.store = Some(store);
        Ok(())
    }
}

impl Truth {
    /// A kept checkpoint as a recovery must find it.
    fn with_floors(&self, image: &CheckpointImage) -> CheckpointImage {
        let mut image = image.clone();
        for lane in &mut image.lanes {
            match self.floors.get(&lane.peer) {
                Some(&floor) if lane.covered < floor => {
                    lane.covered = floor;
                    lane.blocks.retain(|block| block.last > floor);
                }
                _ => {}
            }
        }
        image
    }

    fn image(&self) -> Option<CheckpointImage> {
        self.kept.last().map(|newest| self.with_floors(newest))
    }

    /// A floor that no kept checkpoint is below says nothing.
    fn drop_floors(&mut self) {
        let kept = &self.kept;
        self.floors.retain(|lane, floor| {
            kept.iter().flat_map(|image| &image.lanes).any(|image| image.peer == *lane && image.covered < *floor)
        });
    }
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// A full disk, or the budget.
    Refused,
    /// A write or a sync failed.
    Failed,
}

/// Records to be appended.
struct Records<'a>(std::slice::Iter<'a, (Ssn, usize, Vec<u8>)>);

impl RecordSource for Records<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        let (ssn, prefix, wire) = self.0.next()?;
        Record::new(*ssn, wire, *prefix)
    }
}

/// A lane's records, and how many chunks of them were taken.
struct Counted<'a>(LaneSource, &'a mut u64);

impl RecordSource for Counted<'_> {
    fn next(&mut self) -> Option<Record<'_>> {
        self.0.next()
    }

    fn next_chunk(&mut self, bytes_max: usize) -> Option<ChunkImage> {
        let chunk = self.0.next_chunk(bytes_max);
        *self.1 += u64::from(chunk.is_some());
        chunk
    }
}

fn below(chance: Chance<'_>, bound: usize) -> usize {
    (chance() % bound.max(1) as u64) as usize
}

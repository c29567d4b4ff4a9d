//! Power cuts at every disk operation in random histories, compared with a model.
//!
//! A `Subject` is a store or a log on a [`SimulatedDisk`], together with a model of its durable state. `explore` takes
//! random steps with it. After each step it takes the disk before each of the step's operations, cuts the power there,
//! recovers the remaining data, and compares: the result must be the state before or after the step. Some explorations
//! continue from a recovered state.

pub mod log;
pub mod store;

use std::fmt;

use crate::random::{Random, below, split_mix};
use crate::{Fault, SimulatedDisk, SkippedSync};

/// Exploration bounds.
#[derive(Clone, Copy, Debug)]
pub struct Exploration {
    /// Power cuts, at least.
    pub crashes: u64,
    /// Syncs skipped by the disk: the exploration should then end with a [`Mismatch`].
    pub skipped_sync: Option<SkippedSync>,
}

/// Runs an exploration: [`store::explore`] or [`log::explore`].
pub type Explore = fn(Random<'_>, Exploration) -> Result<Explored, Mismatch>;

/// A difference between a recovery, or a live store or log, and the model, with the steps leading to it.
#[derive(Debug)]
pub struct Mismatch(pub String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Exploration counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Power cuts, each followed by a recovery.
    pub crashes: u64,
    /// Power cuts during a recovery, included in `crashes`.
    pub crashes_in_recovery: u64,
    /// Log recoveries with a checkpoint.
    pub checkpoints: u64,
    /// Store blocks read back and compared.
    pub blocks: u64,
    /// Store blocks removed from a checkpoint by a raised floor.
    pub blocks_below_floors: u64,
    /// Chunks written by a store from the lane's memory.
    pub chunks: u64,
    /// Log messages read back and compared.
    pub messages: u64,
    /// Messages read by cursors opened in an earlier step.
    pub held_messages: u64,
    /// Local log entries recovered after the newest checkpoint.
    pub tail_entries: u64,
    /// Local log entries recovered from shared memory only.
    pub unsynced_entries: u64,
    /// Log lanes found by a process in the shared memory of the previous one.
    pub lanes_in_memory: u64,
    /// Bytes of memory freed by a log after spilling their messages.
    pub spilled_bytes: u64,
    /// Steps with a failed write or sync.
    pub faults: u64,
    /// Refused steps: memory, disk or its budget was full.
    pub refused: u64,
    /// Logs that stopped logging.
    pub stopped: u64,
}

impl Explored {
    /// Adds the counts of another exploration.
    pub fn add(&mut self, other: Explored) {
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.checkpoints += other.checkpoints;
        self.blocks += other.blocks;
        self.blocks_below_floors += other.blocks_below_floors;
        self.chunks += other.chunks;
        self.messages += other.messages;
        self.held_messages += other.held_messages;
        self.tail_entries += other.tail_entries;
        self.unsynced_entries += other.unsynced_entries;
        self.lanes_in_memory += other.lanes_in_memory;
        self.spilled_bytes += other.spilled_bytes;
        self.faults += other.faults;
        self.refused += other.refused;
        self.stopped += other.stopped;
    }
}

/// Explores consecutive seeds, `crashes_each` power cuts with each, until the power was cut `crashes` times.
///
/// The first seed is the environment variable `COUNTERFOIL_SEED`, or 1.
///
/// # Panics
/// On a [`Mismatch`]; the message has its seed.
pub fn explore_seeds(explore: Explore, crashes: u64, crashes_each: u64) -> Explored {
    let first: u64 = std::env::var("COUNTERFOIL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut all = Explored::default();
    for seed in (first..).take(crashes.div_ceil(crashes_each) as usize) {
        match explore(&mut split_mix(seed), Exploration { crashes: crashes_each, skipped_sync: None }) {
            Ok(explored) => all.add(explored),
            Err(mismatch) => panic!("COUNTERFOIL_SEED={seed}: {mismatch}"),
        }
    }
    all
}

/// Asserts that one of the seeds `1..=seeds`, with `crashes_each` power cuts, detects a disk skipping a sync.
///
/// # Panics
/// No seed detects it.
pub fn assert_detected(explore: Explore, skipped: SkippedSync, seeds: u64, crashes_each: u64) {
    let exploration = Exploration { crashes: crashes_each, skipped_sync: Some(skipped) };
    let is_detected = (1..=seeds).any(|seed| explore(&mut split_mix(seed), exploration).is_err());
    assert!(is_detected, "a disk that doesn't sync {skipped:?} passes");
}

/// Result of a step in agreement with the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// No space in memory, on disk, or in the budget.
    Refused,
    /// A write or a sync failed.
    Failed,
}

/// A store or a log on a simulated disk, with a model of its durable state.
pub(crate) trait Subject: Sized {
    /// One step in so many gets a [`Fault`].
    const FAULT_ONE_IN: u64;
    /// After one step in so many the exploration continues with a recovered state.
    const RESUME_ONE_IN: u64;
    /// The power is cut after one in so many steps without disk operations.
    const IDLE_ONE_IN: u64;
    /// Steps with one subject.
    const STEPS_MAX: usize;

    /// A durable state expected by the model: required and optional contents.
    type Expected: Clone;
    /// A recovered state, with its model.
    type Recovered;

    /// Draws the options; nothing is on disk yet.
    fn new(random: Random<'_>, skipped_sync: Option<SkippedSync>) -> Self;

    fn disk(&self) -> &SimulatedDisk;

    fn expected(&self) -> &Self::Expected;

    /// Takes a step.
    ///
    /// The model assumes that all its effects become durable.
    fn take_step(&mut self, random: Random<'_>, explored: &mut Explored) -> Result<Outcome, Mismatch>;

    /// Returns the states permitted for a recovery from within a step; where several match, the last one counts.
    fn allowed(before: Self::Expected, after: Self::Expected) -> Vec<Self::Expected>;

    /// Recovers a copy of `left` and compares it with the allowed states.
    ///
    /// Also returns the disk before each operation in the recovery; with `repeats`, the caller recovers from each of
    /// these again.
    fn recover(
        &self,
        left: &SimulatedDisk,
        allowed: &[Self::Expected],
        repeats: bool,
        random: Random<'_>,
        explored: &mut Explored,
    ) -> Result<(Self::Recovered, Vec<SimulatedDisk>), Mismatch>;

    /// Returns the only state permitted for a second recovery.
    fn settled(recovered: &Self::Recovered) -> Self::Expected;

    /// Ends this process and continues on `disk`, the source of `recovered`.
    fn resume(
        &mut self,
        disk: SimulatedDisk,
        recovered: Self::Recovered,
        explored: &mut Explored,
    ) -> Result<(), Mismatch>;

    /// Adds the counts from an ending process.
    fn count(&self, explored: &mut Explored);

    /// Adds the options and the steps so far.
    fn explain(&self, mismatch: Mismatch) -> Mismatch;
}

/// Operations in a step at which the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutPoints {
    All,
    One,
}

/// Takes random steps until the power was cut as often as `exploration` says.
fn explore<S: Subject>(random: Random<'_>, exploration: Exploration) -> Result<Explored, Mismatch> {
    let mut explored = Explored::default();
    let mut cuts = split_mix(random());
    while explored.crashes < exploration.crashes {
        let mut subject = S::new(random, exploration.skipped_sync);
        for _ in 0..S::STEPS_MAX {
            if explored.crashes >= exploration.crashes {
                break;
            }
            let step = step(&mut subject, random, &mut cuts, CutPoints::All, &mut explored);
            step.map_err(|mismatch| subject.explain(mismatch))?;
        }
        subject.count(&mut explored);
    }
    Ok(explored)
}

/// Takes `steps` steps, and cuts the power at one operation in each.
fn follow<S: Subject>(random: Random<'_>, steps: usize) -> Result<Explored, Mismatch> {
    let mut explored = Explored::default();
    let mut cuts = split_mix(random());
    let mut subject = S::new(random, None);
    for _ in 0..steps.min(S::STEPS_MAX) {
        let step = step(&mut subject, random, &mut cuts, CutPoints::One, &mut explored);
        step.map_err(|mismatch| subject.explain(mismatch))?;
    }
    subject.count(&mut explored);
    Ok(explored)
}

/// Takes one step, then cuts the power before its operations and after the last.
///
/// `random` draws the step, `cut` the power cuts: a fuzzer input decides only about the steps.
fn step<S: Subject>(
    subject: &mut S,
    random: Random<'_>,
    cut: Random<'_>,
    points: CutPoints,
    explored: &mut Explored,
) -> Result<(), Mismatch> {
    let before = subject.expected().clone();
    if random().is_multiple_of(S::FAULT_ONE_IN) {
        let fault = if random() & 1 == 0 { Fault::Error } else { Fault::Short(below(random, 5000)) };
        subject.disk().fail_at(subject.disk().operations() + random() % 12, fault);
    }
    subject.disk().record_history();
    let outcome = subject.take_step(random, explored)?;
    let mut history = subject.disk().take_history();
    history.push(subject.disk().clone());
    let allowed = S::allowed(before, subject.expected().clone());
    match outcome {
        Outcome::Done => {}
        Outcome::Refused => explored.refused += 1,
        Outcome::Failed => explored.faults += 1,
    }
    // A failed store writes nothing more, so a failed step always continues with a recovered state.
    let resumes = outcome == Outcome::Failed || random().is_multiple_of(S::RESUME_ONE_IN);
    let resume_at = resumes.then(|| below(cut, history.len()));
    let only = (points == CutPoints::One).then(|| resume_at.unwrap_or_else(|| below(cut, history.len())));
    let mut resumed = None;
    for (index, disk) in history.iter().enumerate() {
        let is_skipped_idle = history.len() == 1 && !cut().is_multiple_of(S::IDLE_ONE_IN);
        if resume_at != Some(index) && (is_skipped_idle || only.is_some_and(|only| only != index)) {
            continue;
        }
        let left = disk.crash(cut);
        let repeats = cut().is_multiple_of(32);
        let recovered = recover(subject, &left, &allowed, repeats, cut, explored)?;
        if resume_at == Some(index) {
            resumed = Some((left, recovered));
        }
    }
    resumed.map_or(Ok(()), |(disk, recovered)| subject.resume(disk, recovered, explored))
}

/// Recovers the disk left by a power cut.
///
/// With `repeats`, also cuts the power before each operation in this recovery: each further recovery must find the
/// same.
fn recover<S: Subject>(
    subject: &S,
    left: &SimulatedDisk,
    allowed: &[S::Expected],
    repeats: bool,
    cut: Random<'_>,
    explored: &mut Explored,
) -> Result<S::Recovered, Mismatch> {
    explored.crashes += 1;
    let (recovered, history) = subject.recover(left, allowed, repeats, cut, explored)?;
    if repeats {
        let same = [S::settled(&recovered)];
        for disk in history {
            explored.crashes_in_recovery += 1;
            let left = disk.crash(cut);
            let repeats = below(cut, 64) == 0;
            recover(subject, &left, &same, repeats, cut, explored)?;
        }
    }
    Ok(recovered)
}

//! Power cuts on a [`Log`].
//!
//! The log has so little memory that it spills all the time. A recovery finds the newest checkpoint from before or
//! after the interrupted step, with every message still needed and no other; and in the local log the synced entries,
//! and perhaps some later ones, in order. Cursors stay open across steps, and read every message in order.
//!
//! Some logs keep the local log in shared memory ([`Options::dir`]), emptied by a power cut and not by a process's end.
//! Some of these keep the messages there, too ([`Tier::ProcessCrashSafe`]): after a process's end, the next one finds
//! all of them.

mod disk_steps;
mod message_steps;
mod recovery;
mod shared_memory;

use std::path::PathBuf;
use std::sync::Arc;

use counterfoil::{Contents, Cursor, Keep, Log, Options, StoreOptions, Tier};
use counterfoil_log_core::{Entry, Epoch, Rank, Record, Ssn};

use super::{Exploration, Explored, Mismatch, Outcome, Subject};
use crate::random::{Random, below, distinct_bytes};
use crate::{SimulatedDisk, SkippedSync};
use recovery::Recovery;
use shared_memory::SharedMemory;

/// Takes random steps with logs and cuts the power, as often as specified by `exploration`.
///
/// All randomness comes from `random`.
///
/// # Errors
/// [`Mismatch`].
pub fn explore(random: Random<'_>, exploration: Exploration) -> Result<Explored, Mismatch> {
    super::explore::<LogModel>(random, exploration)
}

/// Takes `steps` steps with one log, at most 150, and cuts the power at one operation in each.
///
/// `random` draws the options and the steps; its first number is the seed for the power cuts.
///
/// # Errors
/// [`Mismatch`].
pub fn follow(random: Random<'_>, steps: usize) -> Result<Explored, Mismatch> {
    super::follow::<LogModel>(random, steps)
}

const RANK: Rank = Rank(0);
/// Lanes 0 to 3: a rank may send to itself.
const RANKS: u32 = 4;
const KIB: usize = 1024;

/// A sent message.
///
/// `salt` determines its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    ssn: Ssn,
    prefix: usize,
    len: usize,
    salt: u64,
}

/// The model of a lane.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// SSN of the last message.
    last: Ssn,
    acked: Ssn,
    /// The last message that may have been collected.
    ///
    /// Never falls.
    dispensable: Ssn,
    /// The next message to repeat.
    rewound: Option<Ssn>,
    /// The last message when shared memory was lost, or had nothing from the lane: later ones are in there.
    lost_from_memory: Ssn,
    sent: Vec<Sent>,
}

type LocalEntry = (Ssn, Entry);

/// A checkpoint as a recovery must find it.
#[derive(Debug)]
struct Checkpoint {
    epoch: Epoch,
    contents: Contents,
    lanes: [Lane; RANKS as usize],
    local: Vec<LocalEntry>,
}

/// The expected state: required and optional durable contents.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// The kept checkpoints, oldest first.
    kept: Vec<Arc<Checkpoint>>,
    /// Local log entries handed to the store after the newest checkpoint.
    tail: Vec<LocalEntry>,
    /// Number of synced entries in `tail`.
    synced: usize,
}

/// A cursor held open across steps.
#[derive(Debug)]
struct HeldCursor {
    peer: Rank,
    cursor: Cursor,
    /// The SSN to read next.
    at: Ssn,
    opened_at: Ssn,
}

/// A log and its model.
#[derive(Debug)]
struct LogModel {
    options: Options,
    /// Seed for the ids of the store.
    seed: u64,
    disk: SimulatedDisk,
    /// Dropped before the log is recovered.
    cursors: Vec<HeldCursor>,
    log: Option<Log>,
    expected: Expected,
    lanes: [Lane; RANKS as usize],
    /// All local log entries.
    local: Vec<LocalEntry>,
    /// Shared memory of the local log, if it has any.
    memory: Option<SharedMemory>,
    /// The last entry handed to the store.
    last_handed: Ssn,
    /// Counts messages, so that a message sent again has other bytes.
    salt: u64,
    /// Epoch of the newest checkpoint.
    newest_epoch: u32,
    steps: Vec<String>,
}

impl Subject for LogModel {
    const FAULT_ONE_IN: u64 = 32;
    const RESUME_ONE_IN: u64 = 32;
    const IDLE_ONE_IN: u64 = 4;
    // Few: sent messages are read back again and again.
    const STEPS_MAX: usize = 150;

    type Expected = Expected;
    type Recovered = Recovery;

    fn new(random: Random<'_>, skipped_sync: Option<SkippedSync>) -> LogModel {
        let mut options = Options::new(RANK, RANKS);
        options.tier = if random().is_multiple_of(4) { Tier::Volatile } else { Tier::NodeLocal };
        (options.memory_bytes_max, options.chunk_bytes) =
            ([32, 48, 96][below(random, 3)] * KIB, [4, 8][below(random, 2)] * KIB);
        (options.prefault_bytes, options.local_bytes_max) = (0, 64 * KIB);
        options.cursors_max = 4;
        options.keep = [Keep::Checkpoint, Keep::Checkpoint, Keep::Checkpoint, Keep::All, Keep::Acked][below(random, 5)];
        options.stops_logging = random().is_multiple_of(3);
        let segment_bytes = [8, 16, 32][below(random, 3)] * KIB as u64;
        let is_large = segment_bytes > 8 * KIB as u64 && random() & 1 == 0;
        options.store = Some(StoreOptions {
            disk_bytes_max: [1200, 1300, 4096][below(random, 3)] * KIB as u64,
            segment_bytes,
            block_bytes: if is_large { 8 * KIB } else { 4 * KIB },
            compress: random() & 1 == 0,
            checkpoints_kept: 1 + below(random, 3),
            ..StoreOptions::new(PathBuf::new())
        });
        let seed = random();
        let disk = SimulatedDisk::new([4, 8][below(random, 2)] * KIB);
        if random().is_multiple_of(4) {
            disk.set_capacity(1300 << 10);
        }
        if let Some(skipped) = skipped_sync {
            disk.skip_sync(skipped);
        }
        let drawn = random();
        let memory = drawn.is_multiple_of(2).then(SharedMemory::new);
        if drawn.is_multiple_of(4) {
            options.tier = Tier::ProcessCrashSafe;
        }
        LogModel {
            options,
            seed,
            memory,
            disk,
            cursors: Vec::new(),
            log: None,
            expected: Expected::default(),
            lanes: Default::default(),
            local: Vec::new(),
            last_handed: Ssn::ZERO,
            salt: 0,
            newest_epoch: 1,
            steps: Vec::new(),
        }
    }

    fn disk(&self) -> &SimulatedDisk {
        &self.disk
    }

    fn expected(&self) -> &Expected {
        &self.expected
    }

    fn take_step(&mut self, random: Random<'_>, explored: &mut Explored) -> Result<Outcome, Mismatch> {
        self.step(random, explored)
    }

    fn allowed(before: Expected, after: Expected) -> Vec<Expected> {
        // Each local log entry being written may have become durable.
        let synced = if after.tail.len() > before.tail.len() { before.synced } else { after.synced };
        vec![before, Expected { synced, ..after.clone() }, after]
    }

    fn recover(
        &self,
        left: &SimulatedDisk,
        allowed: &[Expected],
        _repeats: bool,
        _random: Random<'_>,
        explored: &mut Explored,
    ) -> Result<(Recovery, Vec<SimulatedDisk>), Mismatch> {
        self.recover_any(left, allowed, explored)
    }

    fn settled(recovered: &Recovery) -> Expected {
        recovered.settled()
    }

    fn resume(&mut self, disk: SimulatedDisk, recovered: Recovery, explored: &mut Explored) -> Result<(), Mismatch> {
        self.steps.push("power cut".to_owned());
        self.count(explored);
        self.disk = disk;
        if let Some(memory) = &mut self.memory {
            memory.lose();
            self.lanes = recovered.lanes();
        }
        self.continue_from(recovered, explored)
    }

    fn count(&self, explored: &mut Explored) {
        if let Some(log) = &self.log {
            let stats = log.stats();
            explored.spilled_bytes += stats.spilled_bytes;
            explored.stopped += u64::from(stats.stopped_logging);
        }
    }

    fn explain(&self, Mismatch(what): Mismatch) -> Mismatch {
        let memory = match (&self.memory, self.options.tier) {
            (Some(_), Tier::ProcessCrashSafe) => "messages and the local log in shared memory, ",
            (Some(_), _) => "the local log in shared memory, ",
            (None, _) => "",
        };
        Mismatch(format!("{what}\nwith {memory}{:?}\nafter\n  {}", self.options, self.steps.join("\n  ")))
    }
}

impl Sent {
    /// Returns prefix and payload.
    fn wire(&self) -> Vec<u8> {
        distinct_bytes(self.len, self.salt)
    }

    /// Returns `true` if a record is this message.
    fn is(&self, record: &Record<'_>) -> bool {
        let framing = (record.ssn(), record.prefix().len(), record.wire().len());
        framing == (self.ssn, self.prefix, self.len) && record.wire() == self.wire()
    }
}

//! Power cuts on a [`Store`].
//!
//! A recovery finds the checkpoints from before or after the interrupted step, with every record; and in the local log
//! the synced entries, and perhaps some appended after them, in order.

mod recovery;
mod steps;

use std::collections::{BTreeMap, HashMap};

use counterfoil_log_core::{Rank, Ssn};
use counterfoil_log_io::{Access, Block, CheckpointImage, LOCAL, LocalImage, Store, StoreError, StoreOptions};

use super::{Exploration, Explored, Mismatch, Outcome, Subject};
use crate::random::{Random, below};
use crate::{SimulatedDisk, SkippedSync};

/// Takes random steps with stores and cuts the power, as often as specified by `exploration`.
///
/// All randomness comes from `random`.
///
/// # Errors
/// [`Mismatch`].
pub fn explore(random: Random<'_>, exploration: Exploration) -> Result<Explored, Mismatch> {
    super::explore::<StoreModel>(random, exploration)
}

const RANK: Rank = Rank(1);
const RANKS: u32 = 3;

/// A record: SSN, prefix length, prefix and payload.
type BlockRecord = (Ssn, usize, Vec<u8>);

/// The expected state: required and optional durable contents.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// The store has been created.
    exists: bool,
    /// The kept checkpoints, oldest first.
    kept: Vec<CheckpointImage>,
    floors: BTreeMap<Rank, Ssn>,
    /// Local log entries appended since the newest checkpoint, or since the store was opened.
    tail: Vec<LocalImage>,
    /// Number of synced entries in `tail`.
    synced: usize,
}

/// A lane's index, as the layer above the store keeps it.
#[derive(Clone, Debug, Default)]
struct Lane {
    next: u64,
    covered: Ssn,
    blocks: Vec<Block>,
}

/// A store and its model.
#[derive(Debug)]
struct StoreModel {
    options: StoreOptions,
    disk: SimulatedDisk,
    store: Option<Store>,
    expected: Expected,
    lanes: [Lane; RANKS as usize],
    /// All local log entries.
    local: Vec<LocalImage>,
    next_local: u64,
    /// The records of each block, by segment and offset.
    contents: HashMap<(u32, u64), Vec<BlockRecord>>,
    /// Counts bodies, so that a record appended again has other bytes.
    salt: u64,
    steps: Vec<String>,
}

impl Subject for StoreModel {
    const FAULT_ONE_IN: u64 = 24;
    const RESUME_ONE_IN: u64 = 12;
    const IDLE_ONE_IN: u64 = 1;
    const STEPS_MAX: usize = 400;

    type Expected = Expected;
    type Recovered = Expected;

    fn new(random: Random<'_>, skipped_sync: Option<SkippedSync>) -> StoreModel {
        let segment_bytes = [8, 16, 32][below(random, 3)] << 10;
        let block_bytes = if segment_bytes > 8 << 10 && random() & 1 == 0 { 8 << 10 } else { 4 << 10 };
        let options = StoreOptions {
            disk_bytes_max: [100 << 10, 200 << 10, 1 << 20][below(random, 3)],
            segment_bytes,
            block_bytes,
            compress: random().is_multiple_of(3),
            reserve_bytes: 8 << 10,
            checkpoints_kept: 1 + below(random, 3),
            seed: Some(random()),
            ..StoreOptions::new(RANK, RANKS)
        };
        let disk = SimulatedDisk::new([4, 8][below(random, 2)] << 10);
        if random() & 1 == 0 {
            disk.set_capacity([120 << 10, 250 << 10][below(random, 2)]);
        }
        if let Some(skipped) = skipped_sync {
            disk.skip_sync(skipped);
        }
        StoreModel {
            options,
            disk,
            store: None,
            expected: Expected::default(),
            lanes: Default::default(),
            local: Vec::new(),
            next_local: 1,
            contents: HashMap::new(),
            salt: 0,
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
        let mut outcome = self.step(random, explored)?;
        if outcome == Outcome::Refused && self.has_failed() {
            outcome = Outcome::Failed;
        }
        if outcome == Outcome::Failed {
            self.check_that_it_stays_failed()?;
        }
        Ok(outcome)
    }

    fn allowed(before: Expected, after: Expected) -> Vec<Expected> {
        vec![before, after]
    }

    fn recover(
        &self,
        left: &SimulatedDisk,
        allowed: &[Expected],
        repeats: bool,
        random: Random<'_>,
        explored: &mut Explored,
    ) -> Result<(Expected, Vec<SimulatedDisk>), Mismatch> {
        let access = if !repeats && random().is_multiple_of(4) { Access::ReadOnly } else { Access::ReadWrite };
        let (found, history) = self.recover_as(left, access, allowed, explored)?;
        if found.exists && random().is_multiple_of(32) {
            self.check_repair(left, &found, explored)?;
        }
        Ok((found, history))
    }

    fn settled(recovered: &Expected) -> Expected {
        Expected { synced: recovered.tail.len(), ..recovered.clone() }
    }

    fn resume(&mut self, disk: SimulatedDisk, recovered: Expected, _explored: &mut Explored) -> Result<(), Mismatch> {
        self.steps.push("power cut".to_owned());
        self.disk = disk;
        self.expected = recovered;
        self.store = None;
        self.rebuild();
        if !self.expected.exists {
            return Ok(());
        }
        let opened = Store::open(Box::new(self.disk.clone()), self.options.clone(), Access::ReadWrite);
        let (store, _) = opened.map_err(|error| Mismatch(format!("can't be opened again: {error}")))?;
        self.store = Some(store);
        Ok(())
    }

    fn count(&self, _explored: &mut Explored) {}

    fn explain(&self, Mismatch(what): Mismatch) -> Mismatch {
        Mismatch(format!("{what}\nwith {:?}\nafter\n  {}", self.options, self.steps.join("\n  ")))
    }
}

impl StoreModel {
    /// Returns `true` if the store is in its failed state.
    ///
    /// A refused append flushes: if an earlier write failed, only the next call returns this error.
    fn has_failed(&mut self) -> bool {
        let nothing = &mut LocalImage::source(&[]);
        let appended = self.store.as_mut().map(|store| store.append(LOCAL, nothing, &mut Vec::new()));
        matches!(appended, Some(Err(StoreError::Failed { .. })))
    }

    /// Checks that a failed store refuses to sync or to write a checkpoint, and doesn't touch the disk.
    fn check_that_it_stays_failed(&mut self) -> Result<(), Mismatch> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let before = self.disk.operations();
        let refuses = store.sync().is_err() && store.checkpoint(&CheckpointImage::default()).is_err();
        if refuses && self.disk.operations() == before {
            Ok(())
        } else {
            Err(Mismatch("a store that failed goes on".to_owned()))
        }
    }

    /// Sets the index to the newest checkpoint's.
    fn rebuild(&mut self) {
        let newest = self.expected.image();
        self.lanes = Default::default();
        self.local.clear();
        if let Some(image) = &newest {
            for lane in &image.lanes {
                self.lanes[lane.peer.index()] =
                    Lane { next: lane.next.0, covered: lane.covered, blocks: lane.blocks.clone() };
            }
            self.local.clone_from(&image.local);
        }
        self.local.extend(self.expected.tail.iter().cloned());
        self.next_local = self.local.last().map_or(self.next_local, |entry| entry.ssn.0 + 1);
    }
}

impl Expected {
    /// Returns a kept checkpoint with the raised floors applied, as a recovery must find it.
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

    /// Returns the newest checkpoint.
    fn image(&self) -> Option<CheckpointImage> {
        self.kept.last().map(|newest| self.with_floors(newest))
    }

    /// Drops the floors not above any kept checkpoint.
    fn drop_floors(&mut self) {
        let kept = &self.kept;
        self.floors.retain(|lane, floor| {
            kept.iter().flat_map(|image| &image.lanes).any(|image| image.peer == *lane && image.covered < *floor)
        });
    }
}

//! Creation of a log, and recovery from a dead process's memory and disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_log_core::{
    DeadLog, Disposition, Epoch, LaneWriter, Lanes, LocalLog, Owner, Pool, PoolError, PoolOptions, Rank, Ssn,
    check_private_dir,
};
use counterfoil_log_io::{CheckpointImage, Directory, LaneImage, Store};

use crate::budget::Budget;
use crate::checkpoint::Restored;
use crate::contents::Contents;
use crate::disk_index::Cuts;
use crate::log::Log;
use crate::paths::{lanes_path, local_path};
use crate::prefault::Prefaulter;
use crate::spill::Spiller;
use crate::store::{FoundStore, check_stores_dir, create_store, recover_store, start_spiller};
use crate::waiting::Readers;
use crate::{OpenError, Options, Tier};

/// A recovered lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveredLane {
    /// Destination.
    pub peer: Rank,
    /// Lowest SSN kept.
    pub kept_from: Ssn,
    /// Last SSN sent.
    pub last: Ssn,
}

/// Contents of a recovered log; returned by [`Log::recover`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Lanes with records in memory.
    pub lanes: Vec<RecoveredLane>,
    /// Number of local log entries.
    pub local_entries: usize,
    /// Newest durable checkpoint.
    pub checkpoint: Option<Restored>,
    /// Epoch of the oldest remaining checkpoint; `None` without any.
    pub oldest_checkpoint: Option<Epoch>,
}

impl Log {
    /// Creates an empty log.
    ///
    /// In the node-local tier this creates the store, too; in the others the first checkpoint does.
    ///
    /// # Errors
    /// [`OpenError`]: an option out of its limits, no memory, a directory that isn't private, an existing file, a store
    /// with another log, a missing stores directory.
    pub fn create(options: Options) -> Result<Log, OpenError> {
        options.validate()?;
        let spiller = if options.tier == Tier::NodeLocal { Some(create_store(&options)?) } else { None };
        Log::create_with(options, spiller)
    }

    pub(crate) fn create_with(options: Options, spiller: Option<Spiller>) -> Result<Log, OpenError> {
        options.validate()?;
        if let Some(dir) = &options.dir {
            check_private_dir(dir)?;
        }
        if spiller.is_none() {
            check_stores_dir(&options)?;
        }
        let pool = create_pool(&options)?;
        let local = match &options.dir {
            Some(dir) => Pool::create(&local_path(dir, options.rank), owner(&options, LOCAL), options.local_pool())?,
            None => Pool::volatile(options.local_pool())?,
        };
        Log::over(options, pool, LocalLog::new(local), spiller)
    }

    /// Recovers the log left by this rank's dead process: the committed records, if its tier survives a process crash,
    /// and the newest durable checkpoint, if there is a store.
    ///
    /// Lanes no longer in memory are restored from that checkpoint; their records are read from disk. Missing files are
    /// created, so this also opens the log for a rank's first process: [`Recovered`] is empty then.
    ///
    /// Shared memory has no acknowledgements: there, records count as acknowledged if they were freed, even if a
    /// checkpoint knew more, since their receiver may have rolled back. The others are to be sent again; the receiver
    /// discards and acknowledges the ones it has. See [`send_window`](Self::send_window).
    ///
    /// Shared memory has no payload checksums either: chunk and record headers are checked here, but a damaged payload
    /// is recovered and read as it is. A layer needing to know puts a checksum into the record's prefix, like the wire
    /// header of `counterfoil-ack-piggyback`, and checks it before sending a record again. On disk, each block has one.
    ///
    /// # Errors
    /// [`OpenError`]: a living owner, other options, another version, another user's or a damaged file, a lane to a
    /// rank outside the job. The files are then unchanged, except that with [`OpenError::Local`], a damaged entry, the
    /// local log may already have freed unused memory.
    pub fn recover(options: Options) -> Result<(Log, Recovered), OpenError> {
        options.validate()?;
        let Some(store) = options.store.clone() else { return Log::recover_with(options, None) };
        let dir = store.rank_dir(options.rank);
        if options.tier != Tier::NodeLocal && dir.symlink_metadata().is_err() {
            check_stores_dir(&options)?;
            return Log::recover_with(options, None);
        }
        let (backend, probe) = Directory::create(&dir, store.for_backend())?;
        let found = recover_store(backend, &options, None, Some(probe))?;
        Log::recover_with(options, Some(found))
    }

    /// Recovers a dead process's shared-memory log like [`recover`](Self::recover), and leaves its files as they are:
    /// this process's changes are in its own memory, and lost with it.
    ///
    /// Several processes may do so at once, also on a read-only file system. The store is not read: see
    /// [`ReadOnlyLog`](crate::ReadOnlyLog).
    ///
    /// # Errors
    /// [`OpenError::NoLog`] if a file is missing; others like [`recover`](Self::recover).
    pub fn recover_copy(options: Options) -> Result<(Log, Recovered), OpenError> {
        options.validate()?;
        let dead = DeadFiles::of(&options, Pool::examine_copy)?;
        if let (DeadFiles { lanes: None, .. } | DeadFiles { local: None, .. }, Some(dir)) = (&dead, &options.dir) {
            return Err(OpenError::NoLog { rank: options.rank, dir: dir.clone() });
        }
        // What is created has no files.
        Log::recover_dead(Options { dir: None, store: None, ..options }, dead, None)
    }

    /// Recovers a log from a store opened for reading.
    pub(crate) fn recover_opened(
        options: Options,
        (store, image): (Store, Option<CheckpointImage>),
    ) -> Result<(Log, Recovered), OpenError> {
        let oldest = store.checkpoints().first().copied();
        let found = FoundStore { spiller: start_spiller(store, &options, None)?, image, oldest };
        Log::recover_with(options, Some(found))
    }

    pub(crate) fn recover_with(options: Options, store: Option<FoundStore>) -> Result<(Log, Recovered), OpenError> {
        let dead = DeadFiles::of(&options, Pool::examine)?;
        Log::recover_dead(options, dead, store)
    }

    fn recover_dead(
        options: Options,
        dead: DeadFiles,
        store: Option<FoundStore>,
    ) -> Result<(Log, Recovered), OpenError> {
        let (spiller, image, oldest_checkpoint) = match store {
            Some(FoundStore { spiller, image, oldest }) => (Some(spiller), image, oldest),
            None => (None, None, None),
        };
        let mut local = match (dead.local, &options.dir) {
            (Some(dead), _) => {
                let (pool, lanes) = dead.take()?;
                LocalLog::recovered(pool, lanes)?
            }
            (None, Some(dir)) => {
                let path = local_path(dir, options.rank);
                LocalLog::new(Pool::create(&path, owner(&options, LOCAL), options.local_pool())?)
            }
            (None, None) => LocalLog::new(Pool::volatile(options.local_pool())?),
        };
        // A shared-memory file has all of them, unless its process died while restoring them.
        let known = local.last();
        for entry in image.iter().flat_map(|image| &image.local).filter(|entry| entry.ssn > known) {
            local.restore(entry.ssn, entry.kind, entry.key, &entry.bytes)?;
        }
        let (path, (pool, writers)) = match dead.lanes {
            Some((path, dead)) => (path, dead.take()?),
            None => (PathBuf::new(), (create_pool(&options)?, Vec::new())),
        };
        let mut recovered =
            Recovered { lanes: Vec::new(), local_entries: local.len(), checkpoint: None, oldest_checkpoint };
        let mut log = Log::over(options, pool, local, spiller)?;
        let in_memory: Vec<Rank> = writers.iter().map(LaneWriter::peer).collect();
        for writer in writers {
            let (peer, kept_from, last) = (writer.peer(), writer.kept_from(), writer.next_ssn().prev());
            let ranks = log.options().ranks;
            log.lanes.adopt(writer).map_err(|_| OpenError::Lane { path: path.clone(), peer, ranks })?;
            log.budget.channels[peer.index()].inherited = last;
            if last > Ssn::ZERO {
                recovered.lanes.push(RecoveredLane { peer, kept_from, last });
            }
        }
        if let Some(image) = image {
            recovered.checkpoint = log.resume_from(image)?;
        }
        for peer in in_memory {
            // Memory doesn't have the acknowledgements. What neither it nor the disk has was acknowledged.
            let freed = log.kept_from(peer).prev();
            if let Some(lane) = log.lanes.get_mut(peer) {
                // An SSN below the next one is never refused.
                let _ = lane.acknowledge(freed, Disposition::Release);
            }
        }
        Ok((log, recovered))
    }

    fn over(options: Options, pool: Arc<Pool>, local: LocalLog, spiller: Option<Spiller>) -> Result<Log, OpenError> {
        let prefaulter = match options.prefault_ahead_bytes {
            0 => None,
            bytes => Some(Prefaulter::start(pool.clone(), bytes).map_err(OpenError::Thread)?),
        };
        let lanes = Lanes::new(pool, options.ranks);
        // A dead process's entries may not have reached the disk.
        Ok(Log {
            lanes,
            budget: Budget::new(options, spiller, prefaulter),
            local,
            local_synced: Ssn::ZERO,
            waiting: Readers::default(),
        })
    }

    /// Resumes the lanes not in memory from a checkpoint.
    fn resume_from(&mut self, mut image: CheckpointImage) -> Result<Option<Restored>, OpenError> {
        let newest = image.local.last().map_or(Ssn::ZERO, |entry| entry.ssn);
        // Later entries are only in shared memory.
        self.local_synced = newest;
        if image.epoch.0 == 0 {
            // Only local log entries, no checkpoint yet.
            return Ok(None);
        }
        let cuts = image.tables.pop_if(|(name, _)| name == Cuts::TABLE).map_or_else(Vec::new, |(_, bytes)| bytes);
        let cuts = Cuts::from_bytes(&cuts).ok_or(OpenError::StoreCuts)?;
        let ranks = self.options().ranks;
        let mut lanes = Vec::new();
        for LaneImage { peer, next, acked, covered, runs, blocks } in image.lanes {
            let no_such_rank = || OpenError::StoreLane { peer, ranks };
            if peer.0 >= ranks {
                return Err(no_such_rank());
            }
            // A lane in memory is newer, also without a record: it was truncated, or its process died during its first
            // claim. The blocks are used below it.
            let in_memory = self.lanes.get(peer).map(LaneWriter::kept_from);
            let on_disk = in_memory.map_or(next, |kept_from| kept_from.min(next)).prev();
            // Memory has freed the records between the two, or their SSNs were skipped: none is kept.
            let upto = in_memory.unwrap_or(next).prev();
            if let Some(spiller) = &mut self.budget.spiller {
                let beyond = spiller.disk.index.restore(peer, &blocks, &cuts, on_disk, covered);
                let covered_blocks = spiller.disk.index.push(peer, &[], upto);
                spiller.free(beyond);
                spiller.free(covered_blocks);
            }
            if in_memory.is_none() && next > Ssn::FIRST {
                let lane = self.lanes.open(peer).ok_or_else(no_such_rank)?;
                // Covered records were acknowledged, even if the checkpoint is older than their acknowledgement.
                lane.resume(next, acked.max(covered).min(next.prev()), &runs)?;
                self.budget.channels[peer.index()].inherited = next.prev();
            }
            let channel = &mut self.budget.channels[peer.index()];
            (channel.submitted, channel.persisted) = (upto, upto);
            self.budget.raise_floor(&mut self.lanes, peer, covered);
            // A lane in memory may have newer records; this reports its end at the checkpoint.
            lanes.push(RecoveredLane { peer, kept_from: self.kept_from(peer), last: next.prev() });
        }
        let contents = Contents { application: image.application, tables: image.tables };
        Ok(Some(Restored { epoch: image.epoch, lanes, contents }))
    }
}

/// A dead process's shared-memory files.
#[derive(Default)]
struct DeadFiles {
    /// With its path.
    lanes: Option<(PathBuf, DeadLog)>,
    local: Option<DeadLog>,
}

/// Validates a pool's file, without a change.
type Examine = fn(&Path, Owner, PoolOptions) -> Result<DeadLog, PoolError>;

impl DeadFiles {
    /// Validates both files, before anything is changed or created.
    fn of(options: &Options, examine: Examine) -> Result<DeadFiles, OpenError> {
        let Some(dir) = &options.dir else { return Ok(DeadFiles::default()) };
        check_private_dir(dir)?;
        let examine = |path: &Path, label, pool| match path.symlink_metadata() {
            Ok(_) => examine(path, owner(options, label), pool).map(Some),
            Err(_) => Ok(None),
        };
        let path = lanes_path(dir, options.rank);
        let lanes = match options.tier {
            Tier::ProcessCrashSafe => examine(&path, LANES, options.pool())?,
            Tier::Volatile | Tier::NodeLocal => None,
        };
        let ranks = options.ranks;
        if let Some(peer) = lanes.iter().flat_map(DeadLog::peers).find(|peer| peer.0 >= ranks) {
            return Err(OpenError::Lane { path, peer, ranks });
        }
        let local = examine(&local_path(dir, options.rank), LOCAL, options.local_pool())?;
        Ok(DeadFiles { lanes: lanes.map(|lanes| (path, lanes)), local })
    }
}

const LANES: u64 = u64::from_le_bytes(*b"lanes\0\0\0");
const LOCAL: u64 = u64::from_le_bytes(*b"local\0\0\0");

fn owner(options: &Options, label: u64) -> Owner {
    Owner { rank: options.rank, label }
}

fn create_pool(options: &Options) -> Result<Arc<Pool>, OpenError> {
    Ok(match (options.tier, &options.dir) {
        (Tier::ProcessCrashSafe, Some(dir)) => {
            Pool::create(&lanes_path(dir, options.rank), owner(options, LANES), options.pool())?
        }
        _ => Pool::volatile(options.pool())?,
    })
}

//! Limits and choices of a log.

use std::path::PathBuf;

use counterfoil_log_core::{BLOCK_BYTES_MIN, MEMORY_BYTES_MAX, OptionsError, PoolOptions, Rank};
use counterfoil_log_io::{BackendChoice, BackendOptions};

use crate::choices::{Keep, Tier};

/// Chunks in the budget of a log that [`retain`](Options::retain)s records, and their largest size.
const RETAINED_CHUNKS: (usize, usize) = (256, 16 << 20);
/// The same, where chunks are written to disk one by one.
const SPILLED_CHUNKS: (usize, usize) = (64, 1 << 20);
/// Least number of chunks for each rank in such a log.
const CHUNKS_PER_LANE: usize = 4;
/// Most bytes prefaulted at the start by such a log, and committed ahead.
const RETAINED_PREFAULT_BYTES_MAX: usize = 16 << 20;
const RETAINED_AHEAD_BYTES_MAX: usize = 64 << 20;
/// Part of its budget committed ahead.
const RETAINED_PARTS_AHEAD: usize = 64;

/// Options of a log's store: a private directory for each rank, on a disk of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Parent of the ranks' directories `rank-0`, `rank-1` and so on, each of mode 0700.
    pub dir: PathBuf,
    /// Maximum bytes on disk for one rank: segments, checkpoints and everything else.
    ///
    /// Default 4 GiB. Each segment needs a file descriptor: 256 with the defaults, more if most segments have only a
    /// few unfreed blocks left.
    pub disk_bytes_max: u64,
    /// Segment file size in bytes; default 16 MiB.
    ///
    /// A new one needs as many free bytes: on a disk smaller than eight segments, records wait for room although half
    /// of it may be free, so choose a smaller size there.
    pub segment_bytes: u64,
    /// Block size in bytes, the unit of writing and checksums; default 256 KiB.
    ///
    /// A longer record gets its own block. Blocks written in place from chunks are larger by up to an eighth and a
    /// page, and have at most 16 MiB of chunks.
    pub block_bytes: usize,
    /// Compress blocks with lz4 if that saves at least an eighth; default: no.
    pub compress: bool,
    /// Number of newest checkpoints to keep; default 1.
    ///
    /// A protocol with longer rollbacks needs more.
    pub checkpoints_kept: usize,
    /// I/O backend.
    pub backend: BackendChoice,
    /// Processor time of the store's thread, in percent of a core: 1 to 100; default 100, no limit.
    ///
    /// The thread rests after a batch of writes until it took no more, unless a call waits for it (a full memory, a
    /// checkpoint, a dropped log). Kernel threads and those of the backend `pwrite` aren't counted. Worth it where the
    /// program fills every core, and the memory has room meanwhile.
    pub cpu_percent_max: u8,
}

impl StoreOptions {
    /// Returns the defaults, in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> StoreOptions {
        let store = counterfoil_log_io::StoreOptions::new(Rank(0), 1);
        StoreOptions {
            dir: dir.into(),
            disk_bytes_max: store.disk_bytes_max,
            segment_bytes: store.segment_bytes,
            block_bytes: store.block_bytes,
            compress: store.compress,
            checkpoints_kept: store.checkpoints_kept,
            backend: BackendChoice::Auto,
            cpu_percent_max: 100,
        }
    }

    /// Returns a rank's directory.
    pub fn rank_dir(&self, rank: Rank) -> PathBuf {
        self.dir.join(format!("rank-{}", rank.0))
    }

    /// Returns the backend options, with buffers of one block: a block is one write.
    pub(crate) fn for_backend(&self) -> BackendOptions {
        let mut options = BackendOptions::from(self.backend);
        options.buffer_bytes = self.block_bytes;
        options
    }

    /// Returns the options of a rank's store; `seed` is that of its random ids.
    pub(crate) fn for_rank(&self, options: &Options, seed: Option<u64>) -> counterfoil_log_io::StoreOptions {
        counterfoil_log_io::StoreOptions {
            disk_bytes_max: self.disk_bytes_max,
            segment_bytes: self.segment_bytes,
            block_bytes: self.block_bytes,
            compress: self.compress,
            checkpoints_kept: self.checkpoints_kept,
            seed,
            ..counterfoil_log_io::StoreOptions::new(options.rank, options.ranks)
        }
    }
}

/// Limits and choices of a [`Log`](crate::Log).
///
/// Defaults suit a rank that exchanges messages of a few KiB: 64 MiB of memory, chunks of 64 KiB. Later versions have
/// more options: write `Options { .., ..Options::new(rank, ranks) }`, or change fields after [`Options::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rank owning the log.
    pub rank: Rank,
    /// Number of ranks in the job.
    pub ranks: u32,
    /// Storage of the sender log.
    pub tier: Tier,
    /// Directory of mode 0700 for shared-memory files.
    ///
    /// Needed for [`Tier::ProcessCrashSafe`]; if set, the local log is process-crash-safe in every tier, and survives a
    /// kill.
    pub dir: Option<PathBuf>,
    /// Store for checkpoints and, in [`Tier::NodeLocal`], for spilled records.
    ///
    /// Default: none.
    pub store: Option<StoreOptions>,
    /// Memory for records in bytes, all lanes together.
    ///
    /// From one chunk to 256 GiB; default 64 MiB. A store with the default blocks needs some 14 MiB in addition: write
    /// buffers, and read-ahead buffers while one cursor is on disk. A lane giving up its newest chunk to make room
    /// takes 4 KiB more until that chunk is free.
    pub memory_bytes_max: usize,
    /// Ordinary chunk size in bytes: a power of two from 4 KiB to 1 GiB; default 64 KiB.
    pub chunk_bytes: usize,
    /// Memory to prefault at the start, in bytes; default 256 KiB.
    pub prefault_bytes: usize,
    /// Memory committed ahead of the writer by a lowest-priority thread, in bytes, within the budget; default 0: no
    /// thread.
    ///
    /// Worth it where records are kept and cores are idle now and then.
    pub prefault_ahead_bytes: usize,
    /// Memory for the local log (determinants), in bytes: 4 KiB to 256 GiB, default 16 MiB.
    pub local_bytes_max: usize,
    /// Maximum number of open cursors on one lane: 1 to 64, default 8.
    ///
    /// In the node-local tier the log itself uses up to four while spilling, and waits for these if its owner needs
    /// one.
    pub cursors_max: usize,
    /// Maximum record body (prefix and payload) in bytes: at least `chunk_bytes`; by default limited only by the memory
    /// budget, and to 64 GiB.
    pub record_bytes_max: usize,
    /// Retention of acknowledged messages.
    pub keep: Keep,
    /// True to free all retained records and retain nothing any more once the memory budget is used up: the run
    /// continues, but is not recoverable from there on; default false.
    ///
    /// Otherwise, and if unacknowledged records alone fill the budget, a claim is refused with
    /// [`AppendError::Full`](crate::AppendError::Full).
    pub stops_logging: bool,
    /// Keeps a literal from naming every field.
    ///
    /// (The attribute `non_exhaustive` would forbid `..Options::new(rank, ranks)`, too.)
    #[doc(hidden)]
    pub non_exhaustive: (),
}

impl Options {
    /// Returns the defaults, for `rank` in a job of `ranks`.
    pub fn new(rank: Rank, ranks: u32) -> Options {
        let pool = PoolOptions::default();
        Options {
            rank,
            ranks,
            tier: Tier::default(),
            dir: None,
            store: None,
            memory_bytes_max: pool.memory_bytes_max,
            chunk_bytes: pool.chunk_bytes,
            prefault_bytes: pool.prefault_bytes,
            prefault_ahead_bytes: 0,
            local_bytes_max: 16 << 20,
            cursors_max: pool.cursors_max,
            record_bytes_max: counterfoil_log_core::BODY_BYTES_MAX,
            keep: Keep::default(),
            stops_logging: false,
            non_exhaustive: (),
        }
    }

    /// Sets the retention, the memory budget, and sizes suiting both.
    ///
    /// Released records are overwritten while they are still in the cache: chunks are small, and little is prefaulted.
    /// Kept records go to new memory all the time: up to 16 MiB are prefaulted, a thread commits memory ahead, and
    /// chunks are larger: a 256th of the budget, from 64 KiB to 16 MiB, and in the node-local tier a 64th, up to 1 MiB;
    /// less where ranks are many.
    pub fn retain(&mut self, keep: Keep, memory_bytes_max: usize) {
        let default = Options::new(self.rank, self.ranks);
        (self.keep, self.memory_bytes_max) = (keep, memory_bytes_max);
        (self.chunk_bytes, self.prefault_bytes) = (default.chunk_bytes, default.prefault_bytes.min(memory_bytes_max));
        self.prefault_ahead_bytes = 0;
        if keep != Keep::Acked {
            let (chunks, chunk_bytes_max) = match self.tier {
                Tier::Volatile | Tier::ProcessCrashSafe => RETAINED_CHUNKS,
                Tier::NodeLocal => SPILLED_CHUNKS,
            };
            // Each lane has a chunk of its own.
            let chunks = chunks.max(CHUNKS_PER_LANE.saturating_mul(self.ranks as usize));
            let share = (memory_bytes_max / chunks).max(1).next_power_of_two();
            self.chunk_bytes = share.clamp(self.chunk_bytes, chunk_bytes_max);
            self.prefault_bytes = memory_bytes_max.min(RETAINED_PREFAULT_BYTES_MAX);
            if memory_bytes_max > self.prefault_bytes {
                let part = (memory_bytes_max / RETAINED_PARTS_AHEAD).max(4 * self.chunk_bytes);
                self.prefault_ahead_bytes = part.min(RETAINED_AHEAD_BYTES_MAX);
            }
        }
    }

    /// Checks every limit.
    ///
    /// # Errors
    /// [`OptionsError`] names the first option out of its limits, and the valid values.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let refuse = |option, value, rule: &'static str| Err(OptionsError { option, value, rule: rule.into() });
        if self.ranks == 0 {
            return refuse("ranks", 0, "a job has at least one rank");
        }
        if self.rank.0 >= self.ranks {
            return refuse("rank", self.rank.index(), "must be below the number of ranks");
        }
        if !(BLOCK_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&self.local_bytes_max) {
            return refuse("local_bytes_max", self.local_bytes_max, "must be from 4 KiB to 256 GiB");
        }
        if self.record_bytes_max < self.chunk_bytes {
            return refuse("record_bytes_max", self.record_bytes_max, "must be at least chunk_bytes");
        }
        if self.tier == Tier::ProcessCrashSafe && self.dir.is_none() {
            return refuse("dir", 0, "the process-crash-safe tier needs a directory for its file");
        }
        if self.tier == Tier::NodeLocal && self.store.is_none() {
            return refuse("store", 0, "the node-local tier needs a store");
        }
        if let Some(store) = &self.store {
            if !(1..=100).contains(&store.cpu_percent_max) {
                return refuse("store.cpu_percent_max", store.cpu_percent_max.into(), "must be from 1 to 100");
            }
            store.for_rank(self, None).validate().map_err(|error| OptionsError {
                option: "store",
                value: store.disk_bytes_max as usize,
                rule: error.to_string().into(),
            })?;
        }
        self.pool().geometry()?;
        self.local_pool().geometry()?;
        Ok(())
    }

    /// Returns the smallest [`memory_bytes_max`](Self::memory_bytes_max) for claiming a message of `prefix` + `payload`
    /// bytes, all other options unchanged; `None` if no budget is enough.
    pub fn memory_bytes_for(&self, prefix: usize, payload: usize) -> Option<usize> {
        let fits = prefix.checked_add(payload)? <= self.record_bytes_max;
        fits.then(|| self.pool().memory_bytes_for(prefix, payload))?
    }

    pub(crate) fn pool(&self) -> PoolOptions {
        PoolOptions {
            memory_bytes_max: self.memory_bytes_max,
            chunk_bytes: self.chunk_bytes,
            prefault_bytes: self.prefault_bytes,
            cursors_max: self.cursors_max,
        }
    }

    pub(crate) fn local_pool(&self) -> PoolOptions {
        // Chunks of a retained log's size would leave much of a small local log unused.
        let share = (self.local_bytes_max / RETAINED_CHUNKS.0).max(PoolOptions::default().chunk_bytes);
        let chunk_bytes_max = share.next_power_of_two().min(self.local_bytes_max.next_power_of_two() / 2);
        let chunk_bytes = self.chunk_bytes.min(chunk_bytes_max).max(BLOCK_BYTES_MIN);
        PoolOptions { memory_bytes_max: self.local_bytes_max, chunk_bytes, prefault_bytes: 0, cursors_max: 2 }
    }
}

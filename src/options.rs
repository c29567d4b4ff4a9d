//! Every limit and every choice of a log, in one place.

use std::path::PathBuf;

use counterfoil_log_core::{BLOCK_BYTES_MIN, MEMORY_BYTES_MAX, OptionsError, PoolOptions, Rank};
use counterfoil_log_io::{BackendChoice, BackendOptions};

/// Where the sender log's bytes live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Anonymous memory: gone with the process.
    #[default]
    Volatile,
    /// A private shared-memory file: what was committed outlives a `kill -9`.
    ProcessCrashSafe,
    /// Anonymous memory for what is new, and a [store](StoreOptions) on node-local disk for what is retained: memory is a
    /// window on a log that may be many times larger, and what a checkpoint covers outlives a power cut.
    NodeLocal,
}

/// The store of a log: a private directory for each rank, on a disk of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Where the ranks' directories are: `rank-0`, `rank-1` and so on, each of mode 0700.
    pub dir: PathBuf,
    /// Bytes on disk of one rank: segments, checkpoints and the rest. Default 4 GiB. Each segment takes a file descriptor: 256 at
    /// the defaults, more where most of the segments were given back to the disk but for a few blocks each.
    pub disk_bytes_max: u64,
    /// Bytes of a segment file; default 16 MiB.
    pub segment_bytes: u64,
    /// Bytes of a block, the unit of writing and of checksums; default 256 KiB. A longer record is a block of its own.
    /// Chunks that are written from where they lie in memory make blocks of up to an eighth more, and a page.
    pub block_bytes: usize,
    /// Compress blocks with lz4 where that saves at least an eighth. Default: no.
    pub compress: bool,
    /// Checkpoints that are kept, the newest ones; default 1. A protocol that may have to go back further keeps more.
    pub checkpoints_kept: usize,
    /// How the disk is reached.
    pub backend: BackendChoice,
    /// Where the numbers that tell stores and segments apart come from; `None` is chance. For tests that repeat themselves.
    #[doc(hidden)]
    pub seed: Option<u64>,
}

impl StoreOptions {
    /// The defaults, in `dir`.
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
            seed: None,
        }
    }

    /// The directory of a rank.
    pub fn rank_dir(&self, rank: Rank) -> PathBuf {
        self.dir.join(format!("rank-{}", rank.0))
    }

    /// A block is one write.
    pub(crate) fn for_backend(&self) -> BackendOptions {
        let mut options = BackendOptions::from(self.backend);
        options.buffer_bytes = self.block_bytes;
        options
    }

    pub(crate) fn for_rank(&self, options: &Options) -> counterfoil_log_io::StoreOptions {
        counterfoil_log_io::StoreOptions {
            disk_bytes_max: self.disk_bytes_max,
            segment_bytes: self.segment_bytes,
            block_bytes: self.block_bytes,
            compress: self.compress,
            checkpoints_kept: self.checkpoints_kept,
            seed: self.seed,
            ..counterfoil_log_io::StoreOptions::new(options.rank, options.ranks)
        }
    }
}

/// How long an acknowledged message is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keep {
    /// Until it is acknowledged: for retransmission only. A receiver that dies can't be replayed.
    Acked,
    /// Until a durable checkpoint of its receiver covers it: any rank can die and be replayed.
    #[default]
    Checkpoint,
    /// For ever: for a replay of one rank after the run.
    All,
}

/// What happens when the memory budget is used up.
///
/// A claim first takes what lanes keep for themselves. If that isn't enough, the log either lets retained messages go
/// ([`StopLogging`](Self::StopLogging)) or refuses the claim with [`AppendError::Full`](crate::AppendError::Full), which
/// names the holders. It never waits: only its owner can, because only its owner hears the acknowledgements and learns of
/// the checkpoints that free something. So [`Block`](Self::Block) and [`Fail`](Self::Fail) are one to the log, and tell
/// the code that sends which of the two the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFull {
    /// The log refuses. The caller goes on with receiving, acknowledging and [`collect`](crate::Log::collect)ing, and
    /// tries again, for as long as it sees fit: the sender waits.
    #[default]
    Block,
    /// The log lets everything retained go and retains nothing any more: the run goes on, but is not recoverable from
    /// here. What is not acknowledged stays; where that alone fills the budget, the log refuses, and the caller waits as
    /// with [`Block`](Self::Block).
    StopLogging,
    /// The log refuses, and the caller doesn't try again: the send ends with that error.
    Fail,
}

/// The limits and choices of a [`Log`](crate::Log).
///
/// Defaults suit a rank that exchanges messages of a few KiB: 64 MiB of memory, chunks of 64 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The rank whose log this is.
    pub rank: Rank,
    /// Ranks of the job.
    pub ranks: u32,
    /// Where the sender log lives.
    pub tier: Tier,
    /// A directory of mode 0700 for shared-memory files. Needed for [`Tier::ProcessCrashSafe`]; if set, the local log is
    /// process-crash-safe in either tier, and survives a kill.
    pub dir: Option<PathBuf>,
    /// Where checkpoints go and, in [`Tier::NodeLocal`], what is spilled. Default: no store.
    pub store: Option<StoreOptions>,
    /// Bytes of memory for records, all lanes together. From one chunk to 256 GiB; default 64 MiB. A store with the default blocks
    /// takes some 14 MiB beside it: buffers to write with, and to read ahead with while one cursor is on disk.
    pub memory_bytes_max: usize,
    /// Bytes of an ordinary chunk: a power of two from 4 KiB to 1 GiB; default 64 KiB.
    pub chunk_bytes: usize,
    /// Bytes of memory that are made ready at the start; default 256 KiB.
    pub prefault_bytes: usize,
    /// Bytes of memory for the local log (determinants): 4 KiB to 256 GiB, default 16 MiB.
    pub local_bytes_max: usize,
    /// Cursors that may be open on one lane at a time: 1 to 64, default 8. In the node-local tier up to four of them are the
    /// log's own while it spills; it waits for these where its owner needs one.
    pub cursors_max: usize,
    /// Largest body (prefix and payload) of a record in bytes: at least `chunk_bytes`; default: whatever the memory budget
    /// can hold, at most 64 GiB.
    pub record_bytes_max: usize,
    /// How long acknowledged messages are kept.
    pub keep: Keep,
    /// What happens at the memory budget.
    pub on_full: OnFull,
}

impl Options {
    /// The defaults, for `rank` in a job of `ranks`.
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
            local_bytes_max: 16 << 20,
            cursors_max: pool.cursors_max,
            record_bytes_max: counterfoil_log_core::BODY_BYTES_MAX,
            keep: Keep::default(),
            on_full: OnFull::default(),
        }
    }

    /// Checks every limit.
    ///
    /// # Errors
    /// Names the first option that is out of its limits, and says what it must be.
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
            store.for_rank(self).validate().map_err(|error| OptionsError {
                option: "store",
                value: store.disk_bytes_max as usize,
                rule: error.to_string().into(),
            })?;
        }
        self.pool().geometry()?;
        self.local_pool().geometry()?;
        Ok(())
    }

    /// The least [`memory_bytes_max`](Self::memory_bytes_max) with which a message of `prefix` + `payload` bytes can ever
    /// be claimed, the other options being as they are; `None` where no budget is enough.
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
        let chunk_bytes = self.chunk_bytes.min(self.local_bytes_max.next_power_of_two() / 2).max(BLOCK_BYTES_MIN);
        PoolOptions { memory_bytes_max: self.local_bytes_max, chunk_bytes, prefault_bytes: 0, cursors_max: 2 }
    }
}

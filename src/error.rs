//! Errors: one type for each log operation.

use std::path::PathBuf;
use std::sync::Arc;

use counterfoil_log_core::{
    AckError, AllocError, Claim, CursorError, ImportError, LocalLogError, OptionsError, PoolError, PrivateFileError,
    Rank, RepeatError, TruncateError,
};

use counterfoil_log_io::{DirectoryError, StoreError};

use crate::Backpressure;
use crate::contents::TableError;
use crate::cursor::ReplayError;

/// Any error of a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log can't be created or recovered.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The files can't be removed.
    #[error(transparent)]
    Destroy(#[from] DestroyError),
    /// A claim was refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// An acknowledgement or a coverage was refused.
    #[error(transparent)]
    Ack(#[from] AckError),
    /// A cursor can't be opened, or can't read a record.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A checkpoint failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A lane can't be truncated.
    #[error(transparent)]
    Truncate(#[from] TruncateError),
    /// A message can't be repeated.
    #[error(transparent)]
    Repeat(#[from] RepeatError),
    /// A record can't be imported.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The local log refused an entry, or has a damaged one.
    #[error(transparent)]
    Local(#[from] LocalLogError),
}

/// A log can't be created or recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option is out of its limits.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The directory is not private, or doesn't exist.
    #[error("directory for shared-memory logs: {0}")]
    Dir(#[from] PrivateFileError),
    /// The memory can't be allocated, or the shared-memory file is invalid.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// An entry of the recovered local log is damaged.
    ///
    /// Unused memory may already have been freed.
    #[error(transparent)]
    Local(#[from] LocalLogError),
    /// The store's directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The options name no store.
    #[error("there is no store: set Options::store")]
    NoStore,
    /// The rank has no log to recover.
    #[error("{} has no log of {rank}, or not all of its files", dir.display())]
    NoLog {
        /// The rank.
        rank: Rank,
        /// Directory of the logs.
        dir: PathBuf,
    },
    /// The store's thread can't be started.
    #[error("can't start the thread that writes the store: {0}")]
    Thread(#[source] std::io::Error),
    /// The checkpoint's lanes can't be resumed.
    #[error("can't resume from the store's checkpoint: {0}")]
    Resume(#[from] ImportError),
    /// The checkpoint's truncated-block table is invalid.
    #[error("the store's checkpoint has an invalid table `counterfoil/cuts`")]
    StoreCuts,
    /// A lane in the checkpoint leads to a rank outside the job.
    #[error("the store's checkpoint has a lane to {peer}, but the job has {ranks} ranks")]
    StoreLane {
        /// The lane's destination.
        peer: Rank,
        /// Number of ranks in the job.
        ranks: u32,
    },
    /// A lane in the dead process's log leads to a rank outside the job.
    ///
    /// The file is unchanged.
    #[error("{} has a lane to {peer}, but the job has {ranks} ranks", path.display())]
    Lane {
        /// The shared-memory file.
        path: PathBuf,
        /// The lane's destination.
        peer: Rank,
        /// Number of ranks in the job.
        ranks: u32,
    },
}

/// A checkpoint failed.
///
/// The previous one is unaffected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The log has no store.
    #[error("the log has no store for checkpoints: set Options::store")]
    NoStore,
    /// The store can't be created.
    #[error("checkpoint: {0}")]
    Open(#[from] Arc<OpenError>),
    /// The disk failed, or the disk budget is used up.
    #[error("checkpoint: {0}")]
    Store(Arc<StoreError>),
    /// A table's name is not allowed in a checkpoint.
    ///
    /// Nothing was written.
    #[error("checkpoint: {0}")]
    Table(#[from] TableError),
    /// No cursor is available to read the records to be written.
    #[error("checkpoint: {0}; raise cursors_max")]
    Cursor(#[from] CursorError),
}

impl From<Arc<StoreError>> for CheckpointError {
    fn from(error: Arc<StoreError>) -> Self {
        CheckpointError::Store(error)
    }
}

/// A log's files can't be removed.
///
/// Some may be gone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// A shared-memory file can't be removed.
    #[error("can't remove the shared-memory log {}: {source}; remove it by hand", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The store can't be removed.
    #[error("can't remove the store: {0}")]
    Store(#[from] DirectoryError),
}

/// A claim was refused.
///
/// The log is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The memory budget is used up.
    ///
    /// It names the holders. The caller acknowledges, collects and tries again, or gives up.
    #[error("{0}")]
    Full(Box<Backpressure>),
    /// The memory budget is used up because appends outrun the disk: the same claim succeeds once a write is done.
    ///
    /// [`Log::claim`](crate::Log::claim) waits for that.
    #[error("{0}")]
    SpillBehind(Box<SpillBehind>),
    /// The memory budget is used up and the disk refuses writes: it is full, its budget is used up, or it failed.
    ///
    /// Each claim retries the write, except after a failure.
    #[error("{0}")]
    DiskRefused(Box<DiskRefused>),
    /// The system has no memory left, although the budget isn't used up.
    #[error("{0}")]
    NoMemory(AllocError),
    /// The record can never fit: it is longer than `record_bytes_max`, or than any chunk under this budget.
    #[error("a record of {bytes} bytes can never fit: the limit is {max} bytes (memory_bytes_max, record_bytes_max)")]
    TooLong {
        /// Record length in bytes.
        bytes: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// The job has no such rank.
    #[error("{peer} doesn't exist: the job has {ranks} ranks")]
    NoSuchRank {
        /// The lane's destination.
        peer: Rank,
        /// Number of ranks in the job.
        ranks: u32,
    },
    /// The channel has used up its sequence numbers.
    #[error("the lane to {peer} has used up its sequence numbers")]
    SsnExhausted {
        /// The lane's destination.
        peer: Rank,
    },
}

impl From<Box<AppendError>> for Error {
    fn from(refused: Box<AppendError>) -> Error {
        Error::Append(*refused)
    }
}

// Boxing the error makes a claim's result the claim or one pointer, kept in registers by the compiler. An unboxed error
// with several drop paths would pass the claim through memory, and a 64-byte append would take twice as long.
const _: () = assert!(size_of::<Result<Claim<'_>, Box<AppendError>>>() == size_of::<Claim<'_>>());

/// Appends outrun the disk: memory is used up until a write completes.
#[derive(Debug, thiserror::Error)]
#[error("appends outrun the disk, {in_flight} writes are in flight: {full}")]
pub struct SpillBehind {
    /// Writes in flight.
    pub in_flight: usize,
    /// Holders of the memory.
    pub full: Backpressure,
}

/// Memory is used up and the disk refuses writes.
#[derive(Debug, thiserror::Error)]
#[error("{full}; and nothing can be spilled: {source}")]
pub struct DiskRefused {
    /// Holders of the memory.
    pub full: Backpressure,
    /// The store's error.
    #[source]
    pub source: Arc<StoreError>,
}

impl From<counterfoil_log_core::AppendError> for AppendError {
    fn from(error: counterfoil_log_core::AppendError) -> Self {
        use counterfoil_log_core::AppendError as Lane;
        match error {
            Lane::Alloc(AllocError::Full(backpressure)) => AppendError::Full(backpressure),
            Lane::Alloc(AllocError::TooLarge { bytes, max }) => AppendError::TooLong { bytes, max },
            Lane::Alloc(other) => AppendError::NoMemory(other),
            Lane::TooLong { prefix, payload } => AppendError::TooLong {
                bytes: prefix.saturating_add(payload),
                max: counterfoil_log_core::BODY_BYTES_MAX,
            },
            Lane::SsnExhausted { peer } => AppendError::SsnExhausted { peer },
            // The lane's error is non-exhaustive; in any case the claim was refused.
            other => AppendError::NoMemory(AllocError::NoMemory {
                bytes: 0,
                source: std::io::Error::other(other.to_string()),
            }),
        }
    }
}

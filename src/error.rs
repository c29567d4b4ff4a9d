//! One error for each operation of a log.

use std::path::PathBuf;
use std::sync::Arc;

use counterfoil_log_core::{
    AckError, AllocError, Claim, ImportError, LocalLogError, OptionsError, PoolError, PrivateFileError, Rank,
    RepeatError, TruncateError,
};

use counterfoil_log_io::{DirectoryError, StoreError};

use crate::{Backpressure, CheckpointError, ReplayError};

/// Any error of a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log can't be set up.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A claim was refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// An acknowledgement or a coverage was refused.
    #[error(transparent)]
    Ack(#[from] AckError),
    /// A cursor can't be opened, or what it reads can't be read.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A checkpoint can't be made.
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
    /// The local log refused.
    #[error(transparent)]
    Local(#[from] LocalLogError),
}

/// Why a log can't be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option is out of its limits.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The directory is not private, or not there.
    #[error("directory for shared-memory logs: {0}")]
    Dir(#[from] PrivateFileError),
    /// The memory can't be had, or the file is not what it should be.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// An entry of the recovered local log is damaged. Memory that no entry used may have been given back by then.
    #[error(transparent)]
    Local(#[from] LocalLogError),
    /// The directory of the store can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The options name no store.
    #[error("there is no store: set Options::store")]
    NoStore,
    /// No thread for the store.
    #[error("can't start the thread that writes the store: {0}")]
    Thread(#[source] std::io::Error),
    /// The checkpoint can't be taken up where its lanes left off.
    #[error("the store's checkpoint can't be taken up: {0}")]
    Resume(#[from] ImportError),
    /// The checkpoint's table of blocks that were cut isn't one.
    #[error("the store's checkpoint has a table `counterfoil/cuts` that this program doesn't write")]
    StoreCuts,
    /// A lane of the checkpoint goes to a rank that the job doesn't have.
    #[error("the store's checkpoint has a lane to {peer}, but the job has {ranks} ranks")]
    StoreLane {
        /// The destination.
        peer: Rank,
        /// Ranks of the job.
        ranks: u32,
    },
    /// A lane of the dead process's log goes to a rank that the job doesn't have. The file is as it was.
    #[error("{} has a lane to {peer}, but the job has {ranks} ranks", path.display())]
    Lane {
        /// The file.
        path: PathBuf,
        /// The destination.
        peer: Rank,
        /// Ranks of the job.
        ranks: u32,
    },
}

/// Why a claim was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The memory budget is used up. What the caller is to do then says [`OnFull`](crate::OnFull).
    #[error("{0}")]
    Full(Box<Backpressure>),
    /// The memory budget is used up because the disk is behind: the same claim succeeds once a write is done.
    /// [`Log::claim`](crate::Log::claim) waits for that.
    #[error("{0}")]
    SpillBehind(Box<SpillBehind>),
    /// The memory budget is used up and the disk takes nothing: it is full, its budget is used up, or it failed. What the
    /// caller is to do then says [`OnFull`](crate::OnFull); it is tried again at each claim, except after a failure.
    #[error("{0}")]
    DiskRefused(Box<DiskRefused>),
    /// The system has no memory left, although the budget has.
    #[error("{0}")]
    NoMemory(AllocError),
    /// The record can never fit: it is longer than `record_bytes_max`, or than any chunk under this budget.
    #[error("a record of {bytes} bytes can never fit: the limit is {max} bytes (memory_bytes_max, record_bytes_max)")]
    TooLong {
        /// Bytes of the record.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The job has no such rank.
    #[error("{peer} doesn't exist: the job has {ranks} ranks")]
    NoSuchRank {
        /// The destination.
        peer: Rank,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The channel has used up its sequence numbers.
    #[error("the lane to {peer} has used up its sequence numbers")]
    SsnExhausted {
        /// The destination.
        peer: Rank,
    },
}

impl From<Box<AppendError>> for Error {
    fn from(refused: Box<AppendError>) -> Error {
        Error::Append(*refused)
    }
}

// A refusal is boxed, so that a claim's result is the claim or one pointer: the compiler keeps that in registers. An error to be
// dropped in place, in different ways, sends claim and all through memory, and an append of 64 bytes takes twice as long.
const _: () = assert!(size_of::<Result<Claim<'_>, Box<AppendError>>>() == size_of::<Claim<'_>>());

/// Appends outrun the disk.
#[derive(Debug, thiserror::Error)]
#[error("appends outrun the disk, {in_flight} writes are under way: {full}")]
pub struct SpillBehind {
    /// Writes under way.
    pub in_flight: usize,
    /// Who holds the memory.
    pub full: Backpressure,
}

/// Nothing can be spilled.
#[derive(Debug, thiserror::Error)]
#[error("{full}; and nothing can be spilled: {source}")]
pub struct DiskRefused {
    /// Who holds the memory.
    pub full: Backpressure,
    /// What the store said.
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
            // The lane's error can grow; whatever it says, the claim was refused.
            other => AppendError::NoMemory(AllocError::NoMemory {
                bytes: 0,
                source: std::io::Error::other(other.to_string()),
            }),
        }
    }
}

//! One error for each operation of a log.

use std::path::PathBuf;

use counterfoil_log_core::{
    AckError, AllocError, CursorError, ImportError, LocalLogError, OptionsError, PoolError, PrivateFileError, Rank,
    RepeatError, TruncateError,
};

use crate::Backpressure;

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
    /// A cursor can't be opened.
    #[error(transparent)]
    Replay(#[from] CursorError),
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

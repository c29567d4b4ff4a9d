//! Why a store refuses.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_log_core::{Epoch, Rank, Ssn};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::StorageBackend;
use crate::manifest::MANIFEST;

/// Why a store can't do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system refused.
    #[error("cannot {action} {file} of the store: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file's name in the store's directory.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// A write or a sync failed, now or before: what is on the disk is not known, so nothing more is written. What was
    /// written before can still be read.
    #[error("the store writes nothing more after an error; end the process and open the store again: {first}")]
    Failed {
        /// The error that began it.
        first: Arc<StoreError>,
    },
    /// The file system has no room for another file. Nothing is half-written; it works again when there is room.
    #[error(
        "the disk is full: {needed} bytes needed, {available} left{}; free space there, collect, or put the store on \
         another disk (a segment takes its room at once, however little it has)",
        dir.as_deref().map_or(String::new(), |dir| format!(" in {}", dir.display()))
    )]
    DiskFull {
        /// The store's directory, where it has a path.
        dir: Option<PathBuf>,
        /// Bytes that were asked for.
        needed: u64,
        /// Bytes that the file system has left.
        available: u64,
    },
    /// The store would get larger than `disk_bytes_max`. Nothing is half-written.
    #[error(
        "the store would need {needed} bytes beside the {used} that it has, more than disk_bytes_max ({max}): take a \
         checkpoint, collect, or raise disk_bytes_max"
    )]
    Budget {
        /// Bytes that were asked for.
        needed: u64,
        /// Bytes that the store has.
        used: u64,
        /// The limit.
        max: u64,
    },
    /// Not what was written.
    #[error("{file} of the store is damaged at byte {offset}: {what}; {}", advice(file))]
    Damaged {
        /// The file's name in the store's directory.
        file: String,
        /// Where in the file.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// Another version of the format.
    #[error(
        "{file} of the store has version {found}, and this program reads version {}: use the program that wrote it",
        crate::FORMAT_VERSION
    )]
    Version {
        /// The file's name in the store's directory.
        file: String,
        /// Its version.
        found: u32,
    },
    /// Another rank's store, or one of a job with another number of ranks.
    #[error("the store is that of rank {rank} of {ranks}: give each rank its own directory")]
    OtherRank {
        /// Whose it is.
        rank: u32,
        /// Of how many.
        ranks: u32,
    },
    /// There is a store in the directory, or part of one.
    #[error("{file} exists: the directory has a store, which is to be opened or removed")]
    Exists {
        /// The file that says so.
        file: String,
    },
    /// There is no store in the directory.
    #[error("the directory has no store: create one")]
    Missing,
    /// Another process has the store.
    #[error("another process has the store open: end it first")]
    Locked,
    /// The store was opened to be read.
    #[error("the store was opened to be read: open it with Access::ReadWrite")]
    ReadOnly,
    /// Options that make no sense.
    #[error("options of the store: {0}")]
    Options(String),
    /// Epochs of checkpoints rise.
    #[error("a checkpoint that begins {asked} can't follow one that begins {newest}: discard that one first")]
    Epoch {
        /// The epoch that was asked for.
        asked: Epoch,
        /// The newest that there is; 0 for none.
        newest: Epoch,
    },
    /// No such checkpoint is kept.
    #[error("no checkpoint that begins {epoch} is kept")]
    NoCheckpoint {
        /// The epoch that was asked for.
        epoch: Epoch,
    },
    /// A checkpoint refers to a block that isn't there: it was freed, or discarded with a checkpoint.
    #[error("segment {segment} has no block at byte {at} that is kept: rebuild the index after discarding checkpoints")]
    NoBlock {
        /// The segment's number.
        segment: u32,
        /// Where in the segment.
        at: u64,
    },
    /// Records of a lane come in the order of their SSNs, and those of the local log with its prefix.
    #[error("record {ssn} of {lane} can't be appended: {what}")]
    Record {
        /// The lane.
        lane: Rank,
        /// The record.
        ssn: Ssn,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Something else than a file has the name of one of the store's files. It was neither opened nor followed.
    #[error("{file} in the store's directory is {what}, not a file of the store: move it away")]
    NotAFile {
        /// Its name in the store's directory.
        file: String,
        /// What it is: "a symbolic link".
        what: &'static str,
    },
    /// The process has as many files open as it may. A store takes one for each of its segments.
    #[error(
        "cannot {action} {file} of the store: this process may have {limit} files open (RLIMIT_NOFILE), and a store takes \
         one for each segment: raise it (`ulimit -n`), or use larger segments (segment_bytes)"
    )]
    TooManyFiles {
        /// What was tried.
        action: &'static str,
        /// The file's name in the store's directory.
        file: String,
        /// The soft limit.
        limit: u64,
    },
    /// The thread that writes the store has ended.
    #[error("the thread that writes the store has ended: open the store again")]
    Gone,
}

/// What to do about a damaged file.
fn advice(file: &str) -> &'static str {
    match file {
        MANIFEST => {
            "nothing says which checkpoint counts, and no repair can know: restore the file from a copy, or remove the \
             directory and begin anew; `counterfoil log dump --all` shows the records that can still be read"
        }
        _ => "`counterfoil log verify` says what is lost, and `counterfoil log repair` gives that up",
    }
}

impl StoreError {
    /// What is wrong, without advice: for a report that ends with its own.
    pub(crate) fn finding(&self) -> String {
        match self {
            StoreError::Damaged { file, offset, what } => format!("{file} at byte {offset}: {what}"),
            error => error.to_string(),
        }
    }

    pub(crate) fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let file = file.to_owned();
        move |source| match source.raw_os_error() {
            Some(code) if code == Errno::MFILE.raw_os_error() => {
                let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
                StoreError::TooManyFiles { action, file, limit }
            }
            _ => StoreError::Io { action, file, source },
        }
    }

    /// No room for `needed` bytes.
    pub(crate) fn disk_full(backend: &mut dyn StorageBackend, needed: u64) -> StoreError {
        let available = backend.available().unwrap_or(0);
        StoreError::DiskFull { dir: backend.path().map(Path::to_owned), needed, available }
    }

    pub(crate) fn damaged(file: &str, offset: u64, what: &'static str) -> StoreError {
        StoreError::Damaged { file: file.to_owned(), offset, what }
    }

    /// What a read that failed means: a file that ends too early is damaged.
    pub(crate) fn read(file: &str, offset: u64) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let file = file.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof => StoreError::Damaged { file, offset, what: "the file ends here" },
            _ => StoreError::Io { action: "read", file, source },
        }
    }
}

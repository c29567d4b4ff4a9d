//! Store errors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_log_core::{Epoch, Rank, Ssn};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::StorageBackend;
use crate::format::names::MANIFEST;

/// A store error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An operating system call failed.
    #[error("cannot {action} {file} of the store: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file's name in the store's directory.
        file: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// A write or a sync failed, now or earlier.
    ///
    /// The disk's state is unknown, so the store writes nothing more. Flushed blocks can still be read.
    #[error("the store writes nothing more after an error; end the process and open the store again: {first}")]
    Failed {
        /// The first error.
        first: Arc<StoreError>,
    },
    /// The file system has no space for another file.
    ///
    /// Nothing is half-written; retry when there is space.
    #[error(
        "the disk is full: {} needed, {} left{}; free space there, or put the store on another disk (a segment takes its whole space when \
         it is created)",
        mib(*needed),
        mib(*available),
        dir.as_deref().map_or(String::new(), |dir| format!(" in {}", dir.display()))
    )]
    DiskFull {
        /// The store's directory, if it has a path.
        dir: Option<PathBuf>,
        /// Bytes needed.
        needed: u64,
        /// Free bytes in the file system.
        available: u64,
    },
    /// The store would exceed `disk_bytes_max`.
    ///
    /// Nothing is half-written.
    #[error(
        "the store would need {needed} bytes in addition to its {used}, more than disk_bytes_max ({max}): take a \
         checkpoint, collect, or raise disk_bytes_max"
    )]
    Budget {
        /// Bytes needed.
        needed: u64,
        /// Bytes in use by the store.
        used: u64,
        /// The limit.
        max: u64,
    },
    /// A file is damaged.
    #[error("{file} of the store is damaged at byte {offset}: {what}; {}", advice(file))]
    Damaged {
        /// The file's name in the store's directory.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The damage.
        what: &'static str,
    },
    /// A block is compressed, and the program was built without the feature `lz4`.
    #[error("{file} of the store has a compressed block at byte {offset}, and this program was built without `lz4`")]
    Compressed {
        /// The file's name in the store's directory.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// A file has another format version.
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
    /// The store belongs to another rank, or to a job with another rank count.
    #[error("the store is that of rank {rank} of {ranks}: give each rank its own directory")]
    OtherRank {
        /// Its rank.
        rank: u32,
        /// Rank count of its job.
        ranks: u32,
    },
    /// The directory has a store, or part of one.
    #[error("{file} exists: the directory has a store, which is to be opened or removed")]
    Exists {
        /// One of its files.
        file: String,
    },
    /// The directory has no store.
    #[error("the directory has no store: create one")]
    Missing,
    /// Another process has the store open.
    #[error("another process has the store open: end it first")]
    Locked,
    /// The store was opened for reading only.
    #[error("the store was opened for reading only: open it with Access::ReadWrite")]
    ReadOnly,
    /// Options out of bounds, or inconsistent.
    #[error("options of the store: {0}")]
    Options(String),
    /// The new checkpoint's epoch isn't above the newest epoch.
    #[error("a checkpoint that begins {asked} can't follow one that begins {newest}: discard that one first")]
    Epoch {
        /// The requested epoch.
        asked: Epoch,
        /// The newest checkpoint's epoch; 0 for none.
        newest: Epoch,
    },
    /// No checkpoint with this epoch is kept.
    #[error("no checkpoint that begins {epoch} is kept")]
    NoCheckpoint {
        /// The requested epoch.
        epoch: Epoch,
    },
    /// A new checkpoint refers to a block that was freed, or discarded with a checkpoint.
    #[error("segment {segment} has no block at byte {at} that is kept: rebuild the index after discarding checkpoints")]
    NoBlock {
        /// The segment's number.
        segment: u32,
        /// Offset in the segment, in bytes.
        at: u64,
    },
    /// A record can't be appended: its SSN doesn't rise, or it isn't a local log entry, in the local log's lane.
    #[error("record {ssn} of {lane} can't be appended: {what}")]
    Record {
        /// The lane.
        lane: Rank,
        /// The record's SSN.
        ssn: Ssn,
        /// The reason.
        what: &'static str,
    },
    /// A checkpoint image has numbers refused by readers: SSNs out of range or not rising, or a block entry that no
    /// store wrote.
    ///
    /// Nothing was written.
    #[error(
        "the checkpoint that begins {epoch} could not be read back and was not written: an SSN or a block of it is out of its limits"
    )]
    Image {
        /// The epoch.
        epoch: Epoch,
    },
    /// The store has used up its file numbers.
    #[error("the store has used up its file numbers: copy what is needed, remove it and create another")]
    NumbersExhausted,
    /// A block would be refused by readers: a fault in this program.
    ///
    /// None of it was written, and its records are still in memory.
    #[error(
        "the block of {lane} that begins with {first} could not be read back ({what}) and was not written: this is a fault of \
         counterfoil; a smaller block_bytes may avoid it"
    )]
    Unreadable {
        /// The lane.
        lane: Rank,
        /// Its first record.
        first: Ssn,
        /// The reader's reason.
        what: &'static str,
    },
    /// An entry with a store file's name isn't a regular file.
    ///
    /// It was neither opened nor followed.
    #[error("{file} in the store's directory is {what}, not a file of the store: move it away")]
    NotAFile {
        /// Its name in the store's directory.
        file: String,
        /// Its type, such as "a symbolic link".
        what: &'static str,
    },
    /// The process reached its open file limit.
    ///
    /// A store needs one file for each segment.
    #[error(
        "cannot {action} {file} of the store: this process may have {limit} files open (RLIMIT_NOFILE), and a store takes \
         one for each segment: raise it (`ulimit -n`), or use larger segments (segment_bytes)"
    )]
    TooManyFiles {
        /// The operation.
        action: &'static str,
        /// The file's name in the store's directory.
        file: String,
        /// The soft limit, RLIMIT_NOFILE.
        limit: u64,
    },
    /// The store's writer thread has ended.
    #[error("the thread that writes the store has ended: open the store again")]
    WriterEnded,
}

/// Returns advice on a damaged file.
fn advice(file: &str) -> &'static str {
    match file {
        MANIFEST => {
            "without it no checkpoint is valid, and no repair can restore it: restore the file from a copy, or remove the \
             directory and start over; `counterfoil log dump --all` shows the records that can still be read"
        }
        _ => "`counterfoil log verify` shows what is lost, and `counterfoil log repair` removes that",
    }
}

impl StoreError {
    /// Returns the error without advice, for a report with its own advice.
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

    /// Returns the error for a full disk, with the free bytes.
    pub(crate) fn disk_full(backend: &mut dyn StorageBackend, needed: u64) -> StoreError {
        let available = backend.available().unwrap_or(0);
        StoreError::DiskFull { dir: backend.path().map(Path::to_owned), needed, available }
    }

    pub(crate) fn damaged(file: &str, offset: u64, what: &'static str) -> StoreError {
        StoreError::Damaged { file: file.to_owned(), offset, what }
    }

    /// Converts a read error: a file ending too early is damaged.
    pub(crate) fn read(file: &str, offset: u64) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let file = file.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::UnexpectedEof => StoreError::Damaged { file, offset, what: "the file ends here" },
            _ => StoreError::Io { action: "read", file, source },
        }
    }
}

/// Formats a size for messages about the disk.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_how_much_is_missing_and_where() {
        let full =
            |dir: Option<&str>| StoreError::DiskFull { dir: dir.map(PathBuf::from), needed: 3 << 19, available: 0 };
        let words = full(Some("/logs/rank-1")).to_string();
        assert!(words.starts_with("the disk is full: 1.5 MiB needed, 0.0 MiB left in /logs/rank-1; free"), "{words}");
        assert!(full(None).to_string().contains("0.0 MiB left; free"));
    }

    #[test]
    fn too_many_open_files_are_an_error_with_the_limit() {
        let refused = |errno: Errno| StoreError::io("open", "manifest")(errno.into());
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let StoreError::TooManyFiles { action: "open", file, limit: found } = refused(Errno::MFILE) else {
            panic!("another error")
        };
        assert_eq!((file.as_str(), found), ("manifest", limit));
        assert!(matches!(refused(Errno::IO), StoreError::Io { .. }));
    }
}

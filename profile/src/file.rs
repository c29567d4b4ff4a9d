//! Reads and writes profile files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum file length in bytes.
///
/// Ranks write shorter files; readers refuse longer ones.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// Failure to read or write a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
    /// The file exists, but its contents are invalid.
    #[error("{} is damaged, or of another version: {why}; remove it to read the remaining files", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file can't be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
}

/// Returns the path to a rank's file in a job directory: `rank-N`, and a suffix.
pub(crate) fn path_of_rank(dir: &Path, rank: u32, suffix: &str) -> PathBuf {
    dir.join(format!("rank-{rank}{suffix}"))
}

/// Parses a rank's file name; `None` for other files.
pub(crate) fn rank_of(name: &str, suffix: &str) -> Option<u32> {
    name.strip_prefix("rank-")?.strip_suffix(suffix)?.parse().ok()
}

/// Reads all ranks' files with this suffix, ascending by rank.
///
/// An unreadable file counts as empty.
pub(crate) fn of_ranks(dir: &Path, suffix: &str) -> Vec<(u32, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if let Some(rank) = entry.file_name().to_str().and_then(|name| rank_of(name, suffix)) {
            found.push((rank, fs::read(entry.path()).unwrap_or_default()));
        }
    }
    found.sort_unstable();
    found
}

/// Writes a value as JSON, atomically.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> Result<(), ProfileError> {
    let failed = |error: serde_json::Error| ProfileError::Write { path: path.to_owned(), source: error.into() };
    write_text(path, &serde_json::to_vec(value).map_err(failed)?)
}

/// Writes a file atomically: to a temporary name, then renamed.
///
/// A reader sees the whole file or none.
pub(crate) fn write_text(path: &Path, text: &[u8]) -> Result<(), ProfileError> {
    let failed = |source| ProfileError::Write { path: path.to_owned(), source };
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, path)).map_err(failed)
}

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ProfileError> {
    let failed = |source| ProfileError::Read { path: path.to_owned(), source };
    let damaged = |why: String| ProfileError::Damaged { path: path.to_owned(), why };
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(damaged(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))
}

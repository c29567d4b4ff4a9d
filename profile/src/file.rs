//! Reading and writing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest file that is read, in bytes: no rank writes a longer one.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// Why a file can't be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The system says no.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is there, and not what a rank or `counterfoil run` writes.
    #[error("{} is damaged, or of another version: {why}; what is in the other files can be seen without it: remove it", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The system says no.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes an object as JSON; whole, like a text.
pub(crate) fn write(path: &Path, what: &impl Serialize) -> Result<(), ProfileError> {
    let failed = |error: serde_json::Error| ProfileError::Write { path: path.to_owned(), source: error.into() };
    write_text(path, &serde_json::to_vec(what).map_err(failed)?)
}

/// Writes a file beside its place and then puts it there: a reader finds all of it or nothing.
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

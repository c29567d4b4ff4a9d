//! Caller-supplied checkpoint contents.

use std::collections::HashSet;
use std::fmt;

use crate::disk_index::Cuts;

/// Caller's part of a checkpoint: the program's own bytes, and named tables of the layers between program and log, for
/// example a protocol's windows.
///
/// The log doesn't interpret them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The program's own bytes.
    pub application: Vec<u8>,
    /// Name and bytes of each table.
    ///
    /// Names are unique and have at most [`TABLE_NAME_BYTES_MAX`] bytes; `counterfoil/cuts` is reserved. A checkpoint
    /// with other names is refused.
    pub tables: Vec<(String, Vec<u8>)>,
}

/// Longest table name in a checkpoint, in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 255;

/// Error for a table name not allowed in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The name is the log's own.
    #[error("a table of a checkpoint can't be named {name:?}, which is the log's own: choose another name")]
    Reserved {
        /// The name.
        name: String,
    },
    /// Two tables have this name.
    #[error("a checkpoint has two tables named {name:?}: give each a name of its own")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The name is too long.
    #[error("a table's name of {bytes} bytes begins with {start:?}: it can have {TABLE_NAME_BYTES_MAX}")]
    TooLong {
        /// The first characters of the name.
        start: String,
        /// Length of the name in bytes.
        bytes: usize,
    },
}

impl Contents {
    /// Checks the table names.
    ///
    /// # Errors
    /// [`TableError`] names the first invalid table.
    pub fn validate(&self) -> Result<(), TableError> {
        let mut names = HashSet::with_capacity(self.tables.len());
        for (name, _) in &self.tables {
            if name.len() > TABLE_NAME_BYTES_MAX {
                return Err(TableError::TooLong { start: name.chars().take(32).collect(), bytes: name.len() });
            }
            if name == Cuts::TABLE {
                return Err(TableError::Reserved { name: name.clone() });
            }
            if !names.insert(name.as_str()) {
                return Err(TableError::Duplicate { name: name.clone() });
            }
        }
        Ok(())
    }

    /// Returns the bytes of a table.
    pub fn table(&self, name: &str) -> Option<&[u8]> {
        self.tables.iter().find(|(of, _)| of == name).map(|(_, bytes)| bytes.as_slice())
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables.iter().map(|(name, bytes)| (name, bytes.len()));
        f.debug_struct("Contents")
            .field("application_bytes", &self.application.len())
            .field("tables", &tables.collect::<Vec<_>>())
            .finish()
    }
}

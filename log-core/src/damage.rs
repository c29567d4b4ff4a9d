//! Damage to a shared-memory log.

/// Layout version of shared-memory logs.
///
/// Another version is refused.
pub const SHARED_LOG_VERSION: u32 = 1;

/// Damage to a shared-memory log, or a mismatch with the options.
///
/// Nothing in the file was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageError {
    /// The file doesn't begin with the magic number.
    #[error("not a shared-memory log (no magic at offset 0)")]
    NotALog,
    /// The layout has another version.
    #[error("version {found}, but this program reads version {SHARED_LOG_VERSION}: use the program that wrote it")]
    Version {
        /// The file's version.
        found: u32,
    },
    /// The log was made with other limits, or for another rank.
    #[error("it was made with {what} = {found}, but {expected} was asked for")]
    Mismatch {
        /// Name of the differing field.
        what: &'static str,
        /// Value in the file.
        found: u64,
        /// Value asked for.
        expected: u64,
    },
    /// The file is shorter or longer than its header says.
    #[error("{found} bytes long, expected {expected}: it was cut short")]
    Length {
        /// The file's length in bytes.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// The file has bytes not written by a writer.
    #[error("damaged at offset {at}: {what}")]
    Damaged {
        /// Offset in the file.
        at: usize,
        /// Damage description.
        what: &'static str,
    },
}

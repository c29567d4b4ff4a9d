//! Plain numbers in bytes: postcard, after one version byte where the bytes are kept, or come from another process.

use counterfoil_log_core::Rank;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::RestoreError;

/// Encodes a value.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    append(value, Vec::new())
}

/// Encodes a value after its version.
pub(crate) fn encode_versioned(version: u8, value: &impl Serialize) -> Vec<u8> {
    append(value, vec![version])
}

fn append(value: &impl Serialize, bytes: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(value, bytes)
        .expect("numbers and collections of known length always encode into a growing vector")
}

/// Decodes a value; `None` for other bytes, or trailing data.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// Decodes a value with this version; `None` for another, for other bytes, or trailing data.
pub(crate) fn decode_versioned<T: DeserializeOwned>(version: u8, bytes: &[u8]) -> Option<T> {
    decode(without_version(version, bytes).ok()?)
}

/// Returns the checkpoint table bytes after the version.
///
/// # Errors
/// [`RestoreError::Malformed`] without a version, [`RestoreError::Version`] for another one.
pub(crate) fn without_version(expected: u8, bytes: &[u8]) -> Result<&[u8], RestoreError> {
    let (&found, rest) = bytes.split_first().ok_or(RestoreError::Malformed { len: bytes.len() })?;
    if found == expected { Ok(rest) } else { Err(RestoreError::Version { found, expected }) }
}

/// Decodes checkpoint tables with this version.
///
/// # Errors
/// See [`without_version`]; also [`RestoreError::Malformed`] for other bytes, or trailing data.
pub(crate) fn decode_tables<T: DeserializeOwned>(version: u8, bytes: &[u8]) -> Result<T, RestoreError> {
    decode(without_version(version, bytes)?).ok_or(RestoreError::Malformed { len: bytes.len() })
}

/// Checks that tables from rank `found.0` in a job of `found.1` ranks belong to this rank.
///
/// # Errors
/// [`RestoreError::OtherRank`], [`RestoreError::OtherJob`].
pub(crate) fn check_owner(found: (u32, u32), (rank, ranks): (Rank, u32)) -> Result<(), RestoreError> {
    if found.0 != rank.0 {
        return Err(RestoreError::OtherRank { found: Rank(found.0), expected: rank });
    }
    if found.1 != ranks {
        return Err(RestoreError::OtherJob { found: found.1, expected: ranks });
    }
    Ok(())
}

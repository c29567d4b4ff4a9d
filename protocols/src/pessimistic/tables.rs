//! Checkpoint tables: one version byte, the number of deliveries (8 bytes, little-endian), and the core's tables.

use crate::api::RestoreError;
use crate::encoding::without_version;

/// Version written, and the only one read.
///
/// Distinct from the core's, so tables of one rule are never taken for those of the other.
const VERSION: u8 = 0x81;

/// Bytes before the core's tables.
const LEN: usize = 9;

pub(super) fn encode(deliveries: u64, core: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LEN + core.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&deliveries.to_le_bytes());
    bytes.extend_from_slice(core);
    bytes
}

/// Returns the delivery count and the core's tables.
pub(super) fn decode(bytes: &[u8]) -> Result<(u64, &[u8]), RestoreError> {
    let malformed = RestoreError::Malformed { len: bytes.len() };
    let (deliveries, core) = without_version(VERSION, bytes)?.split_first_chunk::<8>().ok_or(malformed)?;
    Ok((u64::from_le_bytes(*deliveries), core))
}

//! Contributions to collective operations in the logs of a job.

use std::collections::BTreeMap;
use std::path::Path;

use counterfoil_profile::COLLECTIVE;

use crate::logged::{Payload, lanes};

/// Reads a rank's contributions to collective operations, by communicator and number of the operation.
pub(crate) fn read(dir: &Path, rank: u32) -> BTreeMap<(u32, u64), Payload> {
    let own = lanes(dir, rank).remove(&rank).unwrap_or_default();
    let of_operations = own.into_values().filter(|(tag, _)| tag.tag == COLLECTIVE);
    of_operations.map(|(tag, payload)| ((tag.comm, tag.number), payload)).collect()
}

//! Contributions to collective operations in a job's logs.

use std::collections::BTreeMap;
use std::path::Path;

use counterfoil_profile::COLLECTIVE;

use crate::logged::hash::hash;
use crate::logged::{Payload, for_each_record};

/// Reads a rank's contributions to collective operations, by communicator and operation number.
pub(crate) fn read(dir: &Path, rank: u32) -> BTreeMap<(u32, u64), Payload> {
    let mut contributions = BTreeMap::new();
    for_each_record(dir, rank, |_, tag, record| {
        if tag.tag == COLLECTIVE {
            contributions.insert((tag.comm, tag.number), (record.payload().len() as u64, hash(record.payload())));
        }
    });
    contributions
}

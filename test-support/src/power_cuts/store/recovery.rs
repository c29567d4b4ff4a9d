//! Store recoveries, compared with the model.

use counterfoil_log_io::{Access, BlockBuffer, CheckpointImage, LocalImage, Store, StoreError, repair, scan};

use super::{Expected, StoreModel};
use crate::SimulatedDisk;
use crate::power_cuts::{Explored, Mismatch, Subject};

/// The checkpoints found by a recovery.
struct Found {
    kept: Vec<CheckpointImage>,
    newest: Option<CheckpointImage>,
}

impl StoreModel {
    /// Opens a copy of the disk left by a power cut, and compares the store with the allowed states.
    ///
    /// Returns its state, and the disk before each operation in the opening. Where the store doesn't exist yet, checks
    /// that it can be created.
    pub(super) fn recover_as(
        &self,
        left: &SimulatedDisk,
        access: Access,
        allowed: &[Expected],
        explored: &mut Explored,
    ) -> Result<(Expected, Vec<SimulatedDisk>), Mismatch> {
        let disk = left.copy();
        disk.record_history();
        let (store, newest) = match Store::open(Box::new(disk.clone()), self.options.clone(), access) {
            Ok(opened) => opened,
            Err(StoreError::Missing) if allowed.iter().any(|expected| !expected.exists) => {
                let created = Store::create(Box::new(disk.clone()), self.options.clone());
                created.map_err(|error| Mismatch(format!("can't be created after a power cut: {error}")))?;
                return Ok((Expected::default(), Vec::new()));
            }
            Err(error) => return Err(Mismatch(format!("a recovery fails: {error}"))),
        };
        let found = self.read_all(&store, newest, explored)?;
        let matches: Vec<_> = allowed.iter().map(|expected| matches(expected, &found)).collect();
        let Some(state) = matches.iter().rev().find_map(|result| result.as_ref().ok()) else {
            let why: Vec<String> = matches.into_iter().filter_map(Result::err).collect();
            return Err(Mismatch(format!("a recovery finds neither state: {}", why.join("; "))));
        };
        explored.tail_entries += state.tail.len() as u64;
        let blocks = |image: &CheckpointImage| image.lanes.iter().map(|lane| lane.blocks.len()).sum::<usize>();
        let below = |image| blocks(image) - blocks(&state.with_floors(image));
        explored.blocks_below_floors += state.kept.iter().map(below).sum::<usize>() as u64;
        let history = disk.take_history();
        if access == Access::ReadOnly && !history.is_empty() {
            return Err(Mismatch("reading a store changes it".to_owned()));
        }
        Ok((state.clone(), history))
    }

    /// Checks that a scan after a power cut reports no damage, and repairing its torn tails loses nothing.
    pub(super) fn check_repair(
        &self,
        left: &SimulatedDisk,
        expected: &Expected,
        explored: &mut Explored,
    ) -> Result<(), Mismatch> {
        let mut disk = left.copy();
        let failed = |error| Mismatch(format!("a repair fails: {error}"));
        if !scan(&mut disk, &mut |_, _| {}).map_err(failed)?.is_whole() {
            return Err(Mismatch("a scan finds damage".to_owned()));
        }
        repair(&mut disk, false).map_err(failed)?;
        if !repair(&mut disk, true).map_err(failed)?.is_empty() {
            return Err(Mismatch("a repair leaves something to be repaired".to_owned()));
        }
        let opened = Store::open(Box::new(disk), self.options.clone(), Access::ReadOnly).map_err(failed);
        let (store, newest) = opened?;
        let found = self.read_all(&store, newest, explored)?;
        matches(&StoreModel::settled(expected), &found).map(drop).map_err(Mismatch)
    }

    /// Reads every checkpoint with all its blocks, and compares the records.
    fn read_all(
        &self,
        store: &Store,
        newest: Option<CheckpointImage>,
        explored: &mut Explored,
    ) -> Result<Found, Mismatch> {
        let mut kept = Vec::new();
        let reader = store.reader();
        let mut buffer = BlockBuffer::default();
        for epoch in store.checkpoints() {
            let image = store.image(epoch).map_err(|error| Mismatch(format!("no image of {epoch}: {error}")))?;
            for block in image.lanes.iter().flat_map(|lane| &lane.blocks) {
                let read = reader.read(block, &mut buffer);
                read.map_err(|error| Mismatch(format!("a block of {epoch} can't be read: {error}")))?;
                let expected = self.contents.get(&(block.segment, block.at)).map(Vec::as_slice).unwrap_or_default();
                let records = buffer.records().map(|record| (record.ssn(), record.prefix().len(), record.wire()));
                if !records.eq(expected.iter().map(|(ssn, prefix, wire)| (*ssn, *prefix, wire.as_slice()))) {
                    return Err(Mismatch(format!("{block:?} of {epoch} has other records")));
                }
                explored.blocks += 1;
            }
            kept.push(image);
        }
        Ok(Found { kept, newest })
    }
}

/// Compares the contents found with an expected state.
///
/// Returns this state, with the tail found.
fn matches(state: &Expected, found: &Found) -> Result<Expected, String> {
    let expected: Vec<CheckpointImage> = state.kept.iter().map(|image| state.with_floors(image)).collect();
    if found.kept != expected {
        let epochs = |images: &[CheckpointImage]| images.iter().map(|image| image.epoch.0).collect::<Vec<_>>();
        return Err(format!("checkpoints {:?}, not {:?}, or others", epochs(&found.kept), epochs(&expected)));
    }
    let mut newest = found.newest.clone().unwrap_or_default();
    let known = expected.last().map_or(0, |image| image.local.len());
    if newest.local.len() < known {
        return Err("entries of the local log are missing".to_owned());
    }
    let tail: Vec<LocalImage> = newest.local.split_off(known);
    if newest != expected.last().cloned().unwrap_or_default() || (found.newest.is_none() && !expected.is_empty()) {
        return Err("the newest checkpoint is another one".to_owned());
    }
    if tail.len() < state.synced || !state.tail.starts_with(&tail) {
        let ssns = |entries: &[LocalImage]| entries.iter().map(|entry| entry.ssn.0).collect::<Vec<_>>();
        return Err(format!("tail {:?}, of {:?}, {} synced", ssns(&tail), ssns(&state.tail), state.synced));
    }
    Ok(Expected { exists: true, synced: tail.len(), tail, ..state.clone() })
}

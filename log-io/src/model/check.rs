//! Comparing what a recovery finds with what it must find.

use super::{Chance, Explored, Mismatch, Truth, World, below};
use crate::{Access, BlockBuffer, CheckpointImage, LocalImage, SimulatedDisk, Store, StoreError, repair, scan};

/// What was found on a disk.
struct Found {
    kept: Vec<CheckpointImage>,
    newest: Option<CheckpointImage>,
}

impl World {
    /// Opens the store that a power cut left, and compares it with what may be true. With `again`, the power is cut while it
    /// is opened, too. Returns what is true now; the disk is left as it was.
    pub(super) fn check(
        &self,
        left: &SimulatedDisk,
        truths: &[Truth],
        again: bool,
        chance: Chance<'_>,
        explored: &mut Explored,
    ) -> Result<Truth, Mismatch> {
        explored.crashes += 1;
        let access = if !again && chance().is_multiple_of(4) { Access::ReadOnly } else { Access::ReadWrite };
        let disk = left.copy();
        disk.remember();
        let truth = match Store::open(Box::new(disk.clone()), self.options.clone(), access) {
            Ok((store, newest)) => {
                let found = self.read_all(&store, newest, explored)?;
                let matches: Vec<_> = truths.iter().map(|truth| matches(truth, &found)).collect();
                let right = matches.iter().rev().find_map(|result| result.as_ref().ok());
                let Some(right) = right else {
                    let why: Vec<String> = matches.into_iter().filter_map(Result::err).collect();
                    return Err(Mismatch(format!("a recovery finds neither state: {}", why.join("; "))));
                };
                explored.tail_entries += right.tail.len() as u64;
                let blocks = |image: &CheckpointImage| image.lanes.iter().map(|lane| lane.blocks.len()).sum::<usize>();
                let below = |image| blocks(image) - blocks(&right.with_floors(image));
                explored.blocks_below_floors += right.kept.iter().map(below).sum::<usize>() as u64;
                right.clone()
            }
            Err(StoreError::Missing) if truths.iter().any(|truth| !truth.exists) => {
                let created = Store::create(Box::new(disk.clone()), self.options.clone());
                created.map_err(|error| Mismatch(format!("can't be created after a power cut: {error}")))?;
                return Ok(Truth::default());
            }
            Err(error) => return Err(Mismatch(format!("a recovery fails: {error}"))),
        };
        if chance().is_multiple_of(32) {
            self.check_repair(left, &truth, explored)?;
        }
        let history = disk.take_history();
        if access == Access::ReadOnly && !history.is_empty() {
            return Err(Mismatch("reading a store changes it".to_owned()));
        }
        if again {
            // Opening it again from any place of its opening finds the same.
            let same = Truth { synced: truth.tail.len(), ..truth.clone() };
            for disk in history {
                explored.crashes_in_recovery += 1;
                let left = disk.crash(chance);
                self.check(&left, std::slice::from_ref(&same), below(chance, 64) == 0, chance, explored)?;
            }
        }
        Ok(truth)
    }

    /// What a power cut leaves is whole, and repairing its torn ends loses nothing.
    fn check_repair(&self, left: &SimulatedDisk, truth: &Truth, explored: &mut Explored) -> Result<(), Mismatch> {
        let mut disk = left.copy();
        let wrong = |error| Mismatch(format!("a repair fails: {error}"));
        if !scan(&mut disk, &mut |_, _| {}).map_err(wrong)?.is_whole() {
            return Err(Mismatch("a scan finds damage".to_owned()));
        }
        repair(&mut disk, false).map_err(wrong)?;
        if !repair(&mut disk, true).map_err(wrong)?.is_empty() {
            return Err(Mismatch("a repair leaves something to be repaired".to_owned()));
        }
        let opened = Store::open(Box::new(disk), self.options.clone(), Access::ReadOnly).map_err(wrong);
        let (store, newest) = opened?;
        let same = Truth { synced: truth.tail.len(), ..truth.clone() };
        matches(&same, &self.read_all(&store, newest, explored)?).map(drop).map_err(Mismatch)
    }

    /// Reads every checkpoint, and every block of it, and compares the records.
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

/// Whether what was found is what this truth allows, and what is true then.
fn matches(truth: &Truth, found: &Found) -> Result<Truth, String> {
    let expected: Vec<CheckpointImage> = truth.kept.iter().map(|image| truth.with_floors(image)).collect();
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
    if tail.len() < truth.synced || !truth.tail.starts_with(&tail) {
        let ssns = |entries: &[LocalImage]| entries.iter().map(|entry| entry.ssn.0).collect::<Vec<_>>();
        return Err(format!("tail {:?}, of {:?}, {} synced", ssns(&tail), ssns(&truth.tail), truth.synced));
    }
    Ok(Truth { exists: true, synced: tail.len(), tail, ..truth.clone() })
}

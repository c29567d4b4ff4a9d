//! Repair of a damaged store, to open it with the remaining contents.

use std::fmt;

use counterfoil_log_core::{Epoch, Rank, Ssn};

use super::loss::{Loss, LossTally};
use super::{Scan, Tail};
use crate::backend::pieces::write_pieces;
use crate::format::checkpoint_file::{self, Application, CoveredSegment};
use crate::format::manifest::{KeptCheckpoint, Manifest, SlotState, no_manifest, slot_bytes};
use crate::format::names::{MANIFEST, checkpoint_name, file_number, segment_name};
use crate::{Block, CheckpointImage, LaneImage, PAGE_BYTES, StorageBackend, StoreError};

/// A repair step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repair {
    /// Rewrites one manifest slot from the other.
    ///
    /// Nothing is lost.
    Slot {
        /// Index of the slot.
        slot: usize,
    },
    /// Removes torn writes from the end of a segment.
    ///
    /// No durable data is lost.
    Tail {
        /// The segment's file.
        file: String,
        /// Offset of the first one, in bytes.
        at: u64,
        /// The file's length afterwards.
        len: u64,
    },
    /// A block can't be read: its records are lost.
    Block {
        /// The segment's file.
        file: String,
        /// The block's entry.
        block: Block,
        /// The damage.
        what: &'static str,
    },
    /// A checkpoint's lane now begins after its last lost block: earlier records can't be replayed without a gap.
    Lane {
        /// The changed checkpoint.
        epoch: Epoch,
        /// The lane.
        lane: Rank,
        /// Records up to here are lost.
        upto: Ssn,
    },
    /// A checkpoint can't be read and is no longer valid.
    Checkpoint {
        /// The epoch begun by it.
        epoch: Epoch,
        /// File size in bytes.
        bytes: u64,
        /// The damage.
        what: String,
    },
    /// Local log entries appended after a lost checkpoint are lost with it.
    LocalLog,
    /// The lost records of a lane: one for each lane, at the end.
    Loss(Loss),
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repair::Slot { slot } => {
                write!(f, "{MANIFEST}: rewrite slot {slot} from the other one; nothing is lost")
            }
            Repair::Tail { file, at, len } => {
                write!(f, "{file}: remove torn writes from byte {at} on, and truncate the file to {len} bytes")
            }
            Repair::Block { file, block, what } => {
                let (lane, first, last) = (block.lane, block.first, block.last);
                write!(f, "{file}: lost at byte {}: {first} to {last} of the lane to {lane} ({what})", block.at)
            }
            Repair::Lane { epoch, lane, upto } => {
                write!(f, "checkpoint of {epoch}: the lane to {lane} begins after {upto}; records up to it are lost")
            }
            Repair::Checkpoint { epoch, bytes, what } => {
                write!(f, "checkpoint of {epoch}: lost, with the program's state in it ({bytes} bytes; {what})")
            }
            Repair::Loss(loss) => write!(f, "{loss}"),
            Repair::LocalLog => f.write_str("entries of the local log since the lost checkpoint: lost"),
        }
    }
}

/// Repairs a store that no process has open.
///
/// Returns the steps; with `dry_run` it changes nothing.
///
/// Lost blocks are removed from the disk: copy the directory first to analyse them. Leftover files are removed when the
/// store is opened.
///
/// # Errors
/// [`StoreError::NumbersExhausted`]; [`StoreError::Missing`]; [`StoreError::Damaged`], [`StoreError::Version`] if no
/// manifest slot can be read, because then no checkpoint is valid. [`StoreError::DiskFull`]; [`StoreError::Io`], after
/// which the repair can be retried.
pub fn repair(backend: &mut dyn StorageBackend, dry_run: bool) -> Result<Vec<Repair>, StoreError> {
    let scan = Scan::new(backend, &mut |_, _| {})?;
    let Some(manifest) = &scan.manifest else {
        return Err(no_manifest(scan.report.slots, &scan.names));
    };
    let mut repairs = Vec::new();
    let mut repaired = manifest.clone();
    let mut rewritten = Vec::new();
    let mut losses = LossTally::default();
    for checkpoint in &scan.report.checkpoints {
        if let Err(what) = &checkpoint.contents {
            let is_newest = manifest.kept.last().is_some_and(|newest| newest.epoch == checkpoint.epoch);
            let (epoch, bytes) = (checkpoint.epoch, checkpoint.bytes);
            repairs.push(Repair::Checkpoint { epoch, bytes, what: what.clone() });
            losses.unreferenced(&scan, is_newest);
            repaired.kept.retain(|kept| kept.epoch != checkpoint.epoch);
            if is_newest {
                // Later local log entries depend on it.
                repairs.push(Repair::LocalLog);
                repaired.session += 1;
                repaired.tail_session = repaired.session;
            }
        }
    }
    let lost = scan.lost_blocks(&mut repairs);
    for (kept, image, _) in &scan.images {
        let mut image = image.clone();
        let cut = image.lanes.iter_mut().filter_map(|lane| Some((lane.peer, cut(lane, &lost, &mut losses)?)));
        let cut: Vec<Repair> = cut.map(|(lane, upto)| Repair::Lane { epoch: kept.epoch, lane, upto }).collect();
        if !cut.is_empty() {
            repairs.extend(cut);
            rewritten.push((*kept, image));
        }
    }
    let sequence = manifest.sequence;
    for (slot, _) in scan.report.slots.iter().enumerate().filter(|(_, state)| **state != SlotState::Valid { sequence })
    {
        repairs.push(Repair::Slot { slot });
    }
    for segment in scan.report.segments.iter().filter(|segment| !segment.torn.is_empty()) {
        // A segment without a valid header is a leftover, or lost.
        let at = segment.torn[0].0;
        repairs.push(Repair::Tail { file: segment.file.clone(), at, len: segment.end });
    }
    repairs.extend(losses.sums(&scan.report).into_iter().map(Repair::Loss));
    if repairs.is_empty() {
        return Ok(repairs);
    }
    repaired.count_change()?;
    if dry_run {
        return Ok(repairs);
    }
    for (kept, image) in rewritten {
        let new = scan.rewrite(backend, &kept, image)?;
        repaired.kept.iter_mut().filter(|of| of.number == kept.number).for_each(|of| *of = new);
    }
    change_manifest(backend, &scan, sequence, &repaired)?;
    scan.cut_tails(backend)?;
    scan.give_lost_back(backend, &lost)?;
    Ok(repairs)
}

/// Removes everything up to the last lost block from a lane.
///
/// Returns the last lost SSN.
fn cut(lane: &mut LaneImage, lost: &[Block], losses: &mut LossTally) -> Option<Ssn> {
    let last = lane.blocks.iter().rposition(|block| lost.contains(block))?;
    let upto = lane.blocks[..=last].iter().map(|block| block.last).max()?.max(lane.covered);
    // An overlapping later block has the same records, or newer ones.
    let from = lane.blocks.get(last + 1).map_or(upto, |next| upto.min(next.first.prev()));
    let gone: Vec<Block> = lane.blocks.drain(..=last).collect();
    losses.cut(lane, lane.covered, &gone);
    lane.covered = from;
    Some(from)
}

impl Scan {
    /// Returns the unreadable blocks referenced by checkpoints.
    fn lost_blocks(&self, repairs: &mut Vec<Repair>) -> Vec<Block> {
        let mut lost = Vec::new();
        for segment in self.report.segments.iter().filter(|segment| matches!(segment.tail, Tail::Damaged { .. })) {
            for report in segment.blocks.iter().filter(|report| report.is_referenced) {
                if let Some(what) = report.damage {
                    repairs.push(Repair::Block { file: segment.file.clone(), block: report.block, what });
                    lost.push(report.block);
                }
            }
        }
        lost
    }

    /// Writes a checkpoint without its lost blocks under a new number, durably.
    fn rewrite(
        &self,
        backend: &mut dyn StorageBackend,
        kept: &KeptCheckpoint,
        mut image: CheckpointImage,
    ) -> Result<KeptCheckpoint, StoreError> {
        let old = checkpoint_name(kept.number);
        let reader = backend.reader(&old).map_err(StoreError::io("open", &old))?;
        // The scan has verified the program's own bytes, and not kept them.
        let (whole, mut context) = checkpoint_file::decode(&*reader, kept, Application::Read)?;
        image.application = whole.application;
        let blocks = || image.lanes.iter().flat_map(|lane| &lane.blocks);
        context.segments.retain_mut(|of| {
            let ends = blocks().filter(|block| block.segment == of.segment).map(|block| block.at + block.disk_bytes);
            let covered = ends.max();
            *of = CoveredSegment { covered: covered.unwrap_or(0), ..*of };
            covered.is_some()
        });
        let names = backend.list().map_err(StoreError::io("list the directory", "."))?;
        let numbers = names.iter().filter_map(|name| file_number(name, "segment").or(file_number(name, "checkpoint")));
        context.number = numbers.max().unwrap_or(0).max(context.written.next_number) + 1;
        let encoded = checkpoint_file::encode(&image, &context);
        let name = checkpoint_name(context.number);
        let bytes = encoded.kept.bytes;
        let file = backend.create(&name, bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull => StoreError::disk_full(backend, bytes),
            _ => StoreError::io("create", &name)(error),
        })?;
        let written = write_pieces(backend, file, 0, &encoded.pieces()).and_then(|()| backend.sync(file));
        written.and_then(|()| backend.sync_dir()).map_err(StoreError::io("write", &name))?;
        backend.close(file);
        Ok(encoded.kept)
    }

    /// Punches the lost blocks: no checkpoint refers to them now, and they would look like torn writes.
    fn give_lost_back(&self, backend: &mut dyn StorageBackend, lost: &[Block]) -> Result<(), StoreError> {
        for segment in self.report.segments.iter().filter(|segment| segment.session.is_ok()) {
            let inside = |block: &&Block| segment_name(block.segment) == segment.file && block.at < segment.bytes;
            for block in lost.iter().filter(inside) {
                let name = &segment.file;
                let file = backend.open(name).map_err(StoreError::io("open", name))?;
                // The file may be truncated anywhere; a punch beyond its end does nothing.
                let len = block.disk_bytes.min((segment.bytes - block.at).next_multiple_of(PAGE_BYTES as u64));
                let punched = backend.punch(file, block.at, len).and_then(|()| backend.sync(file));
                punched.map_err(StoreError::io("punch", name))?;
                backend.close(file);
            }
        }
        Ok(())
    }

    /// Punches torn writes, and truncates the files.
    fn cut_tails(&self, backend: &mut dyn StorageBackend) -> Result<(), StoreError> {
        for segment in self.report.segments.iter().filter(|segment| !segment.torn.is_empty()) {
            let name = &segment.file;
            let file = backend.open(name).map_err(StoreError::io("open", name))?;
            for &(at, len) in segment.torn.iter().filter(|(at, _)| *at < segment.end) {
                let len = len.next_multiple_of(PAGE_BYTES as u64);
                backend.punch(file, at, len).map_err(StoreError::io("punch", name))?;
            }
            backend.truncate(file, segment.end.max(segment.covered)).map_err(StoreError::io("truncate", name))?;
            backend.sync(file).map_err(StoreError::io("sync", name))?;
            backend.close(file);
        }
        Ok(())
    }
}

/// Writes both slots, starting with the invalid one; `sequence` is the valid slot's.
fn change_manifest(
    backend: &mut dyn StorageBackend,
    scan: &Scan,
    sequence: u64,
    manifest: &Manifest,
) -> Result<(), StoreError> {
    let first = usize::from(
        scan.report.slots[0] == SlotState::Valid { sequence } && scan.report.slots[1] != scan.report.slots[0],
    );
    let bytes = manifest.encode();
    let file = backend.open(MANIFEST).map_err(StoreError::io("open", MANIFEST))?;
    for slot in [first, 1 - first] {
        let at = slot as u64 * slot_bytes(manifest.ranks);
        let written = write_pieces(backend, file, at, &[&bytes]).and_then(|()| backend.sync(file));
        written.map_err(StoreError::io("write", MANIFEST))?;
    }
    backend.close(file);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Bound;

    #[test]
    fn each_step_names_the_file_and_what_is_lost() {
        let (file, what) = ("segment-00000001".to_owned(), "the block's checksum is wrong");
        let (first, last, lane) = (Ssn(5), Ssn(9), Rank(2));
        let block = Block { lane, first, last, records: 5, segment: 1, at: 8192, disk_bytes: 4096, raw_bytes: 200 };
        let loss = Loss { lane, blocks: 1, records: 5, bytes: 200, bound: Bound::Exact };
        let steps = [
            (Repair::Slot { slot: 1 }, "manifest: rewrite slot 1 from the other one; nothing is lost"),
            (
                Repair::Tail { file: file.clone(), at: 4096, len: 12_288 },
                "segment-00000001: remove torn writes from byte 4096 on, and truncate the file to 12288 bytes",
            ),
            (
                Repair::Block { file, block, what },
                "segment-00000001: lost at byte 8192: SSN 5 to SSN 9 of the lane to rank 2 (the block's checksum is wrong)",
            ),
            (
                Repair::Lane { epoch: Epoch(3), lane, upto: Ssn(9) },
                "checkpoint of epoch 3: the lane to rank 2 begins after SSN 9; records up to it are lost",
            ),
            (
                Repair::Checkpoint { epoch: Epoch(3), bytes: 70, what: "it is gone".to_owned() },
                "checkpoint of epoch 3: lost, with the program's state in it (70 bytes; it is gone)",
            ),
            (Repair::LocalLog, "entries of the local log since the lost checkpoint: lost"),
            (Repair::Loss(loss), "lost from the lane to rank 2: 5 records in 1 block, 200 bytes"),
        ];
        for (step, words) in steps {
            assert_eq!(step.to_string(), words);
        }
    }
}

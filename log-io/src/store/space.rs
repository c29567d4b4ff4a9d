//! Disk space: block references, and reclaiming dead blocks.

use std::collections::BTreeSet;

use super::Store;
use crate::format::FIRST_BLOCK;
use crate::format::manifest::slot_bytes;
use crate::format::names::segment_name;
use crate::format::segment::Stored;
use crate::{Access, Block, LOCAL, PAGE_BYTES, StoreError};

/// Minimum adjacent dead bytes to punch, unless an eighth of a segment is less.
const PUNCH_BYTES_MIN: u64 = 64 << 10;

/// Disk usage of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes in segments, checkpoint files, manifest and reserve.
    pub disk_bytes: u64,
    /// Bytes in blocks referenced by the live index or a kept checkpoint.
    pub live_bytes: u64,
    /// Bytes in unreferenced blocks not yet punched.
    pub dead_bytes: u64,
    /// Number of segments.
    pub segments: usize,
    /// Number of kept checkpoints.
    pub checkpoints: usize,
    /// The limit, `disk_bytes_max`.
    pub max_bytes: u64,
}

impl Store {
    /// Returns the disk usage.
    pub fn usage(&self) -> DiskUsage {
        let mut usage = DiskUsage {
            disk_bytes: self.disk_bytes(),
            segments: self.segments.len(),
            checkpoints: self.kept.len(),
            max_bytes: self.options.disk_bytes_max,
            ..DiskUsage::default()
        };
        for segment in self.segments.values() {
            // Blocks are adjacent.
            let blocks = segment.end - FIRST_BLOCK;
            usage.live_bytes += segment.live_bytes;
            usage.dead_bytes += blocks - segment.live_bytes - segment.punched_bytes;
        }
        usage
    }

    fn disk_bytes(&self) -> u64 {
        let segments: u64 = self.segments.values().map(|segment| segment.bytes - segment.punched_bytes).sum();
        let checkpoints: u64 = self.kept.iter().map(|kept| kept.entry.bytes).sum();
        segments + checkpoints + 2 * slot_bytes(self.options.ranks) + self.reserve_bytes
    }

    /// Checks that `needed` more bytes are within the budget; punches dead blocks if necessary.
    pub(super) fn check_budget(&mut self, needed: u64) -> Result<(), StoreError> {
        let max = self.options.disk_bytes_max;
        let exceeds = |store: &Store| store.disk_bytes().saturating_add(needed) > max;
        if exceeds(self) {
            self.punch_all_dead();
        }
        if exceeds(self) { Err(StoreError::Budget { needed, used: self.disk_bytes(), max }) } else { Ok(()) }
    }

    /// Removes the live index's references to these blocks.
    ///
    /// Space without other references is reclaimed eventually. Ignores blocks in the lane [`LOCAL`](crate::LOCAL),
    /// which the store frees itself.
    pub fn free(&mut self, blocks: &[Block]) {
        let of_lanes = blocks.iter().filter(|block| block.lane != LOCAL);
        self.release(of_lanes.map(|block| (block.segment, block.at)), |stored| stored.is_live = false);
    }

    /// Closes a segment for writing.
    pub(super) fn seal(&mut self, number: u32) {
        let segment = self.segments.get_mut(&number).filter(|segment| !segment.is_dirty);
        if let Some(file) = segment.and_then(|segment| segment.file.take()) {
            self.backend.close(file);
        }
        self.reclaim(number);
    }

    /// Changes the references to the blocks at these locations (segment, offset), then reclaims dead blocks, segment by
    /// segment.
    pub(super) fn release(&mut self, places: impl Iterator<Item = (u32, u64)>, change: impl Fn(&mut Stored)) {
        let mut less = BTreeSet::new();
        for (number, at) in places {
            let Some(segment) = self.segments.get_mut(&number) else { continue };
            let before = segment.live_bytes;
            segment.change(at, &change);
            if segment.live_bytes < before {
                less.insert(number);
            }
        }
        less.into_iter().for_each(|number| self.reclaim(number));
    }

    /// Removes a dead segment; punches one that is at least half dead.
    pub(super) fn reclaim(&mut self, number: u32) {
        if self.access == Access::ReadOnly || self.failed.is_some() || self.active == Some(number) {
            return;
        }
        let Some(segment) = self.segments.get(&number) else { return };
        if segment.live_bytes == 0 {
            self.remove_segment(number);
        } else if 2 * segment.live_bytes <= segment.end {
            let least = PUNCH_BYTES_MIN.min((self.options.segment_bytes / 8).next_multiple_of(PAGE_BYTES as u64));
            self.punch(number, least);
        }
    }

    /// Removes a segment.
    ///
    /// It may reappear after a power cut, still unreferenced.
    pub(super) fn remove_segment(&mut self, number: u32) {
        let Some(segment) = self.segments.remove(&number) else { return };
        if let Some(file) = segment.file {
            self.backend.close(file);
        }
        self.reader.remove(number);
        // If this fails, the next opening of the store removes the file.
        let _ = self.backend.remove(&segment_name(number));
    }

    /// Punches all dead blocks.
    ///
    /// Returns `true` if this freed space.
    pub(super) fn punch_all_dead(&mut self) -> bool {
        let numbers: Vec<u32> = self.segments.keys().copied().collect();
        let before = self.disk_bytes();
        for number in numbers {
            self.punch(number, PAGE_BYTES as u64);
        }
        self.disk_bytes() < before
    }

    /// Punches runs of dead blocks with at least `least` bytes.
    fn punch(&mut self, number: u32, least: u64) {
        let Some(segment) = self.segments.get(&number).filter(|_| self.can_punch) else { return };
        let mut runs: Vec<(usize, usize)> = Vec::new();
        // Punched blocks aren't punched again: each run costs a discard, which is slow on some disks.
        let dead = |(_, stored): &(usize, &Stored)| stored.is_dead() && !stored.is_punched;
        for (index, stored) in segment.blocks.iter().enumerate().filter(dead) {
            match runs.last_mut() {
                Some((_, end))
                    if *end == index && segment.blocks[index - 1].at + segment.blocks[index - 1].bytes == stored.at =>
                {
                    *end += 1;
                }
                _ => runs.push((index, index + 1)),
            }
        }
        let blocks = &segment.blocks;
        let bytes = |&(start, end): &(usize, usize)| blocks[end - 1].at + blocks[end - 1].bytes - blocks[start].at;
        runs.retain(|run| bytes(run) >= least);
        let places: Vec<(u64, u64)> = runs.iter().map(|run| (blocks[run.0].at, bytes(run))).collect();
        let was_open = segment.file.is_some();
        if places.is_empty() || self.failed.is_some() {
            return;
        }
        // A write in flight to the same range could complete after the punch.
        if self.flush().is_err() {
            return;
        }
        let file = match self.segments.get(&number).and_then(|segment| segment.file) {
            Some(file) => file,
            None => match self.backend.open(&segment_name(number)) {
                Ok(file) => file,
                Err(_) => return,
            },
        };
        for ((start, end), (at, len)) in runs.into_iter().zip(places) {
            if self.backend.punch(file, at, len).is_err() {
                // The file system doesn't support it; or an error to be reported by the next sync.
                self.can_punch = false;
                break;
            }
            if let Some(segment) = self.segments.get_mut(&number) {
                for stored in &mut segment.blocks[start..end] {
                    segment.punched_bytes += stored.bytes;
                    stored.is_punched = true;
                }
            }
        }
        if !was_open {
            self.backend.close(file);
        }
    }
}

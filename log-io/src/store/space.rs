//! Who needs which bytes of the disk, and giving back those that nobody needs.

use std::collections::BTreeSet;

use super::Store;
use crate::manifest::slot_bytes;
use crate::segment::{FIRST_BLOCK, Stored, segment_name};
use crate::{Access, Block, LOCAL, PAGE_BYTES, StoreError};

/// Dead bytes that lie side by side are given back from here on, or from an eighth of a segment where that is less.
const PUNCH_BYTES_MIN: u64 = 64 << 10;

/// Bytes that a store has on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// All: segments, checkpoint files, manifest and reserve.
    pub disk_bytes: u64,
    /// Blocks that the live index or a kept checkpoint refers to.
    pub live_bytes: u64,
    /// Blocks that nobody refers to, and that were not given back yet.
    pub dead_bytes: u64,
    /// Segments.
    pub segments: usize,
    /// Kept checkpoints.
    pub checkpoints: usize,
    /// The limit, `disk_bytes_max`.
    pub max_bytes: u64,
}

impl Store {
    /// What is on disk.
    pub fn usage(&self) -> DiskUsage {
        let mut usage = DiskUsage {
            disk_bytes: self.disk_bytes(),
            segments: self.segments.len(),
            checkpoints: self.kept.len(),
            max_bytes: self.options.disk_bytes_max,
            ..DiskUsage::default()
        };
        for segment in self.segments.values() {
            // Blocks lie side by side.
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

    /// Whether `needed` more bytes are within the budget, after giving back what can be.
    pub(super) fn check_budget(&mut self, needed: u64) -> Result<(), StoreError> {
        let max = self.options.disk_bytes_max;
        let exceeds = |store: &Store| store.disk_bytes().saturating_add(needed) > max;
        if exceeds(self) {
            self.punch_all_dead();
        }
        if exceeds(self) { Err(StoreError::Budget { needed, used: self.disk_bytes(), max }) } else { Ok(()) }
    }

    /// The live index doesn't refer to these blocks any more. Where no kept checkpoint does, their bytes are given back in
    /// time. Blocks of the lane [`LOCAL`](crate::LOCAL) are the store's own business.
    pub fn free(&mut self, blocks: &[Block]) {
        let of_lanes = blocks.iter().filter(|block| block.lane != LOCAL);
        self.release(of_lanes.map(|block| (block.segment, block.at)), |stored| stored.is_live = false);
    }

    /// A segment isn't written any more.
    pub(super) fn seal(&mut self, number: u32) {
        let segment = self.segments.get_mut(&number).filter(|segment| !segment.is_dirty);
        if let Some(file) = segment.and_then(|segment| segment.file.take()) {
            self.backend.close(file);
        }
        self.reclaim(number);
    }

    /// Changes who needs the blocks at these places (segment, offset); then gives back what nobody does, each segment's
    /// blocks together.
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

    /// Removes a segment that nobody needs; punches one that is at least half dead.
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

    /// Removes a segment. It comes back after a power cut, perhaps: nobody refers to it then, either.
    pub(super) fn remove_segment(&mut self, number: u32) {
        let Some(segment) = self.segments.remove(&number) else { return };
        if let Some(file) = segment.file {
            self.backend.close(file);
        }
        self.reader.remove(number);
        // What can't be removed now is left over, and removed when the store is opened.
        let _ = self.backend.remove(&segment_name(number));
    }

    /// Gives every dead byte back; false where that gave nothing.
    pub(super) fn punch_all_dead(&mut self) -> bool {
        let numbers: Vec<u32> = self.segments.keys().copied().collect();
        let before = self.disk_bytes();
        for number in numbers {
            self.punch(number, PAGE_BYTES as u64);
        }
        self.disk_bytes() < before
    }

    /// Gives back runs of dead blocks with at least `least` bytes.
    fn punch(&mut self, number: u32, least: u64) {
        let Some(segment) = self.segments.get(&number).filter(|_| self.can_punch) else { return };
        let mut runs: Vec<(usize, usize)> = Vec::new();
        // What was given back is left alone: each run of blocks costs a discard, which the disk takes its time for.
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
        // A write to a place that is being punched could come after it.
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
                // A file system that can't, or an error that the next sync reports.
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

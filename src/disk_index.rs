//! Index of each lane's blocks on disk.
//!
//! The log's thread queries and trims it, the store's thread adds blocks, cursors on any thread look blocks up. The
//! message path doesn't use it, so one lock for each lane's short list is enough.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use counterfoil_log_core::{Rank, Ssn};
use counterfoil_log_io::Block;

/// A block with its last valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) block: Block,
    /// The last valid record.
    ///
    /// After a truncation the block's later records are invalid: they are in a later block.
    pub(crate) last: Ssn,
}

/// The last valid records of truncated blocks.
///
/// Usually the next block's first SSN implies it, but not if SSNs between the two were skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Cuts(BTreeMap<(u32, u64), Ssn>);

impl Cuts {
    /// Name of their checkpoint table.
    pub(crate) const TABLE: &str = "counterfoil/cuts";

    pub(crate) fn note(&mut self, extents: &[Extent]) {
        let cut = extents.iter().filter(|extent| extent.last < extent.block.last);
        self.0.extend(cut.map(|extent| ((extent.block.segment, extent.block.at), extent.last)));
    }

    fn last_of(&self, block: &Block) -> Ssn {
        self.0.get(&(block.segment, block.at)).copied().unwrap_or(Ssn::MAX)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Encodes each block's segment, offset and last SSN as little-endian words.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let words = self.0.iter().flat_map(|(&(segment, at), last)| [u64::from(segment), at, last.0]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes the output of [`to_bytes`](Self::to_bytes); `None` for other bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Cuts> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().copied().map(u64::from_le_bytes).collect();
        let (cuts, partial) = words.as_chunks::<3>();
        if !rest.is_empty() || !partial.is_empty() {
            return None;
        }
        let cut = |&[segment, at, last]: &[u64; 3]| Some(((u32::try_from(segment).ok()?, at), Ssn(last)));
        cuts.iter().map(cut).collect::<Option<_>>().map(Cuts)
    }
}

#[derive(Debug)]
pub(crate) struct DiskIndex {
    lanes: Box<[Mutex<Lane>]>,
}

#[derive(Debug, Default)]
struct Lane {
    /// Extents in SSN order, disjoint.
    extents: VecDeque<Extent>,
    /// Last covered SSN: nothing up to it is needed.
    covered: Ssn,
    /// Last SSN up to which all kept records are on disk.
    persisted: Ssn,
    /// Lowest SSN that each open cursor may still read from disk.
    pins: Vec<(u64, Ssn)>,
    next_pin: u64,
    /// The lane is being truncated: no cursor may be opened.
    is_truncating: bool,
}

/// Result of a cursor's lookup on disk.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// Blocks with the records at or above the requested SSN.
    ///
    /// They are not freed until the pin is removed or moved.
    Blocks {
        /// Pin to be removed by the cursor.
        pin: u64,
        extents: Vec<Extent>,
    },
    /// Nothing is kept from the requested SSN up to this one, on disk or elsewhere; later records are in memory.
    NothingUpto(Ssn),
    /// The requested record is not on disk, or no longer.
    ///
    /// Contains the lowest SSN on disk, if there is one.
    Gone(Option<Ssn>),
    /// The lane is being truncated: repeat the lookup.
    Truncating,
}

impl DiskIndex {
    pub(crate) fn new(ranks: u32) -> DiskIndex {
        DiskIndex { lanes: (0..ranks).map(|_| Mutex::default()).collect() }
    }

    /// Locks a lane.
    ///
    /// Ignores poisoning: no operation here leaves the list inconsistent when a thread panics.
    fn lane(&self, lane: Rank) -> MutexGuard<'_, Lane> {
        self.lanes[lane.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends blocks, with which all kept records up to `upto` are on disk.
    ///
    /// Returns the blocks covered before they were written.
    pub(crate) fn push(&self, lane: Rank, blocks: &[Block], upto: Ssn) -> Vec<Block> {
        let mut lane = self.lane(lane);
        lane.push(blocks);
        lane.persisted = upto;
        lane.take_covered()
    }

    /// Restores a lane from a checkpoint.
    ///
    /// If blocks overlap, the later one is valid; records beyond `last` and beyond the ends in `cuts` are invalid.
    /// Returns the blocks without valid records.
    pub(crate) fn restore(&self, lane: Rank, blocks: &[Block], cuts: &Cuts, last: Ssn, covered: Ssn) -> Vec<Block> {
        let mut lane = self.lane(lane);
        lane.push(blocks);
        for extent in &mut lane.extents {
            extent.last = cuts.last_of(&extent.block).min(extent.last);
        }
        (lane.persisted, lane.covered) = (last, covered);
        lane.truncate(last)
    }

    /// Returns a lane's extents, oldest first, and its last covered SSN.
    pub(crate) fn snapshot(&self, lane: Rank) -> (Vec<Extent>, Ssn) {
        let lane = self.lane(lane);
        (lane.extents.iter().copied().collect(), lane.covered)
    }

    /// Returns the lowest SSN on disk, without covered blocks still being read.
    pub(crate) fn kept_from(&self, lane: Rank) -> Option<Ssn> {
        self.lane(lane).kept_from()
    }

    /// Returns the lowest SSN that a cursor may still read from disk.
    pub(crate) fn lowest_pin(&self, lane: Rank) -> Ssn {
        self.lane(lane).lowest_pin()
    }

    /// Returns the last SSN up to which all kept records are on disk.
    pub(crate) fn persisted(&self, lane: Rank) -> Ssn {
        self.lane(lane).persisted
    }

    /// Marks a lane as covered up to `upto`.
    ///
    /// Removes and returns the covered blocks not read by a cursor.
    pub(crate) fn cover(&self, lane: Rank, upto: Ssn) -> Vec<Block> {
        let mut lane = self.lane(lane);
        lane.covered = lane.covered.max(upto);
        lane.take_covered()
    }

    /// Begins to truncate a lane: no cursor can be opened there until [`end_truncate`](Self::end_truncate).
    ///
    /// Returns `false` if a cursor is open.
    pub(crate) fn begin_truncate(&self, lane: Rank) -> bool {
        let mut lane = self.lane(lane);
        lane.is_truncating = lane.pins.is_empty();
        lane.is_truncating
    }

    /// Ends a truncation: removes the records after `last`, or none if `last` is `None`.
    ///
    /// Returns the blocks without other records.
    pub(crate) fn end_truncate(&self, lane: Rank, last: Option<Ssn>) -> Vec<Block> {
        let mut lane = self.lane(lane);
        lane.is_truncating = false;
        let Some(last) = last else { return Vec::new() };
        lane.persisted = lane.persisted.min(last);
        lane.truncate(last)
    }

    /// Looks up the records at or above `from`, none of them in memory, and pins their blocks.
    pub(crate) fn find(&self, lane: Rank, from: Ssn) -> Lookup {
        let mut lane = self.lane(lane);
        if lane.is_truncating {
            return Lookup::Truncating;
        }
        let kept_from = lane.kept_from();
        if kept_from.is_none_or(|first| first > from) || lane.persisted < from {
            return Lookup::Gone(kept_from);
        }
        let start = lane.extents.partition_point(|extent| extent.last < from);
        let extents: Vec<Extent> = lane.extents.range(start..).copied().collect();
        if extents.is_empty() {
            return Lookup::NothingUpto(lane.persisted);
        }
        let pin = lane.next_pin;
        lane.next_pin += 1;
        lane.pins.push((pin, from));
        Lookup::Blocks { pin, extents }
    }

    /// Moves a cursor's pin to `from`.
    pub(crate) fn move_pin(&self, lane: Rank, pin: u64, from: Ssn) {
        if let Some(entry) = self.lane(lane).pins.iter_mut().find(|(id, _)| *id == pin) {
            entry.1 = from;
        }
    }

    /// Removes the pin of a cursor being closed or leaving the disk.
    pub(crate) fn unpin(&self, lane: Rank, pin: u64) {
        self.lane(lane).pins.retain(|(id, _)| *id != pin);
    }

    /// Returns the last covered SSN of each lane with one.
    pub(crate) fn floors(&self) -> Vec<(Rank, Ssn)> {
        let each = self.lanes.iter().zip(0..).map(|(_, rank)| (Rank(rank), self.lane(Rank(rank)).covered));
        each.filter(|(_, covered)| *covered > Ssn::ZERO).collect()
    }
}

impl Lane {
    fn push(&mut self, blocks: &[Block]) {
        for &block in blocks {
            if let Some(back) = self.extents.back_mut() {
                back.last = back.last.min(block.first.prev());
            }
            self.extents.push_back(Extent { block, last: block.last });
        }
    }

    /// Removes and returns the covered blocks not read by a cursor.
    fn take_covered(&mut self) -> Vec<Block> {
        let (covered, pinned) = (self.covered, self.lowest_pin());
        let mut free = Vec::new();
        while let Some(front) = self.extents.front().filter(|front| front.last <= covered && front.last < pinned) {
            free.push(front.block);
            self.extents.pop_front();
        }
        free
    }

    fn kept_from(&self) -> Option<Ssn> {
        let covered = self.extents.partition_point(|extent| extent.last <= self.covered);
        self.extents.get(covered).map(|extent| extent.block.first)
    }

    fn lowest_pin(&self) -> Ssn {
        self.pins.iter().map(|&(_, ssn)| ssn).min().unwrap_or(Ssn::MAX)
    }

    /// Removes the records after `last`; returns the blocks without other records.
    fn truncate(&mut self, last: Ssn) -> Vec<Block> {
        let mut free = Vec::new();
        while let Some(back) = self.extents.back().filter(|back| back.block.first > last) {
            free.push(back.block);
            self.extents.pop_back();
        }
        if let Some(back) = self.extents.back_mut() {
            back.last = back.last.min(last);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Rank = Rank(1);

    fn block(first: u64, last: u64) -> Block {
        Block {
            lane: LANE,
            first: Ssn(first),
            last: Ssn(last),
            records: (last - first + 1) as u32,
            segment: 1,
            at: first * 4096,
            disk_bytes: 4096,
            raw_bytes: 100,
        }
    }

    fn truncate(index: &DiskIndex, last: u64) -> Vec<Block> {
        assert!(index.begin_truncate(LANE));
        index.end_truncate(LANE, Some(Ssn(last)))
    }

    fn lasts(index: &DiskIndex) -> Vec<u64> {
        let Lookup::Blocks { pin, extents } = index.find(LANE, Ssn(1)) else { panic!("no blocks") };
        index.unpin(LANE, pin);
        extents.iter().map(|extent| extent.last.0).collect()
    }

    #[test]
    fn records_written_again_are_read_from_the_later_block() {
        let index = DiskIndex::new(2);
        index.push(LANE, &[block(1, 5), block(6, 9)], Ssn(9));
        assert_eq!(truncate(&index, 3), [block(6, 9)]);
        assert_eq!(index.persisted(LANE), Ssn(3));
        index.push(LANE, &[block(4, 7)], Ssn(7));
        assert_eq!(lasts(&index), [3, 7]);
    }

    #[test]
    fn records_beyond_a_checkpoints_last_message_are_invalid() {
        let index = DiskIndex::new(2);
        let blocks = [block(1, 5), block(6, 9), block(10, 12)];
        let beyond = index.restore(LANE, &blocks, &Cuts::default(), Ssn(3), Ssn::ZERO);
        assert_eq!(beyond, [block(10, 12), block(6, 9)]);
        index.push(LANE, &[block(4, 7)], Ssn(7));
        assert_eq!(lasts(&index), [3, 7]);
    }

    #[test]
    fn a_block_covered_before_it_is_written_is_freed_at_once() {
        let index = DiskIndex::new(2);
        assert_eq!(index.cover(LANE, Ssn(7)), []);
        assert_eq!(index.push(LANE, &[block(1, 5), block(6, 9)], Ssn(9)), [block(1, 5)]);
        assert_eq!(index.kept_from(LANE), Some(Ssn(6)));
    }

    #[test]
    fn a_block_truncated_before_a_gap_stays_truncated() {
        let index = DiskIndex::new(2);
        index.push(LANE, &[block(1, 5)], Ssn(5));
        truncate(&index, 3);
        index.push(LANE, &[block(9, 9)], Ssn(9));
        assert_eq!(lasts(&index), [3, 9]);
        let mut cuts = Cuts::default();
        cuts.note(&index.snapshot(LANE).0);
        let cuts = Cuts::from_bytes(&cuts.to_bytes()).unwrap();
        let restored = DiskIndex::new(2);
        restored.restore(LANE, &[block(1, 5), block(9, 9)], &cuts, Ssn(9), Ssn::ZERO);
        assert_eq!(lasts(&restored), [3, 9]);
        assert_eq!(Cuts::from_bytes(&[0; 23]), None);
    }

    #[test]
    fn a_block_is_freed_when_its_cursor_has_moved_on() {
        let index = DiskIndex::new(2);
        index.push(LANE, &[block(1, 5), block(6, 9), block(10, 12)], Ssn(12));
        let Lookup::Blocks { pin, extents } = index.find(LANE, Ssn(4)) else { panic!("blocks are expected") };
        assert_eq!(extents.len(), 3);
        assert_eq!(index.cover(LANE, Ssn(9)), []);
        assert!(!index.begin_truncate(LANE), "a cursor is open");
        index.move_pin(LANE, pin, Ssn(8));
        assert_eq!(index.cover(LANE, Ssn(9)), [block(1, 5)]);
        index.unpin(LANE, pin);
        assert_eq!(index.cover(LANE, Ssn(9)), [block(6, 9)]);
        assert!(matches!(index.find(LANE, Ssn(4)), Lookup::Gone(Some(Ssn(10)))), "freed");
        assert!(matches!(index.find(LANE, Ssn(13)), Lookup::Gone(Some(Ssn(10)))), "never written");
        assert_eq!(index.kept_from(LANE), Some(Ssn(10)));
    }

    #[test]
    fn a_cursor_waits_while_the_lane_is_truncated() {
        let index = DiskIndex::new(2);
        index.push(LANE, &[block(1, 5)], Ssn(7));
        assert!(index.begin_truncate(LANE));
        assert!(matches!(index.find(LANE, Ssn(4)), Lookup::Truncating));
        assert_eq!(index.end_truncate(LANE, None), []);
        assert!(matches!(index.find(LANE, Ssn(6)), Lookup::NothingUpto(Ssn(7))));
    }
}

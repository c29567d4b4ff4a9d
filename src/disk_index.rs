//! Which records of which lane are on disk, and in which blocks.
//!
//! The log's thread asks and trims; the thread that writes the store adds; cursors on any thread look blocks up. It is off
//! the path of a message, so one lock over a lane's short list does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use counterfoil_log_core::{Rank, Ssn};
use counterfoil_log_io::Block;

/// A block, and how far it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) block: Block,
    /// The last record that counts: the lane was cut behind it, and what follows is in a later block.
    pub(crate) last: Ssn,
}

/// How far blocks count that were cut.
///
/// A block that follows says how far the one before it counts; except where the messages between the two were left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Cuts(BTreeMap<(u32, u64), Ssn>);

impl Cuts {
    /// The name of the table that a checkpoint has them in.
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

    /// Segment, place and last SSN of each, little-endian words.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let words = self.0.iter().flat_map(|(&(segment, at), last)| [u64::from(segment), at, last.0]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// `None` where that isn't what [`to_bytes`](Self::to_bytes) made.
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

/// The blocks of all lanes.
#[derive(Debug)]
pub(crate) struct DiskIndex {
    lanes: Box<[Mutex<Lane>]>,
}

#[derive(Debug, Default)]
struct Lane {
    /// In SSN order, disjoint.
    extents: VecDeque<Extent>,
    /// Up to here nothing is needed.
    covered: Ssn,
    /// Up to here everything that is kept is on disk.
    persisted: Ssn,
    /// The lowest SSN that each open cursor may still read from disk.
    pins: Vec<(u64, Ssn)>,
    next_pin: u64,
    /// The lane is being cut: no cursor may begin.
    is_cut: bool,
}

/// What a cursor that looks for its place finds on disk.
#[derive(Debug)]
pub(crate) enum Place {
    /// These blocks have what is at or above it. They are not freed before the pin is taken off or moved.
    Blocks {
        /// To be given back.
        pin: u64,
        /// The blocks.
        extents: Vec<Extent>,
    },
    /// Nothing is kept from there up to this SSN, on disk or elsewhere; what comes behind it is in memory.
    NothingUpto(Ssn),
    /// It isn't on disk, or not any more. The lowest SSN that is, if any is.
    Gone(Option<Ssn>),
    /// The lane is being cut: it is to be looked for again.
    Cut,
}

impl DiskIndex {
    pub(crate) fn new(ranks: u32) -> DiskIndex {
        DiskIndex { lanes: (0..ranks).map(|_| Mutex::default()).collect() }
    }

    /// What a panic of another thread left is still a list of blocks: nothing in here is ever half done.
    fn lane(&self, lane: Rank) -> MutexGuard<'_, Lane> {
        self.lanes[lane.index()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that is kept up to `upto` is on disk now, with these blocks behind those that are there. Returns blocks that
    /// became superfluous before they were written.
    pub(crate) fn push(&self, lane: Rank, blocks: &[Block], upto: Ssn) -> Vec<Block> {
        let mut lane = self.lane(lane);
        lane.push(blocks);
        lane.persisted = upto;
        lane.take_superfluous()
    }

    /// Takes up a lane as a checkpoint has it. Of blocks that overlap the later one counts, none beyond `last`, and those that
    /// are in `cuts` no further than it says. Returns the blocks that have nothing else.
    pub(crate) fn restore(&self, lane: Rank, blocks: &[Block], cuts: &Cuts, last: Ssn, covered: Ssn) -> Vec<Block> {
        let mut lane = self.lane(lane);
        lane.push(blocks);
        for extent in &mut lane.extents {
            extent.last = cuts.last_of(&extent.block).min(extent.last);
        }
        (lane.persisted, lane.covered) = (last, covered);
        lane.cut(last)
    }

    /// All blocks of a lane, oldest first, and what is covered.
    pub(crate) fn whole(&self, lane: Rank) -> (Vec<Extent>, Ssn) {
        let lane = self.lane(lane);
        (lane.extents.iter().copied().collect(), lane.covered)
    }

    /// The lowest SSN on disk, but for blocks that are superfluous and still read.
    pub(crate) fn kept_from(&self, lane: Rank) -> Option<Ssn> {
        self.lane(lane).kept_from()
    }

    /// The lowest SSN that a cursor may still read from disk.
    pub(crate) fn lowest_pin(&self, lane: Rank) -> Ssn {
        self.lane(lane).lowest_pin()
    }

    /// Up to here everything that is kept is on disk.
    pub(crate) fn persisted(&self, lane: Rank) -> Ssn {
        self.lane(lane).persisted
    }

    /// The lane isn't needed up to `upto` any more: returns the blocks that nobody reads, which are not in the index now.
    pub(crate) fn cover(&self, lane: Rank, upto: Ssn) -> Vec<Block> {
        let mut lane = self.lane(lane);
        lane.covered = lane.covered.max(upto);
        lane.take_superfluous()
    }

    /// Begins to cut a lane, which keeps cursors from beginning there until [`end_cut`](Self::end_cut); false where a cursor
    /// is there.
    pub(crate) fn begin_cut(&self, lane: Rank) -> bool {
        let mut lane = self.lane(lane);
        lane.is_cut = lane.pins.is_empty();
        lane.is_cut
    }

    /// Forgets the records after `last`, if some are to be forgotten: returns the blocks that had no others.
    pub(crate) fn end_cut(&self, lane: Rank, last: Option<Ssn>) -> Vec<Block> {
        let mut lane = self.lane(lane);
        lane.is_cut = false;
        let Some(last) = last else { return Vec::new() };
        lane.persisted = lane.persisted.min(last);
        lane.cut(last)
    }

    /// Looks for the records at or above `from`, which are not in memory, and keeps their blocks from being freed.
    pub(crate) fn find(&self, lane: Rank, from: Ssn) -> Place {
        let mut lane = self.lane(lane);
        if lane.is_cut {
            return Place::Cut;
        }
        let kept_from = lane.kept_from();
        if kept_from.is_none_or(|first| first > from) || lane.persisted < from {
            return Place::Gone(kept_from);
        }
        let start = lane.extents.partition_point(|extent| extent.last < from);
        let extents: Vec<Extent> = lane.extents.range(start..).copied().collect();
        if extents.is_empty() {
            return Place::NothingUpto(lane.persisted);
        }
        let pin = lane.next_pin;
        lane.next_pin += 1;
        lane.pins.push((pin, from));
        Place::Blocks { pin, extents }
    }

    /// A cursor went on to `from`.
    pub(crate) fn move_pin(&self, lane: Rank, pin: u64, from: Ssn) {
        if let Some(entry) = self.lane(lane).pins.iter_mut().find(|(id, _)| *id == pin) {
            entry.1 = from;
        }
    }

    /// A cursor is closed, or has left the disk.
    pub(crate) fn unpin(&self, lane: Rank, pin: u64) {
        self.lane(lane).pins.retain(|(id, _)| *id != pin);
    }

    /// What is covered in each lane that has anything on disk.
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

    /// Takes the blocks out that are covered, and that nobody reads.
    fn take_superfluous(&mut self) -> Vec<Block> {
        let (covered, pinned) = (self.covered, self.lowest_pin());
        let mut free = Vec::new();
        while let Some(front) = self.extents.front().filter(|front| front.last <= covered && front.last < pinned) {
            free.push(front.block);
            self.extents.pop_front();
        }
        free
    }

    fn kept_from(&self) -> Option<Ssn> {
        let superfluous = self.extents.partition_point(|extent| extent.last <= self.covered);
        self.extents.get(superfluous).map(|extent| extent.block.first)
    }

    fn lowest_pin(&self) -> Ssn {
        self.pins.iter().map(|&(_, ssn)| ssn).min().unwrap_or(Ssn::MAX)
    }

    /// Forgets the records after `last`: returns the blocks that had no others.
    fn cut(&mut self, last: Ssn) -> Vec<Block> {
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

    fn cut(index: &DiskIndex, last: u64) -> Vec<Block> {
        assert!(index.begin_cut(LANE));
        index.end_cut(LANE, Some(Ssn(last)))
    }

    fn lasts(index: &DiskIndex) -> Vec<u64> {
        let Place::Blocks { pin, extents } = index.find(LANE, Ssn(1)) else { panic!("nothing is there") };
        index.unpin(LANE, pin);
        extents.iter().map(|extent| extent.last.0).collect()
    }

    #[test]
    fn what_was_written_again_counts_from_the_later_block() {
        let index = DiskIndex::new(2);
        index.push(LANE, &[block(1, 5), block(6, 9)], Ssn(9));
        assert_eq!(cut(&index, 3), [block(6, 9)]);
        assert_eq!(index.persisted(LANE), Ssn(3));
        index.push(LANE, &[block(4, 7)], Ssn(7));
        assert_eq!(lasts(&index), [3, 7]);
    }

    #[test]
    fn what_a_checkpoint_has_beyond_its_last_message_does_not_count() {
        let index = DiskIndex::new(2);
        let blocks = [block(1, 5), block(6, 9), block(10, 12)];
        let beyond = index.restore(LANE, &blocks, &Cuts::default(), Ssn(3), Ssn::ZERO);
        assert_eq!(beyond, [block(10, 12), block(6, 9)]);
        index.push(LANE, &[block(4, 7)], Ssn(7));
        assert_eq!(lasts(&index), [3, 7]);
    }

    #[test]
    fn what_is_covered_before_it_is_written_is_freed_when_it_is() {
        let index = DiskIndex::new(2);
        assert_eq!(index.cover(LANE, Ssn(7)), []);
        assert_eq!(index.push(LANE, &[block(1, 5), block(6, 9)], Ssn(9)), [block(1, 5)]);
        assert_eq!(index.kept_from(LANE), Some(Ssn(6)));
    }

    #[test]
    fn a_block_that_was_cut_before_a_gap_stays_cut() {
        let index = DiskIndex::new(2);
        index.push(LANE, &[block(1, 5)], Ssn(5));
        cut(&index, 3);
        index.push(LANE, &[block(9, 9)], Ssn(9));
        assert_eq!(lasts(&index), [3, 9]);
        let mut cuts = Cuts::default();
        cuts.note(&index.whole(LANE).0);
        let cuts = Cuts::from_bytes(&cuts.to_bytes()).unwrap();
        let again = DiskIndex::new(2);
        again.restore(LANE, &[block(1, 5), block(9, 9)], &cuts, Ssn(9), Ssn::ZERO);
        assert_eq!(lasts(&again), [3, 9]);
        assert_eq!(Cuts::from_bytes(&[0; 23]), None);
    }

    #[test]
    fn a_block_that_a_cursor_reads_is_freed_when_it_has_gone_on() {
        let index = DiskIndex::new(2);
        index.push(LANE, &[block(1, 5), block(6, 9), block(10, 12)], Ssn(12));
        let Place::Blocks { pin, extents } = index.find(LANE, Ssn(4)) else { panic!("it is there") };
        assert_eq!(extents.len(), 3);
        assert_eq!(index.cover(LANE, Ssn(9)), []);
        assert!(!index.begin_cut(LANE), "a cursor is there");
        index.move_pin(LANE, pin, Ssn(8));
        assert_eq!(index.cover(LANE, Ssn(9)), [block(1, 5)]);
        index.unpin(LANE, pin);
        assert_eq!(index.cover(LANE, Ssn(9)), [block(6, 9)]);
        assert!(matches!(index.find(LANE, Ssn(4)), Place::Gone(Some(Ssn(10)))), "it is gone");
        assert!(matches!(index.find(LANE, Ssn(13)), Place::Gone(Some(Ssn(10)))), "it never was");
        assert_eq!(index.kept_from(LANE), Some(Ssn(10)));
    }

    #[test]
    fn a_cursor_that_comes_while_the_lane_is_cut_waits() {
        let index = DiskIndex::new(2);
        index.push(LANE, &[block(1, 5)], Ssn(7));
        assert!(index.begin_cut(LANE));
        assert!(matches!(index.find(LANE, Ssn(4)), Place::Cut));
        assert_eq!(index.end_cut(LANE, None), []);
        assert!(matches!(index.find(LANE, Ssn(6)), Place::NothingUpto(Ssn(7))));
    }
}

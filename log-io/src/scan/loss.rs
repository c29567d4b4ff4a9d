//! Records lost in a repair.

use std::collections::BTreeMap;
use std::fmt;

use counterfoil_log_core::{Disposition, Rank, Ssn};

use super::{Report, Scan};
use crate::{Block, LOCAL, LaneImage};

/// Records lost from a lane in a repair, in all checkpoints together: no recovery can replay them any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The lane; [`LOCAL`](crate::LOCAL) for the local log.
    pub lane: Rank,
    /// Number of blocks with lost records.
    pub blocks: u64,
    /// Number of lost records above the covered SSN.
    pub records: u64,
    /// Size of all records in these blocks in bytes, uncompressed, with a header of 16 or 24 bytes each.
    pub bytes: u64,
    /// Precision of `records`.
    pub bound: Bound,
}

/// Precision of the number of lost records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// The exact number.
    Exact,
    /// An upper bound: the blocks may include records not needed for recovery.
    AtMost,
    /// The number in the listed blocks: the store has more blocks than a report lists.
    Listed,
}

impl Bound {
    /// Returns the words to put before the number; empty for an exact one.
    pub fn qualifier(self) -> &'static str {
        match self {
            Bound::Exact => "",
            Bound::AtMost => "at most ",
            Bound::Listed => "among the first 65,536 blocks, ",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { lane, blocks, records, bytes, bound } = *self;
        let of = if lane == LOCAL { "the local log".to_owned() } else { format!("the lane to {lane}") };
        let plural = |number: u64| if number == 1 { "" } else { "s" };
        let (s, of_blocks) = (plural(records), plural(blocks));
        write!(
            f,
            "lost from {of}: {}{records} record{s} in {blocks} block{of_blocks}, {bytes} bytes",
            bound.qualifier()
        )
    }
}

/// Returns `true` if a recovery needs every record in the block, because none was released.
fn is_needed(lane: &LaneImage, block: &Block) -> bool {
    let mut ssn = block.first;
    while ssn <= block.last.min(lane.acked) {
        let run = lane.runs.get(lane.runs.partition_point(|run| run.last < ssn)).filter(|run| run.first <= ssn);
        match run {
            Some(run) if matches!(run.disposition, Disposition::Retain { .. }) => ssn = run.last.next(),
            _ => return false,
        }
    }
    true
}

/// The lost blocks.
///
/// Each counts once, even if several checkpoints refer to it.
#[derive(Debug, Default)]
pub(super) struct LossTally {
    /// Records, bytes, and `true` for an exact record count; by lane, segment and offset.
    blocks: BTreeMap<(Rank, u32, u64), (u64, u64, bool)>,
}

impl LossTally {
    /// Adds the blocks lost from a checkpoint's lane.
    ///
    /// Recoveries don't need records up to `covered`.
    pub(super) fn cut(&mut self, lane: &LaneImage, covered: Ssn, gone: &[Block]) {
        for (index, block) in gone.iter().enumerate().filter(|(_, block)| block.last > covered) {
            let all = u64::from(block.records);
            let is_whole = block.first > covered;
            let records = if is_whole { all } else { all.min(block.last.0 - covered.0) };
            // An overlapping later block has records with the same SSNs.
            let next = gone.get(index + 1).or(lane.blocks.first());
            let is_alone = next.is_none_or(|next| next.first > block.last);
            self.add(lane.peer, block, records, is_whole && is_alone && is_needed(lane, block));
        }
    }

    /// Adds the blocks referenced only by a lost checkpoint.
    ///
    /// The records that it needed are unknown.
    pub(super) fn unreferenced(&mut self, scan: &Scan, is_newest: bool) {
        let from = scan.manifest.as_ref().map_or(0, |manifest| manifest.tail_session);
        for segment in &scan.report.segments {
            let has_local = is_newest && segment.session.as_ref().is_ok_and(|session| *session >= from);
            let gone = segment.blocks.iter().filter(|of| !of.is_referenced && of.damage.is_none());
            for of in gone.filter(|of| of.block.lane != LOCAL || has_local) {
                self.add(of.block.lane, &of.block, of.block.records.into(), false);
            }
        }
    }

    fn add(&mut self, lane: Rank, block: &Block, records: u64, is_exact: bool) {
        let (most, _, exact) =
            self.blocks.entry((lane, block.segment, block.at)).or_insert((0, block.raw_bytes, is_exact));
        *most = (*most).max(records);
        *exact &= is_exact;
    }

    /// Returns the sums, by lane.
    pub(super) fn sums(&self, report: &Report) -> Vec<Loss> {
        let mut sums: Vec<Loss> = Vec::new();
        for (&(lane, ..), &(records, bytes, is_exact)) in &self.blocks {
            if sums.last().is_none_or(|sum| sum.lane != lane) {
                sums.push(Loss { lane, blocks: 0, records: 0, bytes: 0, bound: Bound::Exact });
            }
            let Some(sum) = sums.last_mut() else { continue };
            sum.blocks += 1;
            sum.records += records;
            sum.bytes += bytes;
            if !is_exact {
                // A report omits only blocks without references from checkpoints.
                let is_listed = report.blocks_left_out == 0;
                sum.bound = sum.bound.max(if is_listed { Bound::AtMost } else { Bound::Listed });
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_names_the_lane_and_says_how_precise_its_number_is() {
        let loss = |lane, blocks, records, bound| Loss { lane, blocks, records, bytes: 90, bound }.to_string();
        assert_eq!(loss(Rank(3), 2, 1, Bound::Exact), "lost from the lane to rank 3: 1 record in 2 blocks, 90 bytes");
        assert_eq!(loss(LOCAL, 1, 4, Bound::AtMost), "lost from the local log: at most 4 records in 1 block, 90 bytes");
        let listed = "lost from the lane to rank 0: among the first 65,536 blocks, 2 records in 1 block, 90 bytes";
        assert_eq!(loss(Rank(0), 1, 2, Bound::Listed), listed);
    }

    fn block(first: u64, last: u64, records: u32) -> Block {
        let (first, last) = (Ssn(first), Ssn(last));
        Block { lane: Rank(1), first, last, records, segment: 1, at: first.0 << 12, disk_bytes: 4096, raw_bytes: 100 }
    }

    /// Returns the number and precision of the records in the blocks that a lane loses, none of them released.
    fn lost(covered: u64, gone: &[Block], left: &[Block]) -> Vec<(u64, bool)> {
        let blocks = left.to_vec();
        let (next, acked, runs) = (Ssn(100), Ssn::ZERO, Vec::new());
        let lane = LaneImage { peer: Rank(1), next, acked, covered: Ssn::ZERO, runs, blocks };
        let mut tally = LossTally::default();
        tally.cut(&lane, Ssn(covered), gone);
        tally.blocks.into_values().map(|(records, _, is_exact)| (records, is_exact)).collect()
    }

    #[test]
    fn records_above_the_covered_ssn_are_lost_exactly_if_the_block_is_whole_and_no_later_one_overlaps() {
        assert_eq!(lost(4, &[block(5, 9, 5)], &[]), [(5, true)]);
        assert_eq!(lost(5, &[block(5, 9, 5)], &[]), [(4, false)]);
        assert_eq!(lost(9, &[block(5, 9, 5)], &[]), []);
        assert_eq!(lost(0, &[block(1, 4, 4), block(5, 9, 5)], &[]), [(4, true), (5, true)]);
        assert_eq!(lost(0, &[block(1, 5, 5), block(5, 9, 5)], &[]), [(5, false), (5, true)]);
        assert_eq!(lost(0, &[block(1, 5, 5)], &[block(6, 9, 4)]), [(5, true)]);
        assert_eq!(lost(0, &[block(1, 6, 6)], &[block(6, 9, 4)]), [(6, false)]);
    }

    #[test]
    fn a_block_of_several_checkpoints_counts_once_and_exactly_if_all_say_so() {
        for (verdicts, is_exact) in [([true, true], true), ([true, false], false), ([false, true], false)] {
            let mut tally = LossTally::default();
            for (records, is_exact) in [3, 5].into_iter().zip(verdicts) {
                tally.add(Rank(1), &block(1, 5, 5), records, is_exact);
            }
            assert_eq!(tally.blocks.into_values().collect::<Vec<_>>(), [(5, 100, is_exact)]);
        }
    }
}

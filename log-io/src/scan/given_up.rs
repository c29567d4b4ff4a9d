//! How much a repair gives up.

use std::collections::BTreeMap;
use std::fmt;

use counterfoil_log_core::{Disposition, Rank, Ssn};

use super::{Report, Scan};
use crate::{Block, LOCAL, LaneImage};

/// What a repair gives up of a lane, in all checkpoints together: no recovery can replay it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenUp {
    /// The lane; [`LOCAL`](crate::LOCAL) for the local log.
    pub lane: Rank,
    /// Blocks that have some of it.
    pub blocks: u64,
    /// Records, beyond what was covered.
    pub records: u64,
    /// Bytes of the records of these blocks, uncompressed, with 16 or 24 bytes of header each.
    pub bytes: u64,
    /// How sure this is.
    pub bound: Bound,
}

/// How a count relates to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// So many.
    Exact,
    /// No more: the blocks may have records among them that nobody needed.
    AtMost,
    /// The store has more blocks than a report lists, so there may be more.
    Listed,
}

impl Bound {
    /// In words, in front of a number; empty where it is exact.
    pub fn words(self) -> &'static str {
        match self {
            Bound::Exact => "",
            Bound::AtMost => "at most ",
            Bound::Listed => "among the first 65,536 blocks, ",
        }
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GivenUp { lane, blocks, records, bytes, bound } = *self;
        let of = if lane == LOCAL { "the local log".to_owned() } else { format!("the lane to {lane}") };
        let plural = |number: u64| if number == 1 { "" } else { "s" };
        let (s, of_blocks) = (plural(records), plural(blocks));
        write!(f, "given up of {of}: {}{records} record{s} in {blocks} block{of_blocks}, {bytes} bytes", bound.words())
    }
}

/// Whether a recovery needed every record of the block: none of them was released.
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

/// What is given up, as it is found: each block counts once, whatever checkpoints refer to it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By lane, segment and place: records, bytes, and whether the number of records is that.
    blocks: BTreeMap<(Rank, u32, u64), (u64, u64, bool)>,
}

impl Tally {
    /// A lane of a checkpoint is cut: these are its blocks that go, and up to `covered` nobody needed it.
    pub(super) fn cut(&mut self, lane: &LaneImage, covered: Ssn, gone: &[Block]) {
        for (index, block) in gone.iter().enumerate().filter(|(_, block)| block.last > covered) {
            let all = u64::from(block.records);
            let is_whole = block.first > covered;
            let records = if is_whole { all } else { all.min(block.last.0 - covered.0) };
            // A later block that overlaps has records of the same numbers.
            let next = gone.get(index + 1).or(lane.blocks.first());
            let is_alone = next.is_none_or(|next| next.first > block.last);
            self.add(lane.peer, block, records, is_whole && is_alone && is_needed(lane, block));
        }
    }

    /// A checkpoint doesn't count any more: what no other one refers to goes with it. How much of that it needed, only it knew.
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

    /// The sums, by lane.
    pub(super) fn sums(&self, report: &Report) -> Vec<GivenUp> {
        let mut sums: Vec<GivenUp> = Vec::new();
        for (&(lane, ..), &(records, bytes, is_exact)) in &self.blocks {
            if sums.last().is_none_or(|sum| sum.lane != lane) {
                sums.push(GivenUp { lane, blocks: 0, records: 0, bytes: 0, bound: Bound::Exact });
            }
            let Some(sum) = sums.last_mut() else { continue };
            sum.blocks += 1;
            sum.records += records;
            sum.bytes += bytes;
            if !is_exact {
                // Only what no checkpoint refers to is left out of a report.
                let is_listed = report.blocks_left_out == 0;
                sum.bound = sum.bound.max(if is_listed { Bound::AtMost } else { Bound::Listed });
            }
        }
        sums
    }
}

//! Segment inspection.

use super::{BlockReport, SegmentReport, Tail};
use crate::format::block::BlockHeader;
use crate::format::checkpoint_file;
use crate::format::names::segment_name;
use crate::format::segment::{Found, SegmentHeader, SegmentWalk};
use crate::format::{BLOCK_BYTES_MAX, FIRST_BLOCK, HEADER_BYTES};
use crate::{Block, BlockBuffer, PAGE_BYTES, ReadAt, StoreError};

/// Maximum torn ranges listed in a segment's report.
const PLACES_MAX: usize = 1 << 10;

/// Verifies a segment: the blocks referenced by checkpoints, and the blocks found between and after them.
///
/// `generation` is the one named by the checkpoints.
pub(super) fn scan_segment(
    (number, generation): (u32, Option<u64>),
    file: Option<&dyn ReadAt>,
    bytes: u64,
    referenced: &[Block],
    list: &mut BlockList<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<SegmentReport, StoreError> {
    let covered = referenced.iter().map(|block| block.at + block.disk_bytes).max().unwrap_or(0);
    let mut report = SegmentReport {
        file: segment_name(number),
        bytes,
        session: Ok(0),
        covered,
        blocks: Vec::new(),
        tail: Tail::Clean,
        end: FIRST_BLOCK,
        torn: Vec::new(),
    };
    let header = match file.map(|file| SegmentHeader::read(file, number)) {
        Some(Ok(header)) if generation.is_none_or(|generation| header.generation.get() == generation) => header,
        Some(Err(error @ StoreError::Io { .. })) => return Err(error),
        lost => {
            // Without the generation in the header, blocks can't be told from an earlier use of the disk.
            report.session = Err(match lost {
                Some(Ok(_)) => "it isn't the segment that the checkpoint refers to".to_owned(),
                Some(Err(error)) => error.finding(),
                None => "it isn't there".to_owned(),
            });
            for block in referenced {
                list.push(*block, true, Some("the segment's header is lost"));
            }
            report.tail = if referenced.is_empty() { Tail::Torn { at: 0 } } else { Tail::Damaged { at: 0 } };
            report.blocks = std::mem::take(&mut list.blocks);
            return Ok(report);
        }
    };
    report.session = Ok(header.session.get());
    let Some(file) = file else { return Ok(report) };
    let mut buffer = BlockBuffer::default();
    let mut at = FIRST_BLOCK;
    for block in referenced {
        // Blocks between referenced ones are dead, whole or partly punched; this isn't damage.
        scan_gap(file, header, (at, block.at), &mut buffer, list, progress)?;
        let damage = match verify(file, &report.file, &header, block.at, block.disk_bytes, &mut buffer)? {
            Ok(found) if found.block() == *block => None,
            Ok(_) => Some("it isn't the block that the checkpoint refers to"),
            Err(what) => Some(what),
        };
        if damage.is_none() {
            report.end = report.end.max(block.at + block.disk_bytes);
        } else if !matches!(report.tail, Tail::Damaged { .. }) {
            report.tail = Tail::Damaged { at: block.at };
        }
        list.push(*block, true, damage);
        at = at.max(block.at + block.disk_bytes);
        progress(at);
    }
    let (end, torn) = scan_gap(file, header, (at, u64::MAX), &mut buffer, list, progress)?;
    report.end = report.end.max(end);
    if let (Tail::Clean, Some(&(at, _))) = (report.tail, torn.first()) {
        report.tail = Tail::Torn { at };
    }
    report.torn = torn;
    report.blocks = std::mem::take(&mut list.blocks);
    Ok(report)
}

/// Searches a range for blocks.
///
/// Returns the end of the last whole block, and the ranges with neither blocks nor zeros.
fn scan_gap(
    file: &dyn ReadAt,
    header: SegmentHeader,
    (from, to): (u64, u64),
    buffer: &mut BlockBuffer,
    list: &mut BlockList<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<(u64, Vec<(u64, u64)>), StoreError> {
    let name = segment_name(header.segment.get());
    let (mut end, mut torn) = (0, Vec::new());
    let mut walk = SegmentWalk::new(file, header, from)?;
    walk.limit_to(from, to);
    while let Some(found) = walk.next()? {
        match found {
            Found::Block(block) => {
                let (at, bytes) = (block.at.get(), block.disk_bytes());
                match verify(file, &name, &header, at, bytes, buffer)? {
                    Ok(_) => {
                        list.push(block.block(), false, None);
                        end = at + bytes;
                    }
                    Err(what) => {
                        list.push(block.block(), false, Some(what));
                        push_torn(&mut torn, at, bytes);
                    }
                }
                progress(at + bytes);
            }
            Found::Unknown { at, .. } => push_torn(&mut torn, at, PAGE_BYTES as u64),
        }
    }
    Ok((end, torn))
}

fn push_torn(torn: &mut Vec<(u64, u64)>, at: u64, bytes: u64) {
    if let Some((_, len)) = torn.last_mut().filter(|(from, len)| from + len == at) {
        *len += bytes;
    } else if torn.len() < PLACES_MAX {
        torn.push((at, bytes));
    }
}

/// Reads and verifies a block.
///
/// For a block larger than the limit, verifies only the checksum, without holding it in memory.
fn verify(
    file: &dyn ReadAt,
    name: &str,
    header: &SegmentHeader,
    at: u64,
    bytes: u64,
    buffer: &mut BlockBuffer,
) -> Result<Result<BlockHeader, &'static str>, StoreError> {
    let (generation, segment) = (header.generation.get(), header.segment.get());
    let what = |error| match error {
        StoreError::Damaged { what, .. } => Ok(Err(what)),
        error => Err(error),
    };
    if bytes <= (BLOCK_BYTES_MAX + PAGE_BYTES) as u64 {
        return match buffer.read(file, name, generation, (segment, at, bytes)) {
            Ok(()) => Ok(buffer.header().ok_or("the block can't be read")),
            Err(error) => what(error),
        };
    }
    let mut page = [0; HEADER_BYTES];
    if let Err(error) = file.read_at(at, &mut page).map_err(StoreError::read(name, at)) {
        return what(error);
    }
    let block = match BlockHeader::parse(&page, generation, segment, at, bytes) {
        Ok(block) => block,
        Err(what) => return Ok(Err(what)),
    };
    let stored = at + page.len() as u64;
    match checkpoint_file::checksum(file, stored, block.stored_bytes.get()).map_err(StoreError::read(name, stored)) {
        Ok(crc) if block.is_unchecked() || crc == block.stored_crc.get() => Ok(Ok(block)),
        Ok(_) => Ok(Err("the block's checksum is wrong")),
        Err(error) => what(error),
    }
}

/// The blocks in a segment report, limited by the space in the report.
pub(super) struct BlockList<'a> {
    pub(super) blocks: Vec<BlockReport>,
    pub(super) room: &'a mut usize,
    pub(super) left_out: &'a mut u64,
}

impl BlockList<'_> {
    fn push(&mut self, block: Block, is_referenced: bool, damage: Option<&'static str>) {
        // Damaged blocks are always listed: they are no more than checkpoints refer to.
        if *self.room > 0 || (is_referenced && damage.is_some()) {
            *self.room = self.room.saturating_sub(1);
            self.blocks.push(BlockReport { block, is_referenced, damage });
        } else {
            *self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use counterfoil_log_core::{Rank, Ssn};

    use super::*;

    #[test]
    fn a_full_list_leaves_out_all_but_damaged_blocks_of_checkpoints() {
        let block = |at: u64| {
            let (first, last) = (Ssn(1), Ssn(1));
            Block { lane: Rank(0), first, last, records: 1, segment: 1, at, disk_bytes: 4096, raw_bytes: 24 }
        };
        let (mut room, mut left_out) = (2, 3);
        let mut list = BlockList { blocks: Vec::new(), room: &mut room, left_out: &mut left_out };
        let damage = Some("it is damaged");
        let pushes = [(true, None), (false, None), (true, damage), (false, damage), (true, None), (true, damage)];
        for (at, (is_referenced, damage)) in (0..).zip(pushes) {
            list.push(block(at), is_referenced, damage);
        }
        let listed: Vec<u64> = list.blocks.iter().map(|of| of.block.at).collect();
        assert_eq!((listed, room, left_out), (vec![0, 1, 2, 5], 0, 5));
    }

    #[test]
    fn adjacent_torn_ranges_are_one_and_a_report_lists_so_many() {
        let mut torn = Vec::new();
        for (at, bytes) in [(4096, 4096), (8192, 8192), (20_480, 4096), (24_576, 4096)] {
            push_torn(&mut torn, at, bytes);
        }
        assert_eq!(torn, [(4096, 12_288), (20_480, 8192)]);
        for at in (1..2000).map(|page| page * 2 * 4096 + (1 << 20)) {
            push_torn(&mut torn, at, 4096);
        }
        assert_eq!(torn.len(), PLACES_MAX);
        // The last one still grows.
        let (at, bytes) = torn[PLACES_MAX - 1];
        push_torn(&mut torn, at + bytes, 4096);
        assert_eq!(torn[PLACES_MAX - 1], (at, bytes + 4096));
    }
}

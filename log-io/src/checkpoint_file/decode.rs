//! Decoding of checkpoint files.

use std::collections::BTreeSet;
use std::io;

use counterfoil_log_core::{Disposition, Epoch, Phase, Rank, Run, Ssn, crc32c, crc32c_append};
use zerocopy::FromBytes;

use super::{
    BlockEntry, CHECKPOINT_HEADER_BYTES, Context, CoveredSegment, Header, LaneEntry, LocalEntry, MAGIC, PART_DAMAGED,
    PARTS, RunEntry, SegmentEntry, TableEntry, Written, checkpoint_name,
};
use crate::block::FORMAT_VERSION;
use crate::fields::{Fields, Malformed};
use crate::manifest::{KeptCheckpoint, SESSIONS_MAX};
use crate::options::BLOCK_BYTES_MAX;
use crate::segment::{FILE_NUMBER_MAX, FIRST_BLOCK};
use crate::{Block, CheckpointImage, LaneImage, LocalImage, PAGE_BYTES, ReadAt, StoreError};

/// Treatment of the program's own bytes, which may be many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Application {
    /// Read them into the image.
    Read,
    /// Verify them only; the image has none.
    Verify,
}

/// Highest end of a block in its segment: that of the largest record, and more.
const SEGMENT_END_MAX: u64 = 1 << 48;
/// Bytes verified at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// Reads and verifies a checkpoint file that the manifest refers to.
pub(crate) fn decode(
    file: &dyn ReadAt,
    kept: &KeptCheckpoint,
    application: Application,
) -> Result<(CheckpointImage, Context), StoreError> {
    let name = checkpoint_name(kept.number);
    let mut bytes = [0; CHECKPOINT_HEADER_BYTES];
    file.read_at(0, &mut bytes).map_err(StoreError::read(&name, 0))?;
    let wrong = |what| StoreError::damaged(&name, 0, what);
    let header = Header::read_from_bytes(&bytes).map_err(|_| wrong("too short"))?;
    let crc = crc32c(&bytes[..CHECKPOINT_HEADER_BYTES - 4]);
    if header.magic.get() != MAGIC || header.crc.get() != crc {
        return Err(wrong("the checkpoint's header is wrong"));
    }
    if header.version.get() != FORMAT_VERSION {
        return Err(StoreError::Version { file: name, found: header.version.get() });
    }
    let is_meant = crc == kept.header_crc && header.number.get() == kept.number && header.epoch.get() == kept.epoch.0;
    if header.next_number.get() > FILE_NUMBER_MAX || header.session.get() > SESSIONS_MAX {
        return Err(wrong("the checkpoint's header is wrong"));
    }
    if !is_meant {
        return Err(wrong("it isn't the checkpoint that the manifest refers to"));
    }
    let len = file.len().map_err(StoreError::io("read the length of", &name))?;
    let mut at = PAGE_BYTES as u64;
    let mut parts: [Vec<u8>; PARTS] = Default::default();
    for (index, part) in header.parts.iter().enumerate() {
        let bytes = part.bytes.get();
        // Checked before memory is allocated.
        if at.checked_add(bytes).is_none_or(|end| end > len) {
            return Err(StoreError::damaged(&name, len, "the file ends here"));
        }
        let crc = if index == PARTS - 1 && application == Application::Verify {
            checksum(file, at, bytes).map_err(StoreError::read(&name, at))?
        } else {
            parts[index] = vec![0; usize::try_from(bytes).map_err(|_| wrong("it is too large for this machine"))?];
            file.read_at(at, &mut parts[index]).map_err(StoreError::read(&name, at))?;
            crc32c(&parts[index])
        };
        if crc != part.crc.get() {
            return Err(StoreError::damaged(&name, at, PART_DAMAGED[index]));
        }
        at += bytes;
    }
    let [lanes, segments, local, tables, application] = parts;
    let malformed = |Malformed| StoreError::damaged(&name, PAGE_BYTES as u64, "its parts are malformed");
    let (lanes, segments, local, tables) = parse([&lanes, &segments, &local, &tables]).map_err(malformed)?;
    let image = CheckpointImage { epoch: kept.epoch, lanes, local, tables, application };
    let context = Context {
        number: kept.number,
        store: header.store.get(),
        session: header.session.get(),
        rank: Rank(header.rank.get()),
        ranks: header.ranks.get(),
        written: Written {
            segment: header.written_segment.get(),
            end: header.written_end.get(),
            next_number: header.next_number.get(),
        },
        segments,
    };
    Ok((image, context))
}

type Parts = (Vec<LaneImage>, Vec<CoveredSegment>, Vec<LocalImage>, Vec<(String, Vec<u8>)>);

/// Parses the parts of a checkpoint file, in their order and without the program's own bytes. Refuses numbers that no store writes.
pub(crate) fn parse([lanes, segments, local, tables]: [&[u8]; PARTS - 1]) -> Result<Parts, Malformed> {
    let (lanes, segments) = (parse_lanes(lanes)?, parse_segments(segments)?);
    // Another kept checkpoint may name the segment, but not for ever.
    let named: BTreeSet<u32> = segments.iter().map(|of| of.segment).collect();
    if lanes.iter().flat_map(|lane| &lane.blocks).any(|block| !named.contains(&block.segment)) {
        return Err(Malformed);
    }
    Ok((lanes, segments, parse_local(local)?, parse_tables(tables)?))
}

/// Returns the checksum of a range of the file, which it reads window by window.
pub(crate) fn checksum(file: &dyn ReadAt, at: u64, bytes: u64) -> io::Result<u32> {
    let mut window = vec![0; bytes.min(WINDOW_BYTES as u64) as usize];
    let (mut crc, mut done) = (0, 0);
    while done < bytes {
        let now = (bytes - done).min(WINDOW_BYTES as u64) as usize;
        file.read_at(at + done, &mut window[..now])?;
        crc = crc32c_append(crc, &window[..now]);
        done += now as u64;
    }
    Ok(crc)
}

fn parse_lanes(part: &[u8]) -> Result<Vec<LaneImage>, Malformed> {
    let mut fields = Fields::new(part);
    let mut lanes = Vec::new();
    while !fields.is_at_end() {
        let entry: &LaneEntry = fields.one()?;
        let peer = Rank(entry.peer.get());
        let runs = fields.many(entry.runs.get())?.iter().map(run).collect();
        let blocks =
            fields.many(entry.blocks.get())?.iter().map(|entry| block(peer, entry)).collect::<Result<_, _>>()?;
        let (next, acked, covered) = (Ssn(entry.next.get()), Ssn(entry.acked.get()), Ssn(entry.covered.get()));
        if !(Ssn::FIRST..Ssn::MAX).contains(&next) || acked >= next || covered >= Ssn::MAX {
            return Err(Malformed);
        }
        lanes.push(LaneImage { peer, next, acked, covered, runs, blocks });
    }
    Ok(lanes)
}

fn run(entry: &RunEntry) -> Run {
    let disposition = match entry.retained.get() {
        0 => Disposition::Release,
        _ => Disposition::Retain { epoch: Epoch(entry.epoch.get()), phase: Phase(entry.phase.get()) },
    };
    Run { first: Ssn(entry.first.get()), last: Ssn(entry.last.get()), disposition }
}

/// Returns a block's entry. One that no store writes is refused: its place is used for reading, and for punching.
fn block(lane: Rank, entry: &BlockEntry) -> Result<Block, Malformed> {
    const PAGE: u64 = PAGE_BYTES as u64;
    let (at, bytes, raw) = (entry.at.get(), entry.disk_bytes.get(), entry.raw_bytes.get());
    let is_whole_pages = at.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE);
    let is_in_a_file =
        at >= FIRST_BLOCK && bytes >= PAGE && at.checked_add(bytes).is_some_and(|end| end <= SEGMENT_END_MAX);
    let (first, last) = (Ssn(entry.first.get()), Ssn(entry.last.get()));
    let has_records = first >= Ssn::FIRST && first <= last && last < Ssn::MAX && entry.records.get() > 0;
    if !is_whole_pages || !is_in_a_file || !has_records || raw > bytes.max(BLOCK_BYTES_MAX as u64) {
        return Err(Malformed);
    }
    Ok(Block {
        lane,
        first: Ssn(entry.first.get()),
        last: Ssn(entry.last.get()),
        records: entry.records.get(),
        segment: entry.segment.get(),
        at: entry.at.get(),
        disk_bytes: entry.disk_bytes.get(),
        raw_bytes: entry.raw_bytes.get(),
    })
}

fn parse_segments(part: &[u8]) -> Result<Vec<CoveredSegment>, Malformed> {
    let entries = <[SegmentEntry]>::ref_from_bytes(part).map_err(|_| Malformed)?;
    let segment = |entry: &SegmentEntry| CoveredSegment {
        segment: entry.segment.get(),
        generation: entry.generation.get(),
        covered: entry.covered.get(),
    };
    Ok(entries.iter().map(segment).collect())
}

fn parse_local(part: &[u8]) -> Result<Vec<LocalImage>, Malformed> {
    let mut fields = Fields::new(part);
    let mut local = Vec::new();
    while !fields.is_at_end() {
        let entry: &LocalEntry = fields.one()?;
        let bytes = fields.bytes(entry.bytes.get())?.to_vec();
        let kind = u8::try_from(entry.kind.get()).map_err(|_| Malformed)?;
        let ssn = Ssn(entry.ssn.get());
        if ssn <= local.last().map_or(Ssn::ZERO, |before: &LocalImage| before.ssn) || ssn >= Ssn::MAX {
            return Err(Malformed);
        }
        local.push(LocalImage { ssn, kind, key: entry.key.get(), bytes });
    }
    Ok(local)
}

fn parse_tables(part: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Malformed> {
    let mut fields = Fields::new(part);
    let mut tables = Vec::new();
    while !fields.is_at_end() {
        let entry: &TableEntry = fields.one()?;
        let name = fields.bytes(u64::from(entry.name_bytes.get()))?;
        let name = String::from_utf8(name.to_vec()).map_err(|_| Malformed)?;
        tables.push((name, fields.bytes(entry.bytes.get())?.to_vec()));
    }
    fields.end()?;
    Ok(tables)
}

//! Checkpoint file decoding.

use std::collections::BTreeSet;
use std::io;

use counterfoil_log_core::{Disposition, Epoch, Phase, Rank, Run, Ssn, crc32c, crc32c_append};
use zerocopy::FromBytes;

use super::{
    BlockEntry, CHECKPOINT_HEADER_BYTES, Context, CoveredSegment, Header, LaneEntry, LocalEntry, MAGIC, PART_DAMAGED,
    PARTS, RunEntry, SegmentEntry, TableEntry, Written,
};
use crate::format::fields::{Fields, Malformed};
use crate::format::manifest::KeptCheckpoint;
use crate::format::names::checkpoint_name;
use crate::format::{BLOCK_BYTES_MAX, FILE_NUMBER_MAX, FIRST_BLOCK, FORMAT_VERSION, SESSIONS_MAX};
use crate::{Block, CheckpointImage, LaneImage, LocalImage, PAGE_BYTES, ReadAt, StoreError};

/// Treatment of the program's own bytes, which may be many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Application {
    /// Read them into the image.
    Read,
    /// Verify them only; the image has none.
    Verify,
}

/// Maximum end of a block in its segment: enough for the largest record, and more.
const SEGMENT_END_MAX: u64 = 1 << 48;
/// Bytes verified at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// Reads and verifies a checkpoint file listed in the manifest.
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

/// Parses the parts of a checkpoint file, in their order and without the program's own bytes.
///
/// Refuses numbers that no store writes.
pub(crate) fn parse([lanes, segments, local, tables]: [&[u8]; PARTS - 1]) -> Result<Parts, Malformed> {
    let (lanes, segments) = (parse_lanes(lanes)?, parse_segments(segments)?);
    // Another kept checkpoint may name the segment, but not for ever.
    let named: BTreeSet<u32> = segments.iter().map(|of| of.segment).collect();
    if lanes.iter().flat_map(|lane| &lane.blocks).any(|block| !named.contains(&block.segment)) {
        return Err(Malformed);
    }
    Ok((lanes, segments, parse_local(local)?, parse_tables(tables)?))
}

/// Returns the checksum of a file range, read window by window.
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

/// Returns a block's entry.
///
/// Refuses one that no store writes: its place is used for reading, and for punching.
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
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory_file::MemoryFile;
    use crate::format::checkpoint_file::{Encoded, encode};

    const PAGE: u64 = PAGE_BYTES as u64;

    fn block() -> Block {
        let (first, last) = (Ssn(3), Ssn(9));
        Block { lane: Rank(2), first, last, records: 5, segment: 7, at: 2 * PAGE, disk_bytes: PAGE, raw_bytes: 300 }
    }

    fn image() -> CheckpointImage {
        let retained = Disposition::Retain { epoch: Epoch(1), phase: Phase(2) };
        let runs = vec![
            Run { first: Ssn(1), last: Ssn(4), disposition: Disposition::Release },
            Run { first: Ssn(5), last: Ssn(6), disposition: retained },
        ];
        let (next, acked, covered) = (Ssn(10), Ssn(6), Ssn(2));
        let entry = |ssn, kind, bytes: &[u8]| LocalImage { ssn: Ssn(ssn), kind, key: 40, bytes: bytes.to_vec() };
        CheckpointImage {
            epoch: Epoch(4),
            lanes: vec![LaneImage { peer: Rank(2), next, acked, covered, runs, blocks: vec![block()] }],
            local: vec![entry(1, 255, b"one"), entry(5, 0, b"")],
            tables: vec![("windows".to_owned(), b"a table".to_vec()), (String::new(), Vec::new())],
            // More than one window.
            application: (0..WINDOW_BYTES + 1000).map(|at| (at % 251) as u8).collect(),
        }
    }

    fn context() -> Context {
        Context {
            number: 6,
            store: 11,
            session: 12,
            rank: Rank(1),
            ranks: 3,
            written: Written { segment: 7, end: 3 * PAGE, next_number: 8 },
            segments: vec![CoveredSegment { segment: 7, generation: 13, covered: 3 * PAGE }],
        }
    }

    fn file(encoded: &Encoded<'_>) -> MemoryFile {
        let mut bytes = encoded.pieces().concat();
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        MemoryFile(bytes)
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let (image, context) = (image(), context());
        let encoded = encode(&image, &context);
        assert!(encoded.check().is_ok());
        let file = file(&encoded);
        assert_eq!(file.0.len() as u64, encoded.kept.bytes);
        assert_eq!(decode(&file, &encoded.kept, Application::Read).unwrap(), (image.clone(), context.clone()));
        let without = CheckpointImage { application: Vec::new(), ..image.clone() };
        assert_eq!(decode(&file, &encoded.kept, Application::Verify).unwrap(), (without, context));
    }

    #[test]
    fn damage_names_the_part_in_which_it_is() {
        let (image, context) = (image(), context());
        let encoded = encode(&image, &context);
        let lens: Vec<usize> = encoded.pieces().iter().map(|piece| piece.len()).collect();
        let mut at = lens[0];
        for (part, len) in PART_DAMAGED.into_iter().zip(&lens[1..]) {
            for place in [0, len / 2, len - 1] {
                let mut file = file(&encoded);
                file.0[at + place] ^= 1;
                for application in [Application::Read, Application::Verify] {
                    let error = decode(&file, &encoded.kept, application).unwrap_err();
                    let StoreError::Damaged { offset, what, .. } = error else { panic!("{error}") };
                    assert_eq!((offset, what), (at as u64, part), "byte {place}");
                }
            }
            at += len;
        }
        for len in [lens[0], at - 1] {
            let short = MemoryFile(file(&encoded).0[..len].to_vec());
            let error = decode(&short, &encoded.kept, Application::Read).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { what: "the file ends here", .. }), "{len}: {error}");
        }
        let short = MemoryFile(file(&encoded).0[..100].to_vec());
        assert!(matches!(decode(&short, &encoded.kept, Application::Read), Err(StoreError::Damaged { .. })));
    }

    /// Decodes a file with a changed header, with a valid checksum, for a manifest with this checksum.
    fn decoded(change: impl Fn(&mut Header)) -> Result<(), StoreError> {
        let (image, context) = (image(), context());
        let encoded = encode(&image, &context);
        let mut file = file(&encoded);
        let mut header = Header::read_from_bytes(&file.0[..CHECKPOINT_HEADER_BYTES]).unwrap();
        change(&mut header);
        let crc = crc32c(&zerocopy::IntoBytes::as_bytes(&header)[..CHECKPOINT_HEADER_BYTES - 4]);
        header.crc = crc.into();
        file.0[..CHECKPOINT_HEADER_BYTES].copy_from_slice(zerocopy::IntoBytes::as_bytes(&header));
        let kept = KeptCheckpoint { header_crc: crc, ..encoded.kept };
        decode(&file, &kept, Application::Read).map(drop)
    }

    #[test]
    fn a_header_that_is_not_meant_or_has_impossible_numbers_is_refused() {
        let refused = |change: fn(&mut Header)| match decoded(change) {
            Err(StoreError::Damaged { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        decoded(|_| ()).unwrap();
        let wrong = "the checkpoint's header is wrong";
        assert_eq!(refused(|header| header.magic = 5.into()), wrong);
        assert!(matches!(decoded(|header| header.version = 2.into()), Err(StoreError::Version { found: 2, .. })));
        decoded(|header| header.next_number = FILE_NUMBER_MAX.into()).unwrap();
        assert_eq!(refused(|header| header.next_number = (FILE_NUMBER_MAX + 1).into()), wrong);
        decoded(|header| header.session = SESSIONS_MAX.into()).unwrap();
        assert_eq!(refused(|header| header.session = (SESSIONS_MAX + 1).into()), wrong);
        let other = "it isn't the checkpoint that the manifest refers to";
        assert_eq!(refused(|header| header.number = 5.into()), other);
        assert_eq!(refused(|header| header.epoch = 5.into()), other);
        for bytes in [1 << 40, u64::MAX - 4096, u64::MAX] {
            let long = decoded(|header| header.parts[1].bytes = bytes.into());
            assert!(matches!(long, Err(StoreError::Damaged { what: "the file ends here", .. })), "{bytes}");
        }
        // The manifest has the checksum of another header.
        let (image, context) = (image(), context());
        let encoded = encode(&image, &context);
        let kept = KeptCheckpoint { header_crc: 5, ..encoded.kept };
        assert!(
            matches!(decode(&file(&encoded), &kept, Application::Read), Err(StoreError::Damaged { what, .. }) if what == other)
        );
    }

    /// Returns `true` if a checkpoint with this image may be written and is read back.
    fn is_possible(change: impl Fn(&mut CheckpointImage)) -> bool {
        let (mut image, context) = (image(), context());
        change(&mut image);
        let encoded = encode(&image, &context);
        let is_possible = encoded.check().is_ok();
        match decode(&file(&encoded), &encoded.kept, Application::Read) {
            Ok((read, _)) => assert!(is_possible && read == image),
            Err(error) => {
                assert!(!is_possible && matches!(error, StoreError::Damaged { what: "its parts are malformed", .. }));
            }
        }
        is_possible
    }

    #[test]
    fn a_lane_with_numbers_that_no_store_has_is_refused() {
        let lane = |next: u64, acked: u64, covered: u64| {
            is_possible(|image| {
                let lane = &mut image.lanes[0];
                (lane.next, lane.acked, lane.covered) = (Ssn(next), Ssn(acked), Ssn(covered));
            })
        };
        let most = Ssn::MAX.0 - 1;
        assert!(lane(1, 0, 0) && lane(10, 9, 9) && lane(most, most - 1, most));
        assert!(!lane(0, 0, 0) && !lane(Ssn::MAX.0, 0, 0) && !lane(u64::MAX, 0, 0));
        assert!(!lane(10, 10, 0) && !lane(10, 11, 0) && !lane(10, 9, Ssn::MAX.0) && !lane(10, 9, u64::MAX));
    }

    #[test]
    fn a_block_with_numbers_that_no_store_has_is_refused() {
        let is_block = |change: fn(&mut Block)| is_possible(|image| change(&mut image.lanes[0].blocks[0]));
        assert!(is_block(|block| block.at = PAGE) && !is_block(|block| block.at = 0));
        assert!(!is_block(|block| block.at += 1) && !is_block(|block| block.at += PAGE / 2));
        assert!(!is_block(|block| block.disk_bytes += 1) && !is_block(|block| block.disk_bytes = 0));
        assert!(is_block(|block| block.disk_bytes = SEGMENT_END_MAX - block.at));
        assert!(!is_block(|block| block.disk_bytes = SEGMENT_END_MAX - block.at + PAGE));
        assert!(
            !is_block(|block| block.disk_bytes = u64::MAX - PAGE + 1) && !is_block(|block| block.at = SEGMENT_END_MAX)
        );
        assert!(!is_block(|block| block.first = Ssn(0)) && is_block(|block| block.first = Ssn(1)));
        assert!(is_block(|block| block.first = block.last) && !is_block(|block| block.first = block.last.next()));
        assert!(is_block(|block| block.last = Ssn::MAX.prev()) && !is_block(|block| block.last = Ssn::MAX));
        assert!(!is_block(|block| block.records = 0) && is_block(|block| block.records = 1));
        // More than its bytes on disk only if they are compressed, to at most the largest block.
        assert!(is_block(|block| block.raw_bytes = BLOCK_BYTES_MAX as u64));
        assert!(!is_block(|block| block.raw_bytes = BLOCK_BYTES_MAX as u64 + 1));
        let large = |raw: u64| {
            move |image: &mut CheckpointImage| {
                let block = &mut image.lanes[0].blocks[0];
                (block.disk_bytes, block.raw_bytes) = (1 << 30, raw);
            }
        };
        assert!(is_possible(large(1 << 30)) && !is_possible(large((1 << 30) + 1)));
        assert!(!is_block(|block| block.segment = 8), "a segment that isn't among those of the checkpoint");
    }

    #[test]
    fn entries_of_the_local_log_are_in_order_and_tables_have_names() {
        let local = |ssns: [u64; 2]| {
            is_possible(|image| image.local.iter_mut().zip(ssns).for_each(|(entry, ssn)| entry.ssn = Ssn(ssn)))
        };
        assert!(local([1, 2]) && local([1, Ssn::MAX.0 - 1]));
        assert!(!local([0, 2]) && !local([2, 2]) && !local([3, 2]) && !local([1, Ssn::MAX.0]));

        let (image, context) = (image(), context());
        let encoded = encode(&image, &context);
        let pieces = encoded.pieces();
        let parts = || [pieces[1], pieces[2], pieces[3], pieces[4]];
        assert!(parse(parts()).is_ok());
        // Byte 24 in a local log entry begins its kind, byte 16 in a table begins its name.
        for (part, at, byte) in [(2, 25, 1), (3, 16, 0xff)] {
            let mut bytes = pieces[part + 1].to_vec();
            bytes[at] = byte;
            let mut parts = parts();
            parts[part] = &bytes;
            assert!(parse(parts).is_err(), "byte {at} of part {part}");
        }
        for part in 0..4 {
            let mut parts = parts();
            parts[part] = &parts[part][..parts[part].len() - 1];
            assert!(parse(parts).is_err(), "part {part} is cut short");
        }
    }
}

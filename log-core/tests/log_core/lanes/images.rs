//! Images of sealed chunks.

use counterfoil_log_core::{
    ChunkImage, Cursor, Disposition, Epoch, LaneWriter, Phase, Ssn, TruncateError, record_in_image,
};

use super::{COUNTING, PEER, append, fill, lane, payload, pool, retain, settled};

/// Limit in bytes above every chunk here.
const ANY: usize = 1 << 20;

/// Records in lanes with several full chunks.
const RECORDS: u64 = if cfg!(miri) { 1000 } else { 3000 };

/// Returns the SSNs requested for an image, after checking their records.
fn checked_ssns(image: &ChunkImage) -> Vec<u64> {
    let (mut at, mut seen) = (0, Vec::new());
    while let Some((record, after)) = record_in_image(image.records(), at) {
        at = after;
        let Some(record) = record.filter(|record| (image.first()..=image.last()).contains(&record.ssn())) else {
            continue;
        };
        assert_eq!((record.prefix(), record.payload()), (&b"pre"[..], &payload(record.ssn().0)[..]));
        seen.push(record.ssn().0);
    }
    assert_eq!(at, image.records().len());
    seen
}

/// Reads a cursor up to `upto`, in images if possible: returns the SSNs and the images.
fn read_all(cursor: &mut Cursor, upto: Ssn) -> (Vec<u64>, Vec<ChunkImage>) {
    let (mut seen, mut images) = (Vec::new(), Vec::new());
    loop {
        if let Some(image) = cursor.read_chunk(upto, ANY) {
            seen.extend(checked_ssns(&image));
            images.push(image);
        } else if let Some(record) = cursor.peek().filter(|record| record.ssn() <= upto) {
            seen.push(record.ssn().0);
            cursor.advance();
        } else {
            return (seen, images);
        }
    }
}

#[test]
fn chunks_and_records_together_are_every_record_once() {
    let mut lane = LaneWriter::new(pool(1 << 20, 16 << 10), PEER);
    fill(&mut lane, RECORDS);
    let middle = RECORDS / 4;
    for (from, upto) in [(1, RECORDS), (middle, RECORDS), (middle + 1, 2 * middle), (1, 1), (RECORDS - 1, RECORDS)] {
        let mut cursor = lane.reader().open(Ssn(from)).unwrap();
        let (seen, images) = read_all(&mut cursor, Ssn(upto));
        assert_eq!(seen, (from..=upto).collect::<Vec<_>>(), "{from} to {upto}");
        assert!(images.len() >= (upto - from) as usize / 500, "{from} to {upto}: {}", images.len());
        // The rest is read record by record.
        let rest = std::iter::from_fn(|| cursor.read().map(|record| record.ssn().0));
        assert_eq!(rest.collect::<Vec<_>>(), (upto + 1..=RECORDS).collect::<Vec<_>>());
    }
}

#[test]
fn an_image_is_the_chunks_memory() {
    let mut lane = LaneWriter::new(pool(1 << 20, 16 << 10), PEER);
    fill(&mut lane, RECORDS);
    let (_, images) = read_all(&mut lane.reader().open(Ssn::FIRST).unwrap(), Ssn(RECORDS));
    for image in &images {
        assert!(image.len().is_multiple_of(4096) && image.address().addr().is_multiple_of(4096));
        let mut copy = vec![0; image.len()];
        image.copy_to(0, &mut copy);
        assert_eq!(&copy[ChunkImage::RECORDS_AT..][..image.records().len()], image.records());
        let mut pieces = vec![0; image.len()];
        for (index, piece) in pieces.chunks_mut(104).enumerate() {
            image.copy_to(index * 104, piece);
        }
        assert_eq!(pieces, copy);
    }
}

#[test]
fn there_is_no_image_of_an_open_or_sparse_chunk_or_of_few_records() {
    let mut lane = LaneWriter::new(pool(1 << 20, 16 << 10), PEER);
    fill(&mut lane, 3000);
    let mut cursor = lane.reader().open(Ssn(3000)).unwrap();
    assert!(cursor.read_chunk(Ssn::MAX, ANY).is_none(), "the chunk is still written");
    assert_eq!(cursor.read().unwrap().ssn(), Ssn(3000));
    assert!(cursor.read_chunk(Ssn::MAX, ANY).is_none(), "no record follows yet");

    let mut cursor = lane.reader().open(Ssn(1000)).unwrap();
    while cursor.read_chunk(Ssn::MAX, ANY).is_none() {
        cursor.advance();
    }
    let next = cursor.position();
    assert!(cursor.read_chunk(Ssn::MAX, 12 << 10).is_none(), "the image takes more");
    assert!(cursor.read_chunk(Ssn(next.0 + 10), ANY).is_none(), "only ten of its records");
    assert!(cursor.read_chunk(Ssn(next.0 - 1), ANY).is_none(), "none of its records");
    assert_eq!(cursor.position(), next);
    assert!(cursor.read_chunk(Ssn::MAX, 16 << 10).is_some());

    // A relocated chunk has gaps.
    let mut lane = LaneWriter::new(pool(1 << 20, 16 << 10), PEER);
    fill(&mut lane, 3000);
    for ssn in 1..2900 {
        let disposition = match ssn % 4 {
            0 => Disposition::Release,
            _ => Disposition::Retain { epoch: Epoch(1), phase: Phase(0) },
        };
        lane.acknowledge(Ssn(ssn), disposition).unwrap();
    }
    let settled = settled(&mut lane);
    lane.relocate(settled[3].chunk, settled[3].chunk, Ssn::ZERO).unwrap();
    let mut cursor = lane.reader().open(settled[3].first).unwrap();
    assert!(cursor.read_chunk(Ssn::MAX, ANY).is_none());
}

#[test]
fn a_chunk_of_one_record_has_an_image_and_pads_before_its_records_are_passed() {
    let mut lane = LaneWriter::new(pool(1 << 20, 16 << 10), PEER);
    append(&mut lane, b"x");
    drop(lane.claim(3, 7).unwrap());
    let large = COUNTING.repeat(4);
    append(&mut lane, &large);
    // The next chunk begins with a pad, and the cursor comes from the end of the one before.
    drop(lane.claim(3, 12 << 10).unwrap());
    append(&mut lane, b"y");
    fill(&mut lane, 2000);
    let mut cursor = lane.reader().open(Ssn(1)).unwrap();
    assert_eq!(cursor.read().unwrap().ssn(), Ssn(1));
    let image = cursor.read_chunk(Ssn(2), ANY).unwrap();
    assert_eq!((image.first(), image.last(), cursor.position()), (Ssn(2), Ssn(2), Ssn(3)));
    assert!(cursor.read_chunk(Ssn::MAX, ANY).is_none(), "it is mostly the pad");
    while cursor.position() < Ssn(2000) && cursor.read_chunk(Ssn::MAX, ANY).is_none() {
        cursor.advance();
    }
    assert!(cursor.position() < Ssn(2000));
}

#[test]
fn a_chunk_without_a_byte_to_spare_has_an_image() {
    const BYTES: usize = 16 << 10;
    let mut lane = LaneWriter::new(pool(1 << 20, BYTES), PEER);
    for ssn in 1..=3 {
        // With a header of 16 bytes, and 16 for the end after it.
        lane.claim(0, BYTES - 112 - 16 - 16).unwrap().commit();
        assert_eq!(lane.held_bytes(), ssn * BYTES);
    }
    let mut cursor = lane.reader().open(Ssn(1)).unwrap();
    assert!(cursor.peek().is_some());
    assert_eq!(cursor.read_chunk(Ssn::MAX, BYTES).map(|image| image.len()), Some(BYTES));
    assert!(cursor.read_chunk(Ssn::MAX, BYTES - 1).is_none());
}

#[test]
fn there_is_no_image_of_a_chunk_full_of_pads() {
    let mut lane = LaneWriter::new(pool(1 << 20, 16 << 10), PEER);
    fill(&mut lane, 1000);
    let first = lane.next_ssn();
    while lane.has_room(3, 400) {
        drop(lane.claim(3, 400).unwrap());
    }
    let filled = (0..).find(|_| {
        drop(lane.claim(3, 1500).unwrap());
        append(&mut lane, b"x") > Ssn(first.0 + 100)
    });
    assert!(filled.is_some());
    let (seen, images) = read_all_unchecked(&mut lane.reader().open(first).unwrap());
    assert_eq!(seen, (first.0..lane.next_ssn().0).collect::<Vec<_>>());
    assert_eq!(images, 0);
}

/// Reads a cursor to its end like [`read_all`], without checking payloads: returns the SSNs and the number of images.
fn read_all_unchecked(cursor: &mut Cursor) -> (Vec<u64>, usize) {
    let (mut seen, mut images) = (Vec::new(), 0);
    loop {
        if let Some(image) = cursor.read_chunk(Ssn::MAX, ANY) {
            seen.extend(image.first().0..=image.last().0);
            images += 1;
        } else if let Some(record) = cursor.read() {
            seen.push(record.ssn().0);
        } else {
            return (seen, images);
        }
    }
}

#[test]
fn an_image_keeps_its_memory_after_its_cursor_is_dropped() {
    let mut lane = LaneWriter::new(pool(256 << 10, 16 << 10), PEER);
    fill(&mut lane, 2000);
    let mut cursor = lane.reader().open(Ssn::FIRST).unwrap();
    let (_, mut images) = read_all(&mut cursor, Ssn(2000));
    let copies: Vec<Vec<u8>> = images.iter().map(|image| image.records().to_vec()).collect();
    drop(cursor);
    retain(&mut lane, 2000);
    while let Some(settled) = lane.poll_settled() {
        assert!(lane.free(settled.chunk));
    }
    assert!(matches!(lane.truncate(Ssn(1990)), Err(TruncateError::CursorOpen { .. })));
    // The lane goes on in other memory until the budget is used up.
    while lane.claim(3, 1000).is_ok() {}
    for (image, copy) in images.iter().zip(&copies) {
        assert_eq!(image.records(), copy);
    }
    // The last image keeps its own chunk and all later ones.
    let last = images.pop().unwrap();
    images.clear();
    assert!(lane.claim(3, 1000).is_err());
    assert_eq!(Some(last.records()), copies.last().map(Vec::as_slice));
    drop(last);
    lane.return_spares();
    assert!(lane.claim(3, 1000).is_ok());
}

#[test]
fn damaged_bytes_are_not_parsed_as_records() {
    let mut lane = lane();
    fill(&mut lane, 500);
    let mut cursor = lane.reader().open(Ssn::FIRST).unwrap();
    let good = {
        let mut lane = LaneWriter::new(pool(1 << 20, 16 << 10), PEER);
        fill(&mut lane, 1000);
        let (_, images) = read_all(&mut lane.reader().open(Ssn::FIRST).unwrap(), Ssn(1000));
        images[0].records().to_vec()
    };
    assert!(cursor.read_chunk(Ssn::MAX, ANY).is_none(), "no chunk of a page is worth it");
    for len in (0..good.len().min(2000)).step_by(if cfg!(miri) { 301 } else { 1 }) {
        let mut at = 0;
        while let Some((_, after)) = record_in_image(&good[..len], at) {
            assert!(after > at && after <= len);
            at = after;
        }
    }
    for bit in (0..64 * 8).step_by(if cfg!(miri) { 61 } else { 1 }) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let is_word = bit < 64;
        assert_eq!(record_in_image(&bad, 0).is_none(), is_word, "bit {bit}");
    }
}

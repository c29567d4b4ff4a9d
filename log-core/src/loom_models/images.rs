//! Images of sealed chunks, read without atomic accesses.

use loom::thread;

use super::{PEER, QUARTER, append, assert_contiguous, check, peek, pool_of, read, release, version_of};
use crate::chunk::CHUNK_HEADER;
use crate::lane::{ChunkImage, Cursor, LaneWriter};
use crate::nouns::Ssn;
use crate::options::BLOCK_BYTES_MIN;
use crate::record::{RECORD_ALIGN, RECORD_HEADER};

/// Chunk bytes: large enough for an image to be worth its while.
const CHUNK: usize = 4 * BLOCK_BYTES_MIN;
/// Body bytes to fill such a chunk.
const LONG: usize = CHUNK - CHUNK_HEADER - RECORD_HEADER - RECORD_ALIGN;
/// Body bytes for part of such a chunk, large enough for an image.
const SHORT: usize = 5 * CHUNK / 8 - RECORD_HEADER;

/// Makes a lane of `chunks` chunks and one cursor.
fn lane_of(chunks: usize) -> LaneWriter {
    LaneWriter::new(pool_of(CHUNK, chunks, 1), PEER)
}

/// Reads every byte of an image, the end word included; returns its only record's SSN.
fn ssn_in(image: &ChunkImage) -> u64 {
    assert_eq!(image.first(), image.last());
    let records = image.read();
    let [(ssn, body)] = &records[..] else { panic!("{} records", records.len()) };
    assert_eq!((*ssn, version_of(*ssn, body)), (image.first(), 0));
    ssn.0
}

fn read_chunk(cursor: &mut Cursor) -> Option<ChunkImage> {
    cursor.read_chunk(Ssn::MAX, CHUNK)
}

/// A cursor taking an image while the writer seals the chunk finds the chunk still open, or gets a completely written
/// image: no byte changes any more.
#[test]
fn an_image_is_whole_while_its_chunk_is_being_sealed() {
    check(|| {
        let mut lane = lane_of(2);
        append(&mut lane, LONG);
        let mut cursor = lane.reader().open(Ssn::FIRST).expect("nothing is gone");
        let reading = thread::spawn(move || {
            let seen = read_chunk(&mut cursor).map(|image| ssn_in(&image));
            (cursor, seen)
        });
        append(&mut lane, LONG);
        let (mut cursor, seen) = reading.join().expect("the reader ends");
        assert_eq!(seen.or_else(|| read_chunk(&mut cursor).map(|image| ssn_in(&image))), Some(1));
    });
}

/// Images of chunks reused and sealed meanwhile show the chunk's new record, with its own length, and none is missing
/// between them.
#[test]
fn images_of_reused_chunks_have_the_new_lengths() {
    check(|| {
        let mut lane = lane_of(3);
        (0..2).for_each(|_| append(&mut lane, LONG));
        release(&mut lane, 1);
        let mut cursor = lane.reader().open(Ssn(2)).expect("2 is not acknowledged");
        let reading = thread::spawn(move || {
            let images = std::iter::from_fn(|| read_chunk(&mut cursor).map(|image| ssn_in(&image)));
            assert_contiguous(&images.collect::<Vec<_>>(), 2);
        });
        (0..2).for_each(|_| append(&mut lane, SHORT));
        reading.join().expect("the reader ends");
    });
}

/// A chunk, mostly a pad in its earlier use, is reused for a record.
///
/// A cursor seeing the chunk sealed also sees the new lengths of records and pads; with the earlier ones an image would
/// have the wrong end or not be worth its while.
#[test]
fn the_lengths_of_a_sealed_chunk_are_those_of_its_records() {
    check(|| {
        let mut lane = lane_of(3);
        drop(lane.claim(0, SHORT));
        append(&mut lane, QUARTER);
        append(&mut lane, LONG);
        release(&mut lane, 1);
        let mut cursor = lane.reader().open(Ssn(2)).expect("2 is not acknowledged");
        let reading = thread::spawn(move || {
            let mut seen = Vec::new();
            loop {
                let mut image = read_chunk(&mut cursor);
                if image.is_none() && cursor.sees_sealed_chunk() {
                    image = Some(read_chunk(&mut cursor).expect("an image of a full chunk"));
                }
                let Some(image) = image else { break };
                seen.push(ssn_in(&image));
            }
            assert_contiguous(&seen, 2);
        });
        (0..2).for_each(|_| append(&mut lane, LONG));
        reading.join().expect("the reader ends");
    });
}

/// An image keeps its chunk when its cursor goes on to the next chunk and when the cursor is dropped; and reads in the
/// image happen before the chunk is reused.
#[test]
fn a_chunk_is_not_reused_under_its_image() {
    check(|| {
        let mut lane = lane_of(5);
        (0..3).for_each(|_| append(&mut lane, LONG));
        let reader = lane.reader();
        let mut cursor = reader.open(Ssn::FIRST).expect("nothing is gone");
        let reading = thread::spawn(move || {
            let images = [read_chunk(&mut cursor), read_chunk(&mut cursor)];
            drop(cursor);
            assert_eq!(images.map(|image| image.map(|image| ssn_in(&image))), [Some(1), Some(2)]);
        });
        release(&mut lane, 1);
        append(&mut lane, LONG);
        release(&mut lane, 2);
        append(&mut lane, LONG);
        reading.join().expect("the reader ends");
        drop(reader);
    });
}

/// A cursor that has read a chunk's records one by one goes over its end to the next chunk's image, or finds the writer
/// not so far yet; then it goes on record by record.
#[test]
fn an_image_follows_records_that_were_read() {
    check(|| {
        let mut lane = lane_of(3);
        append(&mut lane, LONG);
        let mut cursor = lane.reader().open(Ssn::FIRST).expect("nothing is gone");
        let reading = thread::spawn(move || {
            let first = peek(&mut cursor);
            cursor.advance();
            let mut seen: Vec<u64> = first.map(|(ssn, _)| ssn).into_iter().collect();
            seen.extend(read_chunk(&mut cursor).map(|image| ssn_in(&image)));
            seen.extend(read(&mut cursor));
            assert_contiguous(&seen, 1);
        });
        (0..2).for_each(|_| append(&mut lane, LONG));
        reading.join().expect("the reader ends");
    });
}

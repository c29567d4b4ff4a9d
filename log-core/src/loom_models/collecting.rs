//! Retained records: chunks freed or relocated while a cursor reads.

use loom::thread;

use super::{HALF, WHOLE, append, assert_contiguous, check, lane, lane_with, read, release, retain, settle};
use crate::ChunkId;
use crate::lane::LaneWriter;
use crate::nouns::Ssn;

/// Makes a lane with records 1 to 7, two to a chunk, 3 and 5 released and 7 unacknowledged; also returns its settled
/// chunks.
fn sparse_lane() -> (LaneWriter, Vec<ChunkId>) {
    let mut lane = lane(6);
    (1..=7).for_each(|_| append(&mut lane, HALF));
    retain(&mut lane, 2);
    release(&mut lane, 3);
    retain(&mut lane, 4);
    release(&mut lane, 5);
    retain(&mut lane, 6);
    let settled = settle(&mut lane);
    (lane, settled)
}

/// Asserts that the SSNs rise and begin with `kept`, apart from released ones.
fn assert_keeps(ssns: &[u64], kept: &[u64]) {
    let seen: Vec<u64> = ssns.iter().copied().filter(|ssn| ![3, 5].contains(ssn)).collect();
    assert!(seen.starts_with(kept) && ssns.is_sorted_by(|a, b| a < b), "{ssns:?}");
}

/// Two chunks in the middle are relocated into one, and their memory is reused, while a cursor is opened and read: it
/// sees every retained record once, in order and whole, in the old chunks or in the new one.
#[test]
fn a_relocation_in_the_middle_loses_nothing() {
    check(|| {
        let (mut lane, settled) = sparse_lane();
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            let mut cursor = reader.open(Ssn(1)).expect("1 is retained");
            assert_keeps(&read(&mut cursor), &[1, 2, 4, 6, 7]);
        });
        lane.relocate(settled[1], settled[2], Ssn::ZERO).expect("there is a block left");
        append(&mut lane, HALF);
        append(&mut lane, HALF);
        reading.join().expect("the reader ends");
    });
}

/// A cursor searching its record among chunks being relocated skips full chunks by their headers, and finds the record
/// in the old chunk or in the new one.
#[test]
fn a_cursor_finds_its_record_during_a_relocation() {
    check(|| {
        let (mut lane, settled) = sparse_lane();
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            let mut cursor = reader.open(Ssn(6)).expect("6 is retained");
            assert_keeps(&read(&mut cursor), &[6, 7]);
        });
        lane.relocate(settled[1], settled[2], Ssn::ZERO).expect("there is a block left");
        append(&mut lane, HALF);
        append(&mut lane, HALF);
        reading.join().expect("the reader ends");
    });
}

/// The first chunks are relocated, without the records covered by a checkpoint, while a cursor is opened on one of
/// these: it is refused, or sees every record from there on.
#[test]
fn a_relocation_at_the_front_refuses_or_shows_everything() {
    check(|| {
        let mut lane = lane(5);
        (1..=5).for_each(|_| append(&mut lane, HALF));
        retain(&mut lane, 4);
        let settled = settle(&mut lane);
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            if let Ok(mut cursor) = reader.open(Ssn(1)) {
                let seen = read(&mut cursor);
                assert_contiguous(&seen, 1);
                assert!(seen.len() >= 5, "{seen:?}");
            }
            let mut cursor = reader.open(Ssn(4)).expect("4 is retained");
            assert_contiguous(&read(&mut cursor), 4);
        });
        lane.relocate(settled[0], settled[1], Ssn(3)).expect("there is a block left");
        append(&mut lane, HALF);
        append(&mut lane, HALF);
        reading.join().expect("the reader ends");
    });
}

/// Retained chunks are freed, in the middle and then at the front, and reused while a cursor is opened and read: it
/// sees every kept record, and freed ones whole or not at all.
#[test]
fn freeing_retained_chunks_loses_nothing_else() {
    check(|| {
        let mut lane = lane_with(6, 4);
        retain(&mut lane, 3);
        let settled = settle(&mut lane);
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            if let Ok(mut cursor) = reader.open(Ssn(1)) {
                let seen = read(&mut cursor);
                let kept: Vec<u64> = seen.iter().copied().filter(|ssn| *ssn != 2).collect();
                assert!(kept.starts_with(&[1, 3, 4]) && seen.is_sorted_by(|a, b| a < b), "{seen:?}");
            }
        });
        assert!(lane.free(settled[1]));
        append(&mut lane, WHOLE);
        assert!(lane.free(settled[0]));
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
    });
}

//! Sizes of a lane's chunks, and spares kept when they are freed.

use counterfoil_log_core::{Disposition, Epoch, LaneWriter, Phase, Ssn};

use super::{PEER, fill, lane, pool};

const SMALL: usize = 4096;
const ORDINARY: usize = 64 << 10;

/// Makes a lane with chunks growing from 4 to 64 KiB.
fn growing() -> LaneWriter {
    LaneWriter::new(pool(4 << 20, ORDINARY), PEER)
}

/// Appends records of so many bytes, with unimportant contents.
fn append_bytes(lane: &mut LaneWriter, bytes: usize) {
    lane.claim(0, bytes).unwrap().commit();
}

/// Appends until the lane takes another chunk, and returns the chunk's bytes.
fn next_chunk(lane: &mut LaneWriter) -> usize {
    let before = lane.held_bytes();
    while lane.held_bytes() == before {
        append_bytes(lane, 500);
    }
    lane.held_bytes() - before
}

#[test]
fn chunks_double_up_to_the_ordinary_size() {
    let mut lane = growing();
    let sizes: Vec<_> = (0..7).map(|_| next_chunk(&mut lane)).collect();
    assert_eq!(sizes, [SMALL, 2 * SMALL, 4 * SMALL, 8 * SMALL, ORDINARY, ORDINARY, ORDINARY]);
}

#[test]
fn chunks_shrink_where_large_records_leave_them_half_empty() {
    // Bytes in the 16 KiB chunk when a large record begins its own, and the size of the following chunk.
    for (used, expected) in [(8000, 4 * SMALL), (8400, ORDINARY)] {
        let mut lane = growing();
        let sizes: Vec<_> = (0..3).map(|_| next_chunk(&mut lane)).collect();
        assert_eq!(sizes, [SMALL, 2 * SMALL, 4 * SMALL]);
        append_bytes(&mut lane, used - 112 - 528 - 16);
        append_bytes(&mut lane, 100 << 10);
        assert_eq!(next_chunk(&mut lane), expected, "{used} bytes used");
    }
}

#[test]
fn a_chunk_that_is_half_full_is_not_half_empty_and_an_ordinary_chunk_changes_nothing() {
    let mut lane = growing();
    append_bytes(&mut lane, SMALL / 2 - 112 - 16);
    append_bytes(&mut lane, 100 << 10);
    assert_eq!(next_chunk(&mut lane), ORDINARY, "2 of 4 KiB are used");

    let mut lane = growing();
    while next_chunk(&mut lane) < ORDINARY {}
    append_bytes(&mut lane, 65_000);
    assert_eq!(next_chunk(&mut lane), ORDINARY, "an ordinary chunk was nearly empty");
}

#[test]
fn an_empty_chunk_and_that_of_a_rewound_lane_are_not_left() {
    let mut lane = growing();
    while next_chunk(&mut lane) < ORDINARY {}
    lane.rewind(Ssn(3));
    assert!(!lane.leave_current(0));
    lane.rewind(lane.next_ssn().prev());
    // The cut is where the current chunk begins.
    lane.truncate(lane.next_ssn().prev().prev()).unwrap();
    assert!(!lane.leave_current(0));
    append_bytes(&mut lane, 500);
    assert!(lane.leave_current(0));
}

#[test]
fn a_lane_keeps_two_spare_chunks() {
    let mut lane = growing();
    while lane.held_bytes() < 2 << 20 {
        append_bytes(&mut lane, 500);
    }
    lane.acknowledge(lane.next_ssn().prev(), Disposition::Release).unwrap();
    assert_eq!(lane.held_bytes(), 3 * ORDINARY);
}

#[test]
fn only_an_idle_lane_shrinks() {
    let retain = Disposition::Retain { epoch: Epoch(1), phase: Phase(1) };
    for (acknowledged, disposition) in [(6, Disposition::Release), (7, retain)] {
        let mut lane = lane();
        fill(&mut lane, 7);
        lane.acknowledge(Ssn(acknowledged), disposition).unwrap();
        let held = lane.held_bytes();
        lane.shrink_if_idle();
        assert_eq!((lane.held_bytes(), lane.unsettled().count()), (held, 0), "{disposition:?}");
    }
}

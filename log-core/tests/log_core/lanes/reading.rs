//! Cursors: the records they see, and the memory they keep.

use counterfoil_log_core::{CursorError, Disposition, LaneWriter, Ssn};

use super::{PEER, append, fill, lane, payload, retain, settled, ssns};

#[test]
fn records_are_read_back_in_order_across_chunks() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    assert_eq!(ssns(&lane, Ssn::FIRST).unwrap(), (1..=1000).collect::<Vec<_>>());
    assert_eq!(ssns(&lane, Ssn(777)).unwrap(), (777..=1000).collect::<Vec<_>>());
    assert_eq!(ssns(&lane, Ssn(5000)).unwrap(), []);
}

#[test]
fn a_cursor_goes_on_when_more_is_committed() {
    let mut lane = lane();
    let mut cursor = lane.reader().open(Ssn::FIRST).unwrap();
    assert!(cursor.peek().is_none());
    for upto in [1, 2, 300, 301] {
        fill(&mut lane, upto);
        while let Some(record) = cursor.peek() {
            assert_eq!(record.payload(), payload(record.ssn().0));
            cursor.advance();
        }
        assert_eq!(cursor.position(), Ssn(upto + 1));
    }
}

#[test]
fn reading_is_peeking_and_advancing() {
    let mut lane = lane();
    fill(&mut lane, 500);
    let mut cursor = lane.reader().open(Ssn(7)).unwrap();
    for ssn in 7..=500 {
        if ssn % 3 == 0 {
            assert_eq!(cursor.peek().unwrap().ssn(), Ssn(ssn));
        }
        let record = cursor.read().unwrap();
        assert_eq!((record.ssn(), record.payload()), (Ssn(ssn), &payload(ssn)[..]));
    }
    assert!(cursor.read().is_none());
}

#[test]
fn a_cursor_on_a_released_record_is_refused() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    lane.acknowledge(Ssn(900), Disposition::Release).unwrap();
    let Err(CursorError::Gone { kept_from, asked: Ssn(1), .. }) = lane.reader().open(Ssn(1)) else { panic!("kept") };
    assert!(kept_from > Ssn(1) && kept_from <= Ssn(901));
    assert_eq!(ssns(&lane, Ssn(901)).unwrap(), (901..=1000).collect::<Vec<_>>());
}

#[test]
fn a_cursor_keeps_records_that_it_has_not_read() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    let mut cursor = lane.reader().open(Ssn(100)).unwrap();
    lane.acknowledge(Ssn(1000), Disposition::Release).unwrap();
    fill(&mut lane, 3000);
    lane.acknowledge(Ssn(3000), Disposition::Release).unwrap();
    for ssn in 100..=3000 {
        let record = cursor.peek().unwrap();
        assert_eq!((record.ssn(), record.payload()), (Ssn(ssn), &payload(ssn)[..]));
        cursor.advance();
    }
    drop(cursor);
    fill(&mut lane, 3500);
    lane.acknowledge(Ssn(3500), Disposition::Release).unwrap();
    assert!(lane.held_bytes() <= 4 * 4096, "{}", lane.held_bytes());
}

#[test]
fn a_cursor_that_has_passed_freed_chunks_keeps_none_of_them() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    retain(&mut lane, 1000);
    let settled = settled(&mut lane);
    let mut cursor = lane.reader().open(Ssn::FIRST).unwrap();
    while cursor.position() <= settled[0].last {
        cursor.read().unwrap();
    }
    // All chunks but the cursor's are freed; from its end, the cursor goes on to the current chunk.
    assert!(settled[1..].iter().all(|settled| lane.free(settled.chunk)));
    let held = lane.held_bytes();
    assert_eq!(cursor.peek().unwrap().ssn(), settled.last().unwrap().last.next());
    while cursor.read().is_some() {}
    assert!(lane.free(settled[0].chunk));
    lane.return_spares();
    assert!(held > 10 * 4096 && lane.held_bytes() <= 2 * 4096, "{held} bytes, then {}", lane.held_bytes());
}

#[test]
fn more_cursors_than_allowed_are_refused() {
    let mut lane = lane();
    fill(&mut lane, 5);
    let reader = lane.reader();
    let (_one, two) = (reader.open(Ssn(1)).unwrap(), reader.open(Ssn(1)).unwrap());
    assert!(matches!(reader.open(Ssn(1)), Err(CursorError::TooMany { max: 2, .. })));
    drop(two);
    reader.open(Ssn(1)).unwrap();
}

#[test]
fn the_writers_cursor_begins_where_a_readers_does() {
    let check = |lane: &LaneWriter| {
        for from in (1..=lane.next_ssn().0 + 1).step_by(if cfg!(miri) { 61 } else { 1 }) {
            let first = lane.reader().open(Ssn(from)).map(|mut cursor| cursor.read().map(|record| record.ssn()));
            let own = lane.cursor(Ssn(from)).map(|mut cursor| cursor.read().map(|record| record.ssn()));
            assert_eq!(own, first, "from {from}");
        }
    };
    let mut lane = lane();
    check(&lane);
    fill(&mut lane, 1000);
    check(&lane);
    for upto in (10..=990).step_by(10) {
        lane.acknowledge(Ssn(upto - 1), Disposition::Release).unwrap();
        retain(&mut lane, upto);
    }
    let settled = settled(&mut lane);
    for pair in settled.chunks_exact(2) {
        lane.relocate(pair[0].chunk, pair[1].chunk, Ssn(100)).unwrap();
        check(&lane);
    }
    assert!(lane.free(settled[5].chunk));
    check(&lane);
    lane.truncate(Ssn(995)).unwrap();
    check(&lane);
}

#[test]
fn a_waiting_cursor_attaches_to_a_first_chunk_that_begins_with_a_gap() {
    let mut lane = lane();
    let mut cursor = lane.reader().open(Ssn(1)).unwrap();
    assert_eq!(cursor.attach(), Ok(false));
    lane.set_next(Ssn(5)).unwrap();
    append(&mut lane, b"data");
    assert_eq!(cursor.attach(), Ok(true));
    assert_eq!(cursor.peek().map(|record| record.ssn()), Some(Ssn(5)));
}

#[test]
fn a_waiting_cursor_of_a_resumed_lane_reads_what_is_appended() {
    let mut lane = lane();
    lane.resume(Ssn(31), Ssn(30), &[]).unwrap();
    let mut cursor = lane.reader().open(Ssn(31)).unwrap();
    assert!(cursor.peek().is_none());
    append(&mut lane, b"data");
    assert_eq!(cursor.peek().map(|record| record.ssn()), Some(Ssn(31)));
}

#[test]
fn readers_know_their_lane_and_where_they_are() {
    let mut lane = lane();
    let reader = lane.reader();
    assert_eq!(reader.peer(), PEER);
    let mut cursor = reader.open(Ssn(1)).unwrap();
    assert_eq!((cursor.peer(), cursor.is_attached()), (PEER, false));
    let claim = lane.claim(3, 4).unwrap();
    assert_eq!((claim.len(), claim.is_empty()), (7, false));
    drop(claim);
    assert!(lane.claim(0, 0).unwrap().is_empty());
    append(&mut lane, b"data");
    assert_eq!(cursor.attach(), Ok(true));
    assert!(cursor.is_attached() && cursor.peek().is_some());
}

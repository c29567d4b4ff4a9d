//! Lanes with older records on disk: cursors are referred to the disk and never skip those records.

use std::sync::Arc;

use counterfoil_log_core::{
    CursorError, Disposition, Epoch, LaneWriter, Phase, Pool, PoolOptions, Rank, Ssn, TruncateError, record_in_image,
};

const PEER: Rank = Rank(1);
const RETAIN: Disposition = Disposition::Retain { epoch: Epoch(1), phase: Phase(0) };

fn pool(memory_bytes_max: usize) -> Arc<Pool> {
    Pool::volatile(PoolOptions { memory_bytes_max, chunk_bytes: 4096, prefault_bytes: 0, cursors_max: 2 }).unwrap()
}

/// Makes a lane with ten records in a checkpoint, and none in memory.
fn resumed(pool: &Arc<Pool>) -> LaneWriter {
    let mut lane = LaneWriter::new(pool.clone(), PEER);
    lane.resume(Ssn(11), Ssn(5), &[]).unwrap();
    lane
}

fn append(lane: &mut LaneWriter, count: u64) {
    for _ in 0..count {
        lane.claim(0, 1000).unwrap().commit();
    }
}

fn is_gone(lane: &LaneWriter, from: u64, kept_from: u64) -> bool {
    matches!(lane.reader().open(Ssn(from)), Err(CursorError::Gone { kept_from: Ssn(at), .. }) if at == kept_from)
}

/// Evicts the settled chunks, as if their records had been written to disk.
fn evict_settled(lane: &mut LaneWriter) {
    lane.acknowledge(lane.next_ssn().prev(), RETAIN).unwrap();
    while let Some(settled) = lane.poll_settled() {
        assert!(lane.evict(settled.chunk));
    }
}

#[test]
fn a_refused_truncation_still_refuses_cursors_on_spilled_records() {
    let mut lane = resumed(&pool(1 << 20));
    assert!(is_gone(&lane, 10, 11));
    let cursor = lane.reader().open(Ssn(11)).unwrap();
    assert!(matches!(lane.truncate(Ssn(3)), Err(TruncateError::CursorOpen { .. })));
    assert!(is_gone(&lane, 10, 11));
    drop(cursor);
    lane.truncate(Ssn(3)).unwrap();
    assert!(is_gone(&lane, 3, 4));
    assert_eq!((lane.next_ssn(), lane.acked()), (Ssn(4), Ssn(3)));
    append(&mut lane, 1);
    assert!(is_gone(&lane, 3, 4));
}

#[test]
fn a_lane_without_records_in_memory_is_truncated_without_an_allocation() {
    let pool = pool(4 * 4096);
    let mut lane = resumed(&pool);
    let mut other = LaneWriter::new(pool, Rank(2));
    while other.claim(0, 1000).map(|claim| claim.commit()).is_ok() {}
    lane.truncate(Ssn(7)).unwrap();
    assert_eq!((lane.next_ssn(), lane.kept_from()), (Ssn(8), Ssn(8)));
}

#[test]
fn a_waiting_cursor_gets_an_error_for_records_that_were_evicted_meanwhile() {
    let mut lane = resumed(&pool(1 << 20));
    let mut waiting = lane.reader().open(Ssn(11)).unwrap();
    assert!(!waiting.attach().unwrap() && waiting.peek().is_none());
    append(&mut lane, 20);
    evict_settled(&mut lane);
    let kept_from = lane.kept_from();
    assert!(kept_from > Ssn(11));
    assert!(waiting.peek().is_none() && !waiting.is_attached(), "it must not skip the missing records");
    let gone = waiting.attach().unwrap_err();
    assert!(matches!(gone, CursorError::Gone { asked: Ssn(11), kept_from: at, .. } if at == kept_from), "{gone}");
}

#[test]
fn a_waiting_cursor_sees_a_lane_that_begins_with_a_gap() {
    let mut lane = LaneWriter::new(pool(1 << 20), PEER);
    let mut waiting = lane.reader().open(Ssn(1)).unwrap();
    lane.import(Ssn(5), 0, 10).unwrap().commit();
    assert_eq!(waiting.peek().unwrap().ssn(), Ssn(5));
}

#[test]
fn records_that_nobody_acknowledged_are_evicted_once_they_are_on_disk() {
    let mut lane = LaneWriter::new(pool(1 << 20), PEER);
    append(&mut lane, 20);
    let (last, _) = lane.unsettled().next().unwrap();
    assert_eq!(lane.evict_unsettled(last.prev()), None, "its last record is in memory only");
    assert_eq!(lane.evict_unsettled(last), Some(4096));
    assert_eq!(lane.kept_from(), last.next());
    assert!(is_gone(&lane, last.0, last.next().0));
    // Acknowledgements of records on disk still decide about their retention.
    lane.acknowledge(Ssn(20), RETAIN).unwrap();
    assert_eq!(lane.runs().map(|run| (run.first, run.last)).collect::<Vec<_>>(), [(Ssn(1), Ssn(20))]);
}

#[test]
fn a_chunk_is_left_for_a_smaller_one_if_that_is_worth_it() {
    let options = PoolOptions { memory_bytes_max: 1 << 20, chunk_bytes: 64 << 10, prefault_bytes: 0, cursors_max: 2 };
    let mut lane = LaneWriter::new(Pool::volatile(options).unwrap(), PEER);
    assert!(!lane.leave_current(0), "there is no chunk");
    while lane.held_bytes() < 64 << 10 {
        append(&mut lane, 1);
    }
    let current = lane.held_bytes();
    assert!(!lane.leave_current(current + 1));
    assert!(lane.leave_current(64 << 10));
    assert!(!lane.leave_current(0), "it is empty");
    append(&mut lane, 1);
    assert!(!lane.leave_current(0), "it is of the smallest class");
}

/// The runs begin with the oldest record in memory or on disk.
#[test]
fn the_first_retained_record_begins_the_runs_with_what_was_released_before() {
    let runs = |lane: &mut LaneWriter, released: u64| {
        lane.acknowledge(Ssn(released), Disposition::Release).unwrap();
        let kept_from = lane.kept_from();
        lane.acknowledge(Ssn(20), RETAIN).unwrap();
        (kept_from.0, lane.runs().map(|run| (run.first.0, run.last.0)).collect::<Vec<_>>())
    };
    let mut in_memory = LaneWriter::new(pool(1 << 20), PEER);
    append(&mut in_memory, 20);
    // Three records a chunk: the first two chunks are freed.
    assert_eq!(runs(&mut in_memory, 8), (7, vec![(7, 8), (9, 20)]));
    let mut on_disk = LaneWriter::new(pool(1 << 20), PEER);
    append(&mut on_disk, 20);
    on_disk.evict_unsettled(Ssn(3)).unwrap();
    assert_eq!(runs(&mut on_disk, 2), (4, vec![(1, 2), (3, 20)]));
}

#[test]
fn a_waiting_cursor_begins_at_the_first_record_that_was_not_evicted() {
    let mut lane = resumed(&pool(1 << 20));
    let mut waiting = lane.reader().open(Ssn(14)).unwrap();
    append(&mut lane, 20);
    lane.acknowledge(lane.next_ssn().prev(), RETAIN).unwrap();
    let settled = lane.poll_settled().unwrap();
    assert_eq!((settled.last, lane.evict(settled.chunk)), (Ssn(13), true));
    assert!(waiting.attach().unwrap());
    assert_eq!(waiting.peek().unwrap().ssn(), Ssn(14));
}

/// Fills a lane and evicts all but its newest chunk; returns the first remaining record.
fn evict_all(lane: &mut LaneWriter, count: u64) -> Ssn {
    append(lane, count);
    let last = lane.next_ssn().prev();
    while lane.evict_unsettled(last).is_some() {}
    lane.kept_from()
}

#[test]
fn an_overtaken_cursor_reads_its_chunk_and_then_finds_the_next_records_gone() {
    let pool = pool(1 << 20);
    let mut lane = LaneWriter::new(pool.clone(), PEER);
    append(&mut lane, 20);
    let mut cursor = lane.reader().open(Ssn::FIRST).unwrap();
    assert_eq!(cursor.read().unwrap().ssn(), Ssn(1));
    let kept_from = (0..50).map(|_| evict_all(&mut lane, 100)).last().unwrap();
    assert!(lane.held_bytes() <= 4 * 4096, "the cursor's chunk, the current one and spares: {}", lane.held_bytes());
    // A chunk has three records.
    assert_eq!([(); 2].map(|()| cursor.read().unwrap().ssn()), [Ssn(2), Ssn(3)]);
    assert!(cursor.read().is_none() && !cursor.is_attached());
    let gone = cursor.attach().unwrap_err();
    assert!(matches!(gone, CursorError::Gone { asked: Ssn(4), kept_from: at, .. } if at == kept_from), "{gone}");
    assert!(matches!(lane.truncate(Ssn(2)), Err(TruncateError::CursorOpen { .. })));
    drop((cursor, lane));
    assert_eq!(pool.used_bytes(), 0);
}

#[test]
fn a_cursor_in_the_last_chunk_that_is_left_goes_on_in_memory() {
    let mut lane = LaneWriter::new(pool(1 << 20), PEER);
    append(&mut lane, 20);
    let mut cursor = lane.reader().open(Ssn(20)).unwrap();
    assert_eq!(cursor.read().unwrap().ssn(), Ssn(20));
    evict_all(&mut lane, 0);
    append(&mut lane, 20);
    let rest: Vec<u64> = std::iter::from_fn(|| cursor.read().map(|record| record.ssn().0)).collect();
    assert_eq!(rest, (21..=40).collect::<Vec<_>>());
}

#[test]
fn an_image_keeps_its_chunk_and_all_that_its_cursor_comes_to() {
    let options = PoolOptions { memory_bytes_max: 1 << 20, chunk_bytes: 32 << 10, prefault_bytes: 0, cursors_max: 2 };
    let mut lane = LaneWriter::new(Pool::volatile(options).unwrap(), PEER);
    append(&mut lane, 20);
    let mut cursor = lane.reader().open(Ssn(4)).unwrap();
    let image = cursor.read_chunk(Ssn::MAX, 1 << 20).unwrap();
    let next = image.last().next();
    append(&mut lane, 200);
    let held = lane.held_bytes();
    evict_all(&mut lane, 0);
    assert!(lane.held_bytes() >= held - 4096, "all chunks but the first come after the image's");
    append(&mut lane, 10);
    let records = image.records();
    assert_eq!(record_in_image(records, 0).unwrap().0.unwrap().ssn(), Ssn(4));
    assert!(cursor.read().is_none() && !cursor.is_attached());
    assert_eq!(cursor.attach(), Ok(false), "its pin is the image's");
    drop(image);
    assert!(matches!(cursor.attach(), Err(CursorError::Gone { asked, .. }) if asked == next));
    lane.return_spares();
    assert!(lane.held_bytes() < held / 2);
}

#[test]
fn a_cursor_beyond_the_end_keeps_no_memory_and_finds_its_record() {
    let mut lane = LaneWriter::new(pool(8 * 4096), PEER);
    let open = |lane: &LaneWriter, from| lane.reader().open(Ssn(from)).unwrap();
    let mut in_an_empty_lane = open(&lane, 500);
    append(&mut lane, 10);
    let mut in_a_used_lane = open(&lane, 501);
    for ssn in 11..500 {
        append(&mut lane, 1);
        lane.acknowledge(Ssn(ssn), Disposition::Release).unwrap();
        assert!(in_an_empty_lane.peek().is_none() && !in_a_used_lane.is_attached());
    }
    append(&mut lane, 10);
    // From there on records are kept.
    lane.acknowledge(Ssn(509), Disposition::Release).unwrap();
    assert_eq!((in_an_empty_lane.read().unwrap().ssn(), in_a_used_lane.read().unwrap().ssn()), (Ssn(500), Ssn(501)));
}

//! Sizes of a lane's chunks, and what is kept of them when they are freed.

use counterfoil_log_core::{
    AllocError, AppendError, BODY_BYTES_MAX, Disposition, Epoch, LaneWriter, PREFIX_BYTES_MAX, Phase, Rank, Ssn,
};

use super::{PEER, append, fill, lane, payload, pool, records, ssns};

const SMALL: usize = 4096;
const ORDINARY: usize = 64 << 10;

/// A lane whose chunks grow from 4 to 64 KiB.
fn growing() -> LaneWriter {
    LaneWriter::new(pool(4 << 20, ORDINARY), PEER)
}

/// Appends records of these bytes, with unimportant contents.
fn append_bytes(lane: &mut LaneWriter, bytes: usize) {
    lane.claim(0, bytes).unwrap().commit();
}

/// Appends until the lane takes another chunk, whose bytes it returns.
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
    // Bytes in the chunk of 16 KiB when a large record begins its own, and the size of the chunk after that.
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
fn a_lane_without_memory_holds_none_of_a_full_budget() {
    let pool = pool(2 * SMALL, SMALL);
    let (mut full, mut idle) = (LaneWriter::new(pool.clone(), Rank(2)), LaneWriter::new(pool, PEER));
    (0..2).for_each(|_| append_bytes(&mut full, 3000));
    let Err(AppendError::Alloc(AllocError::Full(pressure))) = idle.claim(0, 8) else { panic!("there is room") };
    assert_eq!(pressure.holders, [(Rank(2), 2 * SMALL)]);
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

#[test]
fn records_beyond_the_limits_are_refused() {
    let mut lane = lane();
    for (prefix, payload) in [(PREFIX_BYTES_MAX + 1, 0), (1, BODY_BYTES_MAX), (1, usize::MAX)] {
        assert!(matches!(lane.claim(prefix, payload), Err(AppendError::TooLong { .. })), "{prefix} and {payload}");
    }
    assert!(lane.claim(PREFIX_BYTES_MAX, 0).is_ok());
    assert!(matches!(lane.claim(0, BODY_BYTES_MAX), Err(AppendError::Alloc(_))), "no budget holds it");
}

/// A chunk has fewer than 2^32 records, so its first number decides.
#[test]
fn a_chunk_begins_as_long_as_its_records_have_numbers() {
    let last = Ssn(Ssn::MAX.0 - (1 << 32));
    let claim = |next| {
        let mut lane = lane();
        lane.resume(next, Ssn::ZERO, &[]).unwrap();
        lane.claim(0, 8).map(|claim| claim.ssn())
    };
    assert!(matches!(claim(last), Ok(ssn) if ssn == last));
    assert!(matches!(claim(last.next()), Err(AppendError::SsnExhausted { peer: PEER })));
}

#[test]
fn a_lane_is_resumed_before_its_first_use_and_within_the_limits() {
    let mut used = lane();
    fill(&mut used, 1);
    assert!(used.resume(Ssn(5), Ssn(3), &[]).is_err());
    let mut raised = lane();
    raised.resume(Ssn(5), Ssn(3), &[]).unwrap();
    assert!(raised.resume(Ssn(6), Ssn(3), &[]).is_err(), "no record is in memory, but numbers are used");
    for (next, acked) in [(Ssn::ZERO, Ssn::ZERO), (Ssn::MAX, Ssn::ZERO), (Ssn(5), Ssn(5)), (Ssn(5), Ssn(6))] {
        assert!(lane().resume(next, acked, &[]).is_err(), "{next} and {acked}");
    }
    assert!(lane().resume(Ssn(Ssn::MAX.0 - 1), Ssn(4), &[]).is_ok());
}

#[test]
fn dispositions_are_restored_and_forgotten_with_their_records() {
    let retain = |epoch| Disposition::Retain { epoch: Epoch(epoch), phase: Phase(1) };
    let mut before = lane();
    fill(&mut before, 30);
    for (upto, disposition) in [(10, retain(1)), (20, Disposition::Release), (30, retain(2))] {
        before.acknowledge(Ssn(upto), disposition).unwrap();
    }
    let runs: Vec<_> = before.runs().collect();
    assert_eq!(runs.len(), 3);
    let mut after = lane();
    after.resume(Ssn(31), Ssn(30), &runs).unwrap();
    assert_eq!(after.runs().collect::<Vec<_>>(), runs);
    // 20 is in the second run, so that stays.
    after.forget_runs_upto(Ssn(19));
    assert_eq!(after.runs().collect::<Vec<_>>(), runs[1..]);
    after.forget_runs_upto(Ssn(20));
    assert_eq!(after.runs().collect::<Vec<_>>(), runs[2..]);
    // Of released records alone there is no table.
    let mut released = lane();
    released.resume(Ssn(31), Ssn(20), &runs[1..2]).unwrap();
    assert_eq!(released.runs().count(), 0);
}

#[test]
fn freed_chunks_take_their_dispositions_along_unless_they_are_on_disk() {
    for is_on_disk in [false, true] {
        let mut lane = lane();
        for epoch in 1..=400 {
            fill(&mut lane, u64::from(epoch));
            let disposition = Disposition::Retain { epoch: Epoch(epoch), phase: Phase(1) };
            lane.acknowledge(Ssn(u64::from(epoch)), disposition).unwrap();
        }
        let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
        assert!(settled.len() > 4);
        for settled in &settled[..3] {
            assert!(if is_on_disk { lane.evict(settled.chunk) } else { lane.free(settled.chunk) });
        }
        let first = if is_on_disk { Ssn(1) } else { lane.kept_from() };
        assert_eq!(lane.runs().next().map(|run| run.first), Some(first), "on disk: {is_on_disk}");
    }
}

#[test]
fn chunks_after_one_that_was_freed_in_the_middle_are_settled_once() {
    let mut lane = lane();
    fill(&mut lane, 400);
    lane.acknowledge(Ssn(1), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    lane.acknowledge(Ssn(200), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    let early: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    assert!(early.len() > 2);
    assert!(lane.free(early[1].chunk) && !lane.free(early[1].chunk));
    lane.acknowledge(Ssn(400), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    let late: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    let lasts: Vec<_> = early.iter().chain(&late).map(|settled| settled.last).collect();
    assert!(lasts.is_sorted_by(|a, b| a < b), "{lasts:?}");
    let kept = ssns(&lane, Ssn(1)).unwrap();
    let expected = (1..=400).filter(|ssn| *ssn <= early[0].last.0 || *ssn > early[1].last.0);
    assert_eq!(kept, expected.collect::<Vec<_>>());
    // All but the current chunk were reported.
    assert_eq!(lane.unsettled().count(), 0);
}

#[test]
fn a_chunk_is_settled_with_the_acknowledgement_of_its_last_record() {
    let mut lane = lane();
    fill(&mut lane, 400);
    let full: Vec<_> = lane.unsettled().map(|(last, _)| last).collect();
    for last in full {
        let retain = |epoch| Disposition::Retain { epoch: Epoch(epoch), phase: Phase(1) };
        lane.acknowledge(last.prev(), retain(1)).unwrap();
        assert!(lane.poll_settled().is_none());
        lane.acknowledge(last, retain(1)).unwrap();
        assert_eq!(lane.poll_settled().map(|settled| settled.last), Some(last));
        assert!(lane.poll_settled().is_none());
    }
}

#[test]
fn the_record_at_the_floor_of_a_relocation_is_not_kept() {
    let mut lane = lane();
    fill(&mut lane, 200);
    lane.acknowledge(Ssn(200), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    let floor = settled[0].last.prev();
    lane.relocate(settled[0].chunk, settled[0].chunk, floor).unwrap();
    assert_eq!(ssns(&lane, lane.kept_from()).unwrap(), (floor.0 + 1..=200).collect::<Vec<_>>());
}

#[test]
fn a_repeated_message_is_compared_wherever_its_record_is() {
    for ssn in (1..=40).step_by(if cfg!(miri) { 13 } else { 1 }) {
        let mut lane = lane();
        fill(&mut lane, 20);
        // A pad between the records.
        drop(lane.claim(3, 50).unwrap());
        fill(&mut lane, 40);
        lane.rewind(Ssn(ssn - 1));
        assert_eq!(lane.rewound_to(), Some(Ssn(ssn)));
        assert!(lane.repeat(b"something else that was never sent").is_err(), "message {ssn}");
        assert_eq!(lane.repeat(&payload(ssn)), Ok(Ssn(ssn)));
    }
    let mut lane = lane();
    fill(&mut lane, 40);
    lane.rewind(Ssn(40));
    assert_eq!(lane.rewound_to(), None, "nothing is to be repeated");
}

#[test]
fn numbers_may_stay_and_a_record_that_is_imported_takes_one_chunk() {
    for bytes in (3800..4096).step_by(if cfg!(miri) { 50 } else { 1 }) {
        let mut lane = lane();
        lane.import(Ssn(5), 3, bytes).unwrap().commit();
        assert_eq!(lane.unsettled().count(), 0, "{bytes} bytes");
        let fits = 112 + (16 + 3 + bytes).next_multiple_of(16) + 16 <= SMALL;
        assert_eq!(lane.held_bytes() == SMALL, fits, "{bytes} bytes take {}", lane.held_bytes());
    }
    let mut lane = lane();
    fill(&mut lane, 3);
    let held = lane.held_bytes();
    lane.set_next(Ssn(4)).unwrap();
    lane.import(Ssn(4), 3, 8).unwrap().commit();
    assert_eq!((lane.held_bytes(), lane.next_ssn()), (held, Ssn(5)), "no number is skipped");
    assert!(lane.set_next(Ssn(4)).is_err() && lane.import(Ssn(4), 0, 0).is_err());
    assert!(lane.set_next(Ssn::MAX).is_err() && lane.import(Ssn::MAX, 0, 0).is_err());
}

#[test]
fn a_lane_that_is_cut_begins_no_chunk() {
    let full = |lane: &LaneWriter| lane.unsettled().map(|(last, _)| last).collect::<Vec<_>>();
    for last in (1..120).step_by(if cfg!(miri) { 40 } else { 1 }) {
        let mut lane = lane();
        fill(&mut lane, 120);
        let mut expected = full(&lane);
        // A chunk that ends with the cut stays full: the next one is empty.
        expected.retain(|sealed| *sealed <= Ssn(last));
        lane.truncate(Ssn(last)).unwrap();
        assert_eq!((full(&lane), lane.next_ssn()), (expected, Ssn(last + 1)), "cut at {last}");
        fill(&mut lane, 120);
        assert_eq!(ssns(&lane, Ssn(1)).unwrap(), (1..=120).collect::<Vec<_>>());
    }
}

#[test]
fn bytes_of_a_chunk_that_is_written_again_count_once() {
    let mut lane = lane();
    fill(&mut lane, 120);
    let (sealed, _) = lane.unsettled().last().unwrap();
    lane.truncate(sealed.prev()).unwrap();
    assert_eq!(lane.appended_bytes(), records(Ssn(1), sealed.prev()) as u64);
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

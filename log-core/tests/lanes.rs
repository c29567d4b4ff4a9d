//! What a lane promises, beside one thread.
#![cfg(not(counterfoil_loom))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use counterfoil_log_core::Relocated;
use counterfoil_log_core::{
    AllocError, AppendError, BLOCK_BYTES_MIN, CursorError, Disposition, Epoch, LaneWriter, Lanes, Phase, Pool,
    PoolOptions, Rank, RepeatError, Ssn, TruncateError,
};
use std::sync::Arc;

const PEER: Rank = Rank(1);

fn pool(memory_bytes_max: usize, chunk_bytes: usize) -> Arc<Pool> {
    Pool::volatile(PoolOptions { memory_bytes_max, chunk_bytes, prefault_bytes: 0, cursors_max: 2 }).unwrap()
}

fn lane() -> LaneWriter {
    LaneWriter::new(pool(1 << 20, 4096), PEER)
}

/// The payload of message `ssn`: a length and bytes that depend on it.
fn payload(ssn: u64) -> Vec<u8> {
    (0..ssn % 97).map(|i| (ssn * 31 + i) as u8).collect()
}

/// Bytes that the records of these messages take, with their headers.
fn records(first: Ssn, last: Ssn) -> usize {
    (first.0..=last.0).map(|ssn| (16 + 3 + ssn as usize % 97).next_multiple_of(16)).sum()
}

fn append(lane: &mut LaneWriter, bytes: &[u8]) -> Ssn {
    let mut claim = lane.claim(3, bytes.len()).unwrap();
    claim.prefix_mut().copy_from_slice(b"pre");
    claim.payload_mut().copy_from_slice(bytes);
    claim.commit()
}

fn fill(lane: &mut LaneWriter, upto: u64) {
    while lane.next_ssn().0 <= upto {
        let bytes = payload(lane.next_ssn().0);
        append(lane, &bytes);
    }
}

fn ssns(lane: &LaneWriter, from: Ssn) -> Result<Vec<u64>, CursorError> {
    let mut cursor = lane.reader().open(from)?;
    let mut seen = Vec::new();
    while let Some(record) = cursor.peek() {
        assert_eq!(record.payload(), payload(record.ssn().0), "{}", record.ssn());
        assert_eq!(record.prefix(), b"pre");
        assert_eq!(record.wire(), [b"pre", record.payload()].concat());
        seen.push(record.ssn().0);
        cursor.advance();
    }
    Ok(seen)
}

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
fn a_dropped_claim_is_a_pad_and_takes_no_number() {
    let mut lane = lane();
    for ssn in 1..200 {
        drop(lane.claim(3, 50).unwrap());
        let claim = lane.claim(0, 2000).unwrap();
        assert_eq!(claim.ssn(), Ssn(ssn));
        drop(claim);
        assert_eq!(append(&mut lane, &payload(ssn)), Ssn(ssn));
    }
    std::mem::forget(lane.claim(0, 5).unwrap());
    fill(&mut lane, 200);
    assert_eq!(ssns(&lane, Ssn::FIRST).unwrap(), (1..=200).collect::<Vec<_>>());
}

#[test]
fn a_record_larger_than_a_chunk_has_its_own() {
    let mut lane = LaneWriter::new(pool(1 << 20, 4096), PEER);
    for size in [4096, 100_000, 10, 4000, 300_000, 0] {
        let mut claim = lane.claim(8, size).unwrap();
        claim.prefix_mut().fill(9);
        claim.payload_mut().fill(size as u8);
        claim.commit();
    }
    let mut cursor = lane.reader().open(Ssn(2)).unwrap();
    for size in [100_000_usize, 10, 4000, 300_000, 0] {
        let record = cursor.peek().unwrap();
        assert_eq!(record.payload().len(), size);
        assert!(record.payload().iter().all(|byte| *byte == size as u8));
        cursor.advance();
    }
}

#[test]
fn what_can_never_fit_is_refused_by_name() {
    let mut lane = LaneWriter::new(pool(64 << 10, 4096), PEER);
    assert!(matches!(lane.claim(0, 1 << 20), Err(AppendError::Alloc(AllocError::TooLarge { .. }))));
    assert!(matches!(lane.claim(4096, 0), Err(AppendError::TooLong { prefix: 4096, payload: 0 })));
    assert!(matches!(lane.claim(1, usize::MAX), Err(AppendError::TooLong { .. })));
    assert_eq!(append(&mut lane, b""), Ssn::FIRST, "a refusal changes nothing");
}

#[test]
fn a_full_budget_says_who_holds_it_and_frees_again() {
    let pool = pool(64 << 10, 4096);
    let mut lanes = Lanes::new(pool.clone(), 3);
    let mut refused = None;
    for turn in 0_u64.. {
        let peer = Rank(if turn % 4 == 0 { 1 } else { 2 });
        match lanes.open(peer).unwrap().claim(0, 1000) {
            Ok(claim) => _ = claim.commit(),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let Some(AppendError::Alloc(AllocError::Full(full))) = refused else { panic!("expected Full: {refused:?}") };
    assert_eq!(full.max_bytes, 64 << 10);
    assert_eq!(full.used_bytes, 64 << 10);
    assert_eq!(full.holders.iter().map(|holder| holder.1).sum::<usize>(), 64 << 10);
    assert_eq!(full.holders[0].0, Rank(2), "the larger holder comes first");
    assert!(full.to_string().contains("held for rank 2"), "{full}");

    let lane = lanes.get_mut(Rank(2)).unwrap();
    let last = lane.next_ssn().prev();
    lane.acknowledge(last, Disposition::Release).unwrap();
    lanes.give_spares_back();
    for _ in 0..20 {
        lanes.open(Rank(1)).unwrap().claim(0, 1000).unwrap().commit();
    }
    assert!(pool.resident_bytes() <= 64 << 10);
}

#[test]
fn a_billion_appends_would_take_no_more_memory_than_a_thousand() {
    let pool = pool(1 << 20, 4096);
    let mut lane = LaneWriter::new(pool.clone(), PEER);
    let mut highest = 0;
    for _ in 0..100_000 {
        lane.claim(0, 64).unwrap().commit();
        let acked = lane.next_ssn().prev().0.saturating_sub(100);
        lane.acknowledge(Ssn(acked), Disposition::Release).unwrap();
        highest = highest.max(pool.resident_bytes());
    }
    assert!(highest <= 6 * 4096, "{highest}");
    assert_eq!(lane.held_bytes(), pool.used_bytes());
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_refused() {
    let mut lane = lane();
    fill(&mut lane, 10);
    let error = lane.acknowledge(Ssn(11), Disposition::Release).unwrap_err();
    assert_eq!((error.acked, error.sent), (Ssn(11), Ssn(10)));
    assert_eq!(lane.acked(), Ssn::ZERO);
    lane.acknowledge(Ssn(10), Disposition::Release).unwrap();
    lane.acknowledge(Ssn(3), Disposition::Release).unwrap();
    assert_eq!(lane.acked(), Ssn(10), "an old acknowledgement says nothing");
}

#[test]
fn what_was_released_is_gone_and_says_so() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    lane.acknowledge(Ssn(900), Disposition::Release).unwrap();
    let Err(CursorError::Gone { kept_from, asked: Ssn(1), .. }) = lane.reader().open(Ssn(1)) else { panic!("kept") };
    assert!(kept_from > Ssn(1) && kept_from <= Ssn(901));
    assert_eq!(ssns(&lane, Ssn(901)).unwrap(), (901..=1000).collect::<Vec<_>>());
}

#[test]
fn a_cursor_keeps_what_it_has_not_read() {
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
fn a_cursor_that_has_passed_what_is_gone_holds_nothing_of_it() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    lane.acknowledge(Ssn(1000), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    let mut cursor = lane.reader().open(Ssn::FIRST).unwrap();
    while cursor.position() <= settled[0].last {
        cursor.read().unwrap();
    }
    // All chunks but the one that the cursor is in go; from its end, the cursor comes to the one that is being written.
    assert!(settled[1..].iter().all(|settled| lane.free(settled.chunk)));
    let held = lane.held_bytes();
    assert_eq!(cursor.peek().unwrap().ssn(), settled.last().unwrap().last.next());
    while cursor.read().is_some() {}
    assert!(lane.free(settled[0].chunk));
    lane.give_spares_back();
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
fn retained_records_are_settled_chunk_by_chunk() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    let retain = |epoch| Disposition::Retain { epoch: Epoch(epoch), phase: Phase(7) };
    lane.acknowledge(Ssn(300), retain(1)).unwrap();
    lane.acknowledge(Ssn(400), Disposition::Release).unwrap();
    lane.acknowledge(Ssn(900), retain(2)).unwrap();
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    assert!(settled.len() > 5);
    assert!(settled.windows(2).all(|pair| pair[0].last.next() == pair[1].first));
    assert!(settled.last().unwrap().last <= Ssn(900));
    assert_eq!(settled[0].newest_epoch, Epoch(1));
    assert_eq!(settled.last().unwrap().newest_epoch, Epoch(2));
    let all = records(Ssn(1), Ssn(300)) + records(Ssn(401), settled.last().unwrap().last);
    let headers = settled.iter().filter(|chunk| chunk.used_bytes > 0).count() * 112;
    assert_eq!(settled.iter().map(|chunk| chunk.used_bytes).sum::<usize>(), all + headers);
    assert_eq!(lane.runs().count(), 3);
}

#[test]
fn pads_are_not_used_bytes_of_a_chunk() {
    let mut lane = lane();
    for ssn in 1..=300 {
        drop(lane.claim(3, 500).unwrap());
        append(&mut lane, &payload(ssn));
    }
    // A cut inside a chunk leaves the pads in front of it, and those behind it are gone.
    lane.truncate(Ssn(250)).unwrap();
    fill(&mut lane, 400);
    lane.acknowledge(Ssn(400), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    assert!(settled.last().unwrap().last > Ssn(300));
    for chunk in settled {
        assert_eq!(chunk.used_bytes, 112 + records(chunk.first, chunk.last), "{chunk:?}");
        assert_eq!(lane.used_bytes_above(chunk.chunk, Ssn::ZERO), Some(chunk.used_bytes));
    }
}

#[test]
fn relocation_keeps_what_is_retained_and_nothing_else() {
    let mut lane = lane();
    fill(&mut lane, 2000);
    for upto in (10..=1990).step_by(10) {
        lane.acknowledge(Ssn(upto - 1), Disposition::Release).unwrap();
        lane.acknowledge(Ssn(upto), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    }
    let before = lane.held_bytes();
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    let mut chunks = settled.iter();
    while let (Some(a), Some(b)) = (chunks.next(), chunks.next()) {
        let moved = lane.relocate(a.chunk, b.chunk, Ssn(100)).unwrap();
        assert_eq!(matches!(moved, Relocated::Into(_)), b.last > Ssn(110), "{moved:?}");
    }
    assert!(lane.held_bytes() < before);
    let last = settled.last().unwrap().last.0;
    let kept = ssns(&lane, Ssn(110)).unwrap();
    let expected: Vec<u64> = (110..=last).filter(|ssn| ssn % 10 == 0).collect();
    let whole: Vec<u64> = kept.iter().copied().filter(|ssn| ssn % 10 == 0 && *ssn <= last).collect();
    assert_eq!(whole, expected);
    assert!(ssns(&lane, Ssn(1)).is_err());
}

#[test]
fn the_writer_finds_every_place_that_a_reader_finds() {
    let check = |lane: &LaneWriter| {
        for from in 1..=lane.next_ssn().0 + 1 {
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
        lane.acknowledge(Ssn(upto), Disposition::Retain { epoch: Epoch(1), phase: Phase(1) }).unwrap();
    }
    let settled: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
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
fn a_receiver_that_rolls_back_has_not_received() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    let retain = Disposition::Retain { epoch: Epoch(1), phase: Phase(1) };
    lane.acknowledge(Ssn(1000 - 1), retain).unwrap();
    let first: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    lane.unacknowledge(Ssn(400));
    assert_eq!(lane.acked(), Ssn(400));
    assert!(lane.poll_settled().is_none());
    lane.acknowledge(Ssn(999), retain).unwrap();
    let again: Vec<_> = std::iter::from_fn(|| lane.poll_settled()).collect();
    assert_eq!(again.last(), first.last());
    assert!(again.len() < first.len());
}

#[test]
fn truncation_forgets_the_end_and_the_numbers_are_given_again() {
    for cut in [0, 1, 50, 137, 999, 1000] {
        let mut lane = lane();
        fill(&mut lane, 1000);
        if cut == 1000 {
            lane.truncate(Ssn(1000)).unwrap();
        } else {
            lane.truncate(Ssn(cut)).unwrap();
        }
        assert_eq!(lane.next_ssn(), Ssn(cut + 1));
        assert_eq!(ssns(&lane, Ssn::FIRST).unwrap(), (1..=cut).collect::<Vec<_>>());
        fill(&mut lane, 1200);
        assert_eq!(ssns(&lane, Ssn::FIRST).unwrap(), (1..=1200).collect::<Vec<_>>());
    }
}

#[test]
fn truncation_is_refused_where_it_can_not_be_right() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    assert!(matches!(lane.truncate(Ssn(1001)), Err(TruncateError::NeverSent { .. })));
    let cursor = lane.reader().open(Ssn(1)).unwrap();
    assert!(matches!(lane.truncate(Ssn(5)), Err(TruncateError::CursorOpen { .. })));
    drop(cursor);
    lane.acknowledge(Ssn(900), Disposition::Release).unwrap();
    lane.truncate(Ssn(950)).unwrap();
    assert_eq!(ssns(&lane, Ssn(901)).unwrap(), (901..=950).collect::<Vec<_>>());
    // Beyond what is still there: the lane is empty, and goes on with the next number.
    lane.truncate(Ssn(5)).unwrap();
    fill(&mut lane, 20);
    assert_eq!(ssns(&lane, Ssn(6)).unwrap(), (6..=20).collect::<Vec<_>>());
}

#[test]
fn a_rewound_lane_compares_what_is_sent_again() {
    let mut lane = lane();
    fill(&mut lane, 1000);
    lane.acknowledge(Ssn(100), Disposition::Release).unwrap();
    lane.rewind(Ssn(20));
    assert_eq!(lane.rewound_to(), Some(Ssn(21)));
    for ssn in 21..=499 {
        // What was released and freed can't be compared, and is passed.
        assert_eq!(lane.repeat(&payload(ssn)).unwrap(), Ssn(ssn));
    }
    let mut other = payload(500);
    other[3] ^= 1;
    let RepeatError::Diverged(diverged) = lane.repeat(&other).unwrap_err() else { panic!("not rewound") };
    assert_eq!((diverged.ssn, diverged.at), (Ssn(500), 3));
    for ssn in 500..=1000 {
        lane.repeat(&payload(ssn)).unwrap();
    }
    assert_eq!(lane.rewound_to(), None);
    assert!(matches!(lane.repeat(b""), Err(RepeatError::NotRewound { .. })));
    fill(&mut lane, 1100);
    assert_eq!(ssns(&lane, Ssn(200)).unwrap(), (200..=1100).collect::<Vec<_>>());
}

#[test]
fn a_checkpoints_records_are_imported_under_their_numbers() {
    let mut lane = lane();
    for ssn in (40..400).step_by(3) {
        let bytes = payload(ssn);
        let mut claim = lane.import(Ssn(ssn), 3, bytes.len()).unwrap();
        claim.prefix_mut().copy_from_slice(b"pre");
        claim.payload_mut().copy_from_slice(&bytes);
        claim.commit();
    }
    assert!(lane.import(Ssn(100), 0, 0).is_err());
    lane.set_next(Ssn(500)).unwrap();
    assert!(lane.set_next(Ssn(499)).is_err());
    fill(&mut lane, 600);
    let expected: Vec<u64> = (40..400).step_by(3).chain(500..=600).collect();
    assert_eq!(ssns(&lane, Ssn(40)).unwrap(), expected);
    assert!(matches!(lane.reader().open(Ssn(39)), Err(CursorError::Gone { kept_from: Ssn(40), .. })));
}

#[test]
fn a_dropped_lane_gives_its_memory_back() {
    let pool = pool(1 << 20, 4096);
    let mut lane = LaneWriter::new(pool.clone(), PEER);
    fill(&mut lane, 1000);
    assert!(pool.used_bytes() > 10 * BLOCK_BYTES_MIN);
    drop(lane);
    assert_eq!(pool.used_bytes(), 0);
}

#[test]
fn options_out_of_their_limits_are_named() {
    let bad = [
        (PoolOptions { chunk_bytes: 5000, ..PoolOptions::default() }, "chunk_bytes"),
        (PoolOptions { memory_bytes_max: 100, ..PoolOptions::default() }, "memory_bytes_max"),
        (PoolOptions { memory_bytes_max: usize::MAX, ..PoolOptions::default() }, "memory_bytes_max"),
        (PoolOptions { prefault_bytes: 1 << 40, ..PoolOptions::default() }, "prefault_bytes"),
        (PoolOptions { cursors_max: 0, ..PoolOptions::default() }, "cursors_max"),
    ];
    for (options, name) in bad {
        assert_eq!(options.geometry().unwrap_err().option, name);
    }
}

//! Claims, limits, and the report on a full budget.

use counterfoil_log_core::{
    AllocError, AppendError, BLOCK_BYTES_MIN, BODY_BYTES_MAX, Disposition, LaneWriter, Lanes, PREFIX_BYTES_MAX, Rank,
    Ssn,
};

use super::{PEER, append, fill, lane, payload, pool, records, ssns};

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
fn a_prefetching_commit_publishes_the_record_also_at_the_end_of_the_memory() {
    let mut lane = LaneWriter::new(pool(64 << 10, 4096), PEER);
    let mut ssn = Ssn::ZERO;
    while let Ok(mut claim) = lane.claim(3, payload(ssn.0).len()) {
        claim.prefix_mut().fill(7);
        claim.payload_mut().copy_from_slice(&payload(ssn.0));
        assert_eq!(claim.commit_and_prefetch(), ssn.next());
        ssn = ssn.next();
    }
    assert!(ssn.0 > 20, "{ssn}");
    let mut cursor = lane.reader().open(Ssn::FIRST).unwrap();
    for before in 0..ssn.0 {
        let record = cursor.peek().unwrap();
        assert!(record.prefix() == [7; 3] && record.payload() == payload(before));
        cursor.advance();
    }
    assert!(cursor.peek().is_none());
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
        assert!(record.payload() == vec![size as u8; size], "{size} bytes");
        cursor.advance();
    }
}

#[test]
fn records_that_can_never_fit_get_an_error_of_their_own() {
    let mut lane = LaneWriter::new(pool(64 << 10, 4096), PEER);
    assert!(matches!(lane.claim(0, 1 << 20), Err(AppendError::Alloc(AllocError::TooLarge { .. }))));
    assert!(matches!(lane.claim(4096, 0), Err(AppendError::TooLong { prefix: 4096, payload: 0 })));
    assert!(matches!(lane.claim(1, usize::MAX), Err(AppendError::TooLong { .. })));
    assert_eq!(append(&mut lane, b""), Ssn::FIRST, "a refusal changes nothing");
}

#[test]
fn a_full_budget_names_its_holders_and_recovers() {
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
    lanes.return_spares();
    for _ in 0..20 {
        lanes.open(Rank(1)).unwrap().claim(0, 1000).unwrap().commit();
    }
    assert!(pool.resident_bytes() <= 64 << 10);
}

#[test]
fn an_idle_lane_shrinks_to_the_smallest_chunk() {
    let pool = pool(1 << 20, 16 << 10);
    let mut lane = LaneWriter::new(pool.clone(), PEER);
    lane.claim(0, 100_000).unwrap().commit();
    let mut cursor = lane.reader().open(Ssn::FIRST).unwrap();
    // An unacknowledged record prevents it.
    lane.shrink_if_idle();
    assert!(!lane.is_idle() && lane.held_bytes() > 100_000);
    lane.acknowledge(Ssn::FIRST, Disposition::Release).unwrap();
    lane.shrink_if_idle();
    // The cursor still reads the record; then it leaves the old chunk.
    assert_eq!(cursor.read().unwrap().payload().len(), 100_000);
    assert!(lane.is_idle() && lane.held_bytes() > 100_000 && cursor.peek().is_none());
    lane.return_spares();
    assert_eq!((lane.held_bytes(), pool.used_bytes()), (BLOCK_BYTES_MIN, BLOCK_BYTES_MIN));
    // A second call changes nothing, and the lane goes on.
    lane.shrink_if_idle();
    assert_eq!(lane.held_bytes(), BLOCK_BYTES_MIN);
    assert_eq!(lane.claim(0, 100_000).unwrap().commit(), Ssn(2));
    assert_eq!(cursor.read().unwrap().ssn(), Ssn(2));
}

#[test]
fn idle_lanes_whose_current_chunks_take_the_whole_budget_give_them_up() {
    let budget = 64 << 10;
    let pool = pool(budget, 16 << 10);
    let mut lanes = Lanes::new(pool.clone(), 4);
    for peer in [0, 1].map(Rank) {
        let lane = lanes.open(peer).unwrap();
        lane.claim(0, 30_000).unwrap().commit();
        lane.acknowledge(Ssn::FIRST, Disposition::Release).unwrap();
    }
    assert_eq!(pool.used_bytes(), budget);
    let mut cursor = lanes.get(Rank(0)).unwrap().reader().open(Ssn::FIRST).unwrap();
    assert!(lanes.open(Rank(2)).unwrap().claim(0, 100).is_err());
    // A cursor holds the first chunk; its small successor is beyond the budget, and no second one may be.
    lanes.shrink_idle();
    lanes.return_spares();
    assert_eq!((pool.used_bytes(), pool.resident_bytes()), (budget + BLOCK_BYTES_MIN, budget + BLOCK_BYTES_MIN));
    assert_eq!(lanes.get(Rank(1)).unwrap().held_bytes(), budget / 2);
    assert!(lanes.open(Rank(2)).unwrap().claim(0, 100).is_err());
    // With the first chunk, the excess is gone.
    assert!(cursor.read().is_some() && cursor.peek().is_none());
    lanes.return_spares();
    assert_eq!(
        (pool.used_bytes(), pool.resident_bytes()),
        (budget / 2 + BLOCK_BYTES_MIN, budget / 2 + BLOCK_BYTES_MIN)
    );
    lanes.shrink_idle();
    assert_eq!((pool.used_bytes(), pool.resident_bytes()), (2 * BLOCK_BYTES_MIN, budget / 2 + 2 * BLOCK_BYTES_MIN));
    for peer in [2, 0].map(Rank) {
        lanes.open(peer).unwrap().claim(0, 25_000).unwrap().commit();
    }
    assert!(pool.resident_bytes() <= budget);
}

#[test]
fn memory_does_not_grow_with_the_number_of_appends() {
    let pool = pool(1 << 20, 4096);
    let mut lane = LaneWriter::new(pool.clone(), PEER);
    let mut highest = 0;
    for _ in 0..if cfg!(miri) { 1000 } else { 100_000 } {
        lane.claim(0, 64).unwrap().commit();
        let acked = lane.next_ssn().prev().0.saturating_sub(100);
        lane.acknowledge(Ssn(acked), Disposition::Release).unwrap();
        highest = highest.max(pool.resident_bytes());
    }
    assert!(highest <= 6 * 4096, "{highest}");
    assert_eq!(lane.held_bytes(), pool.used_bytes());
}

#[test]
fn a_dropped_lane_frees_its_memory() {
    let pool = pool(1 << 20, 4096);
    let mut lane = LaneWriter::new(pool.clone(), PEER);
    fill(&mut lane, 1000);
    assert!(pool.used_bytes() > 10 * BLOCK_BYTES_MIN);
    drop(lane);
    assert_eq!(pool.used_bytes(), 0);
}

#[test]
fn a_recovered_lane_takes_the_place_of_its_rank() {
    let pool = pool(1 << 20, 4096);
    let mut lanes = Lanes::new(pool.clone(), 3);
    let mut recovered = LaneWriter::new(pool.clone(), Rank(2));
    fill(&mut recovered, 3);
    lanes.adopt(recovered).unwrap();
    assert_eq!(lanes.open(Rank(2)).unwrap().next_ssn(), Ssn(4));
    let stranger = lanes.adopt(LaneWriter::new(pool, Rank(3))).unwrap_err();
    assert_eq!(stranger.peer(), Rank(3));
}

#[test]
fn bytes_that_were_appended_count_after_they_are_gone() {
    let mut lane = lane();
    assert_eq!(lane.appended_bytes(), 0);
    fill(&mut lane, 10);
    assert_eq!(lane.appended_bytes(), records(Ssn(1), Ssn(10)) as u64);
    drop(lane.claim(0, 100).unwrap());
    assert_eq!(lane.appended_bytes(), records(Ssn(1), Ssn(10)) as u64 + 128, "a pad");
    fill(&mut lane, 1000);
    let appended = lane.appended_bytes();
    assert_eq!(appended, records(Ssn(1), Ssn(1000)) as u64 + 128);
    lane.acknowledge(Ssn(1000), Disposition::Release).unwrap();
    assert!(lane.kept_from() > Ssn(900));
    assert_eq!(lane.appended_bytes(), appended);
}

#[test]
fn a_lane_without_memory_holds_none_of_a_full_budget() {
    let pool = pool(2 * BLOCK_BYTES_MIN, BLOCK_BYTES_MIN);
    let (mut full, mut idle) = (LaneWriter::new(pool.clone(), Rank(2)), LaneWriter::new(pool, PEER));
    for _ in 0..2 {
        full.claim(0, 3000).unwrap().commit();
    }
    let Err(AppendError::Alloc(AllocError::Full(pressure))) = idle.claim(0, 8) else { panic!("there is room") };
    assert_eq!(pressure.holders, [(Rank(2), 2 * BLOCK_BYTES_MIN)]);
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

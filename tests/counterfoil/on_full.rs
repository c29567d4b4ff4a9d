//! Behaviour when the memory budget is used up.

use counterfoil::{
    Ack, AppendError, Backpressure, CursorError, Epoch, Keep, Log, Options, Phase, Rank, ReplayError, Ssn,
};

const BUDGET: usize = 256 << 10;
const CHUNK: usize = 16 << 10;

fn log(stops_logging: bool, keep: Keep) -> Log {
    let mut options = Options::new(Rank(0), 4);
    (options.stops_logging, options.keep) = (stops_logging, keep);
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (BUDGET, CHUNK, 0);
    Log::create(options).unwrap()
}

fn append(log: &mut Log, peer: u32) -> Result<Ssn, AppendError> {
    let mut claim = log.try_claim(Rank(peer), 0, 1000).map_err(|refused| *refused)?;
    claim.payload_mut().fill(peer as u8);
    Ok(claim.commit())
}

fn acknowledge_all(log: &mut Log, peer: u32) {
    let upto = log.next_ssn(Rank(peer)).prev();
    log.acknowledge(Rank(peer), Ack { ssn: upto, epoch: Epoch::FIRST }, Phase::default()).unwrap();
}

/// Appends until a claim is refused; returns the refusal.
fn fill(log: &mut Log, peer: u32) -> Backpressure {
    loop {
        match append(log, peer) {
            Ok(_) => assert!(log.stats().used_bytes <= BUDGET),
            Err(AppendError::Full(full)) => return *full,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_full_log_names_the_bytes_held_for_each_peer() {
    let mut log = log(false, Keep::Checkpoint);
    for _ in 0..10 {
        append(&mut log, 2).unwrap();
    }
    let full = fill(&mut log, 1);
    assert_eq!(full.holders.iter().map(|(peer, _)| peer.0).collect::<Vec<_>>(), [1, 2], "largest holder first");
    assert_eq!(full.holders.iter().map(|(_, bytes)| bytes).sum::<usize>(), full.used_bytes);
    assert!(full.holders[0].1 > 10 * full.holders[1].1, "{full}");
    assert_eq!((full.requested_bytes, full.max_bytes), (CHUNK, BUDGET));
    assert!(full.used_bytes + full.requested_bytes > BUDGET, "{full}");
    assert!(full.to_string().contains("held for rank 1"), "{full}");
}

#[test]
fn fully_acknowledged_lanes_make_room_for_others() {
    let mut log = log(false, Keep::Acked);
    let large = |log: &mut Log, peer| log.try_claim(Rank(peer), 0, 100_000).map(|claim| claim.commit()).is_ok();
    assert!(large(&mut log, 1) && large(&mut log, 2));
    assert!(!large(&mut log, 3), "neither of the two is acknowledged");
    acknowledge_all(&mut log, 1);
    assert!(large(&mut log, 3) && !large(&mut log, 3) && !large(&mut log, 1));
    // A lane with more than its share gets idle lanes' memory once it is idle itself.
    acknowledge_all(&mut log, 2);
    assert!(!large(&mut log, 3));
    acknowledge_all(&mut log, 3);
    assert!(large(&mut log, 3) && large(&mut log, 1));
}

#[test]
fn a_refused_claim_changes_nothing_and_can_be_retried() {
    let mut log = log(false, Keep::Checkpoint);
    let first = fill(&mut log, 1);
    let (next, stats) = (log.next_ssn(Rank(1)), log.stats());
    assert_eq!(fill(&mut log, 1), first);
    assert_eq!((log.next_ssn(Rank(1)), log.stats()), (next, stats));

    // An acknowledgement alone frees nothing: the messages are retained for a replay.
    acknowledge_all(&mut log, 1);
    assert_eq!(fill(&mut log, 1).holders[0].0, Rank(1));
    // A checkpoint frees them.
    log.receiver_covered(Rank(1), Epoch(2), next.prev()).unwrap();
    assert!(log.collect().chunks >= 10);
    assert_eq!(append(&mut log, 1).unwrap(), next);
}

#[test]
fn fail_never_frees_retained_messages() {
    let mut log = log(false, Keep::Checkpoint);
    loop {
        if append(&mut log, 1).is_err() {
            break;
        }
        acknowledge_all(&mut log, 1);
    }
    for _ in 0..3 {
        assert!(matches!(append(&mut log, 1), Err(AppendError::Full(_))));
        assert!(matches!(append(&mut log, 2), Err(AppendError::Full(_)) | Ok(_)));
    }
    assert!(!log.stats().stopped_logging);
    assert!(log.cursor(Rank(1), Ssn::FIRST).is_ok(), "all messages can still be replayed");
}

#[test]
fn after_stop_logging_nothing_is_retained() {
    let mut log = log(true, Keep::Checkpoint);
    let mut sent = 0;
    while !log.stats().stopped_logging {
        sent += 1;
        assert_eq!(append(&mut log, 1).unwrap(), Ssn(sent), "no message is refused or skipped");
        acknowledge_all(&mut log, 1);
        assert!(sent < 1000, "the budget has room for some 250 messages");
    }
    let gone = log.cursor(Rank(1), Ssn::FIRST).unwrap_err();
    assert!(matches!(gone, ReplayError::Cursor(CursorError::Gone { .. })), "{gone}");
    assert_eq!(log.stats().holders, []);

    for number in 0..10_000 {
        append(&mut log, 1 + number % 2).unwrap();
        acknowledge_all(&mut log, 1 + number % 2);
        assert!(log.stats().used_bytes <= 2 * 4 * CHUNK, "{:?}", log.stats());
    }
    assert_eq!(log.stats().holders.iter().map(|holder| holder.bytes).sum::<usize>(), 0, "{:?}", log.stats());
    assert_eq!(log.next_ssn(Rank(1)), Ssn(sent + 5001));
}

#[test]
fn stop_logging_keeps_unacknowledged_messages() {
    let mut log = log(true, Keep::Checkpoint);
    let full = fill(&mut log, 1);
    assert_eq!(full.holders, [(Rank(1), full.used_bytes)]);
    assert!(log.stats().stopped_logging);
    let mut cursor = log.cursor(Rank(1), Ssn::FIRST).unwrap();
    let mut count = 0;
    while let Some(record) = cursor.peek().unwrap() {
        assert_eq!(record.payload(), [1; 1000]);
        count += 1;
        cursor.advance();
    }
    drop(cursor);
    assert_eq!(Ssn(count), log.next_ssn(Rank(1)).prev());
    acknowledge_all(&mut log, 1);
    append(&mut log, 1).unwrap();
}

#[test]
fn logging_can_be_stopped_at_any_time() {
    let mut log = log(false, Keep::All);
    for _ in 0..100 {
        append(&mut log, 3).unwrap();
    }
    acknowledge_all(&mut log, 3);
    let before = log.stats().used_bytes;
    log.stop_logging();
    let stats = log.stats();
    assert!(stats.stopped_logging && stats.used_bytes < before / 2, "{stats:?}");
    for _ in 0..10_000 {
        append(&mut log, 3).unwrap();
        acknowledge_all(&mut log, 3);
    }
}

#[test]
fn the_least_budget_for_a_message_is_enough_and_a_byte_less_is_not() {
    for (prefix, payload) in [(0, 0), (64, 1000), (64, 60_000), (64, 65_536), (64, 200_000), (8, 10_000_000)] {
        let least = Options::new(Rank(0), 4).memory_bytes_for(prefix, payload).unwrap();
        let claim = |memory_bytes_max| {
            let options = Options { memory_bytes_max, prefault_bytes: 0, ..Options::new(Rank(0), 4) };
            Log::create(options).ok().is_some_and(|mut log| log.try_claim(Rank(1), prefix, payload).is_ok())
        };
        assert!(claim(least) && !claim(least - 1), "{prefix} + {payload} bytes: {least}");
    }
    let options = Options { record_bytes_max: 1 << 20, ..Options::new(Rank(0), 4) };
    for (prefix, payload) in [(5000, 0), (1, 1 << 20), (0, usize::MAX), (usize::MAX, usize::MAX)] {
        assert_eq!(options.memory_bytes_for(prefix, payload), None);
    }
}

#[test]
fn claim_if_room_claims_like_the_others_but_never_makes_room() {
    let mut log = log(false, Keep::Acked);
    // Before the first chunk, for invalid ranks, and for sizes that never fit.
    for (peer, prefix, payload) in [(1, 0, 8), (4, 0, 8), (1, 5000, 0), (1, 8, usize::MAX), (1, usize::MAX, 8)] {
        assert!(log.claim_if_room(Rank(peer), prefix, payload).is_none());
        assert_eq!(log.stats().used_bytes, 0);
    }
    let mut expected = append(&mut log, 1).unwrap();
    let mut in_place = 0;
    loop {
        expected = expected.next();
        if let Some(mut claim) = log.claim_if_room(Rank(1), 8, 992) {
            let (prefix, payload) = claim.parts_mut();
            assert_eq!((prefix.len(), payload.len()), (8, 992));
            prefix.copy_from_slice(&expected.0.to_le_bytes());
            payload.fill(7);
            assert_eq!(claim.commit(), expected);
            in_place += 1;
        } else {
            // Only the other claims begin a new chunk.
            match append(&mut log, 1) {
                Ok(ssn) => assert_eq!(ssn, expected),
                Err(_) => break,
            }
        }
    }
    // A chunk has room for some fifteen records, the first claimed by the other call.
    let records = expected.0 - 1;
    assert!(in_place > records * 9 / 10 && in_place < records, "{in_place} of {records}");
    let mut cursor = log.cursor(Rank(1), Ssn::FIRST).unwrap();
    for ssn in 1..=records {
        let record = cursor.read().unwrap().unwrap();
        assert_eq!((record.ssn(), record.wire().len()), (Ssn(ssn), 1000));
        assert!(record.prefix().is_empty() || record.prefix() == ssn.to_le_bytes() && record.payload() == [7; 992]);
    }
}

#[test]
fn a_record_that_can_never_fit_has_its_own_error() {
    let mut log = log(true, Keep::Checkpoint);
    for payload in [BUDGET - 100, BUDGET, usize::MAX] {
        let error = log.try_claim(Rank(1), 0, payload).unwrap_err();
        assert!(matches!(*error, AppendError::TooLong { .. }), "{payload}: {error}");
        assert!(error.to_string().contains("memory_bytes_max"), "{error}");
    }
    let error = log.try_claim(Rank(1), 5000, 0).unwrap_err();
    assert!(matches!(*error, AppendError::TooLong { .. }), "a prefix is at most 4095 bytes: {error}");
    let error = log.try_claim(Rank(4), 0, 1).unwrap_err();
    assert!(matches!(*error, AppendError::NoSuchRank { peer: Rank(4), ranks: 4 }), "{error}");
    assert!(!log.stats().stopped_logging, "none of these errors stops logging");
    drop(log.try_claim(Rank(1), 80, BUDGET / 2).unwrap());
}

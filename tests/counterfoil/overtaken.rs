//! Cursors overtaken by spilling: they hold no memory but their current chunk, and miss no record.

use counterfoil::{Ack, Cursor, Epoch, Keep, Log, Options, Phase, Rank, ReplayError, Ssn};

use crate::spilled::{MIB, acknowledge, append, payload, with_dir};

const PEER: Rank = Rank(1);

/// Appends records up to `last`, twenty times the memory and more; none is refused.
fn fill(log: &mut Log, last: u64) {
    while log.next_ssn(PEER) <= Ssn(last) {
        append(log, PEER).unwrap_or_else(|refused| panic!("{}: {refused}", log.next_ssn(PEER)));
    }
}

/// Reads and checks the records from `first` to `last`.
fn check(cursor: &mut Cursor, first: u64, last: u64) {
    for ssn in (first..=last).map(Ssn) {
        let record = cursor.read().unwrap().unwrap_or_else(|| panic!("{ssn} is missing"));
        assert_eq!(record.ssn(), ssn);
        assert!(record.payload() == payload(PEER, ssn), "{ssn} has other bytes");
    }
    assert!(cursor.read().unwrap().is_none());
}

#[test]
fn a_cursor_that_lags_is_overtaken_and_reads_every_record() {
    with_dir(2, |options| {
        let mut log = Log::create(options).unwrap();
        let mut unread = log.cursor(PEER, Ssn::FIRST).unwrap();
        fill(&mut log, 100);
        let mut lagging = log.cursor(PEER, Ssn::FIRST).unwrap();
        assert_eq!(lagging.read().unwrap().unwrap().ssn(), Ssn::FIRST);
        fill(&mut log, 20_000);
        assert!(log.stats().spilled_bytes > 18 * MIB);
        check(&mut lagging, 2, 20_000);
        check(&mut unread, 1, 20_000);
        // Both are at the end now, and go on from there.
        fill(&mut log, 40_000);
        check(&mut lagging, 20_001, 40_000);
    });
}

#[test]
fn a_cursor_that_lags_is_overtaken_by_acknowledged_records() {
    with_dir(2, |options| {
        let mut log = Log::create(options).unwrap();
        fill(&mut log, 100);
        let mut lagging = log.cursor(PEER, Ssn::FIRST).unwrap();
        assert_eq!(lagging.peek().unwrap().unwrap().ssn(), Ssn::FIRST);
        for ssn in 101..=20_000 {
            fill(&mut log, ssn);
            acknowledge(&mut log, PEER, Ssn(ssn));
        }
        check(&mut lagging, 1, 20_000);
    });
}

#[test]
fn a_cursor_that_is_opened_ahead_and_never_read_holds_no_memory() {
    with_dir(2, |options| {
        let mut log = Log::create(options).unwrap();
        let mut in_an_empty_lane = log.cursor(PEER, Ssn(4000)).unwrap();
        fill(&mut log, 100);
        let mut in_a_used_lane = log.cursor(PEER, Ssn(5000)).unwrap();
        fill(&mut log, 20_000);
        check(&mut in_an_empty_lane, 4000, 20_000);
        check(&mut in_a_used_lane, 5000, 20_000);
    });
}

#[test]
fn a_cursor_ahead_of_the_writer_does_not_delay_the_release_of_earlier_records() {
    let mut options = Options::new(Rank(0), 2);
    (options.memory_bytes_max, options.chunk_bytes, options.prefault_bytes) = (256 << 10, 16 << 10, 0);
    options.keep = Keep::Acked;
    let mut log = Log::create(options).unwrap();
    fill(&mut log, 10);
    let mut ahead = log.cursor(PEER, Ssn(5000)).unwrap();
    for ssn in 11..5000 {
        fill(&mut log, ssn);
        acknowledge(&mut log, PEER, Ssn(ssn));
    }
    assert!(ahead.read().unwrap().is_none());
    fill(&mut log, 5050);
    acknowledge(&mut log, PEER, Ssn(5050));
    check(&mut ahead, 5000, 5050);
}

#[test]
fn an_overtaken_cursor_passes_over_what_a_checkpoint_covers() {
    with_dir(2, |options| {
        let mut log = Log::create(options).unwrap();
        fill(&mut log, 100);
        let mut lagging = log.cursor(PEER, Ssn::FIRST).unwrap();
        assert_eq!(lagging.read().unwrap().unwrap().ssn(), Ssn::FIRST);
        fill(&mut log, 5000);
        log.acknowledge(PEER, Ack { ssn: Ssn(4000), epoch: Epoch::FIRST }, Phase(0)).unwrap();
        log.receiver_covered(PEER, Epoch(2), Ssn(3000)).unwrap();
        log.collect();
        let mut seen = Vec::new();
        while let Some(record) = lagging.read().unwrap() {
            assert!(record.payload() == payload(PEER, record.ssn()), "{} has other bytes", record.ssn());
            seen.push(record.ssn().0);
        }
        let uncovered = seen.iter().copied().filter(|ssn| *ssn > 3000);
        assert!(seen.is_sorted_by(|a, b| a < b) && uncovered.eq(3001..=5000));
    });
}

#[test]
fn an_overtaken_cursor_still_keeps_its_lane_from_being_truncated() {
    with_dir(2, |options| {
        let mut log = Log::create(options).unwrap();
        let ahead = log.cursor(PEER, Ssn(4000)).unwrap();
        fill(&mut log, 5000);
        assert!(log.truncate(PEER, Ssn(4500)).is_err());
        drop(ahead);
        log.truncate(PEER, Ssn(4500)).unwrap();
    });
}

#[test]
fn a_reader_thread_that_is_overtaken_again_and_again_misses_no_record() {
    const LAST: u64 = 40_000;
    with_dir(2, |options| {
        let mut log = Log::create(options).unwrap();
        let reader = log.reader(PEER).unwrap();
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || -> Result<u64, ReplayError> {
                let mut cursor = reader.open(Ssn::FIRST)?;
                let mut next = Ssn::FIRST;
                while next.0 <= LAST {
                    let Some(record) = cursor.read()? else {
                        std::thread::yield_now();
                        continue;
                    };
                    assert_eq!(record.ssn(), next);
                    assert!(record.payload() == payload(PEER, next), "{next} has other bytes");
                    next = next.next();
                }
                Ok(next.0 - 1)
            });
            fill(&mut log, LAST);
            assert_eq!(reading.join().unwrap().unwrap(), LAST);
        });
    });
}

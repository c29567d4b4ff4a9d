//! Evicted records: a cursor waiting for a lane's first chunk must not take the first remaining chunk for it.

use loom::thread;

use super::{WHOLE, append, assert_contiguous, check, lane, lane_with, read, retain, settle};
use crate::lane::CursorError;
use crate::nouns::Ssn;

/// A cursor is opened before the lane's first chunk, and waits for it while the chunk is written, evicted to disk and
/// followed by others: it reads from the first record on, or nothing, and then reports records gone from memory.
#[test]
fn a_waiting_cursor_does_not_skip_evicted_records() {
    check(|| {
        let mut lane = lane(4);
        let mut cursor = lane.reader().open(Ssn::FIRST).expect("nothing is gone");
        let reading = thread::spawn(move || {
            let seen = read(&mut cursor);
            (cursor, seen)
        });
        (0..2).for_each(|_| append(&mut lane, WHOLE));
        retain(&mut lane, 1);
        let settled = settle(&mut lane);
        assert!(lane.evict(settled[0]));
        append(&mut lane, WHOLE);
        let (mut cursor, mut seen) = reading.join().expect("the reader ends");
        let was_in_first_chunk = cursor.is_attached();
        seen.extend(read(&mut cursor));
        if was_in_first_chunk {
            assert_eq!(seen, [1, 2, 3]);
        } else {
            assert!(seen.is_empty(), "{seen:?}");
            let gone = cursor.attach();
            assert!(matches!(gone, Err(CursorError::Gone { kept_from: Ssn(2), .. })), "{gone:?}");
        }
    });
}

/// A cursor's chunk and the next one are evicted, while memory is reused at once: it reads both, or its own and then
/// reports the missing records.
///
/// It never reads reused memory.
#[test]
fn an_overtaken_cursor_reads_its_chunk_and_no_reused_one() {
    check(|| {
        let mut lane = lane_with(5, 3);
        let reader = lane.reader();
        let mut cursor = reader.open(Ssn::FIRST).expect("nothing is gone");
        let reading = thread::spawn(move || {
            let seen = read(&mut cursor);
            assert_contiguous(&seen, 1);
            assert!(!seen.is_empty(), "its own chunk");
            if !cursor.is_attached() {
                // Gone, or attached again to what was written meanwhile.
                match cursor.attach() {
                    Err(CursorError::Gone { asked, kept_from, .. }) => {
                        assert!(asked.0 == seen.len() as u64 + 1 && kept_from > asked)
                    }
                    found => assert!(found.is_ok(), "{found:?}"),
                }
            }
        });
        assert!(lane.evict_unsettled(Ssn(1)).is_some() && lane.evict_unsettled(Ssn(2)).is_some());
        append(&mut lane, WHOLE);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
        drop(reader);
    });
}

/// The same while the cursor is in a remaining chunk: it goes on from there in memory.
#[test]
fn a_cursor_goes_on_from_the_first_chunk_that_is_left() {
    check(|| {
        let mut lane = lane_with(5, 3);
        let reader = lane.reader();
        let mut cursor = reader.open(Ssn(2)).expect("nothing is gone");
        let reading = thread::spawn(move || {
            let seen = read(&mut cursor);
            assert_contiguous(&seen, 2);
            assert!(seen.len() >= 2 && cursor.is_attached(), "2 and 3 were there from the start: {seen:?}");
        });
        assert!(lane.evict_unsettled(Ssn(1)).is_some());
        append(&mut lane, WHOLE);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
        drop(reader);
    });
}

/// A cursor is opened while the lane's first chunk is written and evicted before its record is acknowledged: it is
/// refused, reads from the first record on, or waits and then reports records gone from memory.
#[test]
fn a_cursor_is_refused_or_reads_records_that_are_evicted_before_they_are_acknowledged() {
    check(|| {
        let mut lane = lane(4);
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            let cursor = reader.open(Ssn::FIRST);
            cursor.map(|mut cursor| (read(&mut cursor), cursor))
        });
        (0..2).for_each(|_| append(&mut lane, WHOLE));
        assert!(lane.evict_unsettled(Ssn::FIRST).is_some());
        append(&mut lane, WHOLE);
        let gone = match reading.join().expect("the reader ends") {
            Ok((mut seen, mut cursor)) if cursor.is_attached() => {
                seen.extend(read(&mut cursor));
                assert_eq!(seen, [1, 2, 3]);
                return;
            }
            Ok((seen, mut cursor)) => {
                assert!(seen.is_empty(), "{seen:?}");
                cursor.attach().expect_err("1 is gone")
            }
            Err(gone) => gone,
        };
        assert!(matches!(gone, CursorError::Gone { kept_from: Ssn(2), .. }), "{gone:?}");
    });
}

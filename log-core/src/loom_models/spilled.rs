//! Evicted records: a cursor that waits for a lane's first chunk must not take the first chunk that is left for it.

use loom::thread;

use super::{WHOLE, append, check, lane, read, retain, settle};
use crate::lane::CursorError;
use crate::nouns::Ssn;

/// A cursor is opened before the lane's first chunk, and waits for it while the chunk is written, evicted to disk and followed by
/// others: it reads from the first record on, or nothing, and then says that records are gone from memory.
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

/// A cursor is opened while the lane's first chunk is written and evicted before its record is acknowledged: it is refused, or reads
/// from the first record on. One that waits for the first chunk pins it.
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
        let is_evicted = lane.evict_unsettled(Ssn::FIRST).is_some();
        append(&mut lane, WHOLE);
        match reading.join().expect("the reader ends") {
            Ok((mut seen, mut cursor)) => {
                seen.extend(read(&mut cursor));
                assert_eq!(seen, [1, 2, 3]);
            }
            Err(gone) => {
                assert!(is_evicted && matches!(gone, CursorError::Gone { kept_from: Ssn(2), .. }), "{gone:?}");
            }
        }
    });
}

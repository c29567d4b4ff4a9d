//! Claims, commits and pads while a cursor reads.

use loom::thread;

use super::{HALF, QUARTER, append, assert_contiguous, check, lane, read};
use crate::nouns::Ssn;

/// A cursor opened and read while the lane's first chunk is begun, filled (with a dropped claim in between) and left
/// for the next one sees a prefix of the committed records: whole, in order, without the pad and without records from
/// an earlier use of the chunks.
///
/// After the writer is done, the same cursor sees the rest.
#[test]
fn a_cursor_sees_a_prefix_of_what_was_committed() {
    check(|| {
        let mut lane = lane(2);
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            let mut cursor = reader.open(Ssn::FIRST).expect("nothing is gone");
            let seen = read(&mut cursor);
            (cursor, seen)
        });
        append(&mut lane, QUARTER);
        drop(lane.claim(0, QUARTER));
        append(&mut lane, QUARTER);
        append(&mut lane, HALF);
        let (mut cursor, mut seen) = reading.join().expect("the reader ends");
        seen.extend(read(&mut cursor));
        assert_eq!(seen, [1, 2, 3]);
    });
}

/// A leaked claim leaves no trace: a cursor sees neither the claim nor the zero after it, now part of the next body.
#[test]
fn a_leaked_claim_is_never_seen() {
    check(|| {
        let mut lane = lane(1);
        append(&mut lane, QUARTER);
        let mut cursor = lane.reader().open(Ssn::FIRST).expect("nothing is gone");
        let reading = thread::spawn(move || {
            let seen = read(&mut cursor);
            (cursor, seen)
        });
        std::mem::forget(lane.claim(0, QUARTER));
        append(&mut lane, HALF);
        let (mut cursor, mut seen) = reading.join().expect("the reader ends");
        seen.extend(read(&mut cursor));
        assert_eq!(seen, [1, 2]);
    });
}

/// A writer may be handed from thread to thread (here in a mutex) while a cursor reads on a third: the cursor sees a
/// prefix of the records committed by all of them.
#[test]
fn a_writer_can_be_handed_over_while_a_cursor_reads() {
    check(|| {
        let lane = lane(2);
        let reader = lane.reader();
        let lane = std::sync::Arc::new(loom::sync::Mutex::new(lane));
        let append_one = |lane: &loom::sync::Mutex<_>| append(&mut lane.lock().expect("no thread panics"), HALF);
        append_one(&lane);
        let reading = thread::spawn(move || {
            let mut cursor = reader.open(Ssn::FIRST).expect("nothing is gone");
            let seen = read(&mut cursor);
            (cursor, seen)
        });
        let other = thread::spawn({
            let lane = lane.clone();
            move || append_one(&lane)
        });
        append_one(&lane);
        other.join().expect("the other writer ends");
        let (mut cursor, mut seen) = reading.join().expect("the reader ends");
        assert_contiguous(&seen, 1);
        seen.extend(read(&mut cursor));
        assert_eq!(seen, [1, 2, 3]);
    });
}

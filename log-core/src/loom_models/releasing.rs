//! Released chunks, which are reused at once, while cursors are opened and read.

use loom::thread;

use super::{PEER, WHOLE, append, assert_contiguous, check, lane, lane_with, peek, pool, read, release};
use crate::lane::{CursorError, LaneWriter};
use crate::nouns::Ssn;

/// A cursor on a record released meanwhile is refused, or sees every record from there on, whole: its chunks are not
/// reused, because either the writer sees its pin or it sees the writer's new head and floor.
///
/// After cursor and reader are dropped, the handle count alone tells the writer.
#[test]
fn a_cursor_is_refused_or_sees_everything_from_its_start() {
    check(|| {
        let mut lane = lane_with(4, 2);
        let reader = lane.reader();
        let reading = thread::spawn(move || match reader.open(Ssn(1)) {
            Ok(mut cursor) => assert_contiguous(&read(&mut cursor), 1),
            Err(CursorError::Gone { kept_from, .. }) => assert!(kept_from > Ssn(1)),
            Err(error) => panic!("{error}"),
        });
        release(&mut lane, 1);
        append(&mut lane, WHOLE);
        release(&mut lane, 2);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
    });
}

/// The same with a remaining handle, so that the handle count tells the writer nothing.
#[test]
fn a_cursor_is_refused_or_sees_everything_while_handles_remain() {
    check(|| {
        let mut lane = lane_with(3, 2);
        let reader = lane.reader();
        let kept = reader.clone();
        let reading = thread::spawn(move || {
            if let Ok(mut cursor) = reader.open(Ssn(1)) {
                assert_contiguous(&read(&mut cursor), 1);
            }
        });
        release(&mut lane, 1);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
        drop(kept);
    });
}

/// A cursor on an unacknowledged record is never refused, although the chunk before it, where its search begins, is
/// freed and reused meanwhile.
#[test]
fn an_unacknowledged_record_is_never_gone() {
    check(|| {
        let mut lane = lane_with(4, 3);
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            let mut cursor = reader.open(Ssn(2)).expect("2 is not acknowledged");
            let seen = read(&mut cursor);
            assert_contiguous(&seen, 2);
            assert!(seen.len() >= 2, "2 and 3 were there from the start: {seen:?}");
        });
        release(&mut lane, 1);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
    });
}

/// A cursor searching its record while the writer seals one chunk and begins the next finds it in the new chunk, whole.
#[test]
fn a_cursor_skips_a_chunk_that_is_being_sealed() {
    check(|| {
        let mut lane = lane_with(3, 1);
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            let mut cursor = reader.open(Ssn(2)).expect("nothing is gone");
            assert_contiguous(&read(&mut cursor), 2);
        });
        append(&mut lane, WHOLE);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
    });
}

/// A cursor opened on a lane without chunks, while the writer fills, releases and reuses the first ones, misses
/// nothing.
#[test]
fn a_cursor_opened_before_the_first_record_misses_none() {
    check(|| {
        let mut lane = lane(3);
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            if let Ok(mut cursor) = reader.open(Ssn(1)) {
                assert_contiguous(&read(&mut cursor), 1);
            }
        });
        append(&mut lane, WHOLE);
        append(&mut lane, WHOLE);
        release(&mut lane, 1);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
    });
}

/// A cursor opened on a lane without chunks keeps the first one, where its search begins, although it needs no record
/// in it.
#[test]
fn a_cursor_that_waits_for_the_first_chunk_keeps_it() {
    check(|| {
        let mut lane = lane(3);
        let reader = lane.reader();
        let mut cursor = reader.open(Ssn(2)).expect("nothing is gone");
        let reading = thread::spawn(move || assert_contiguous(&read(&mut cursor), 2));
        append(&mut lane, WHOLE);
        append(&mut lane, WHOLE);
        release(&mut lane, 1);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
        drop(reader);
    });
}

/// A cursor ahead of the writer keeps the chunk it waits in, although it needs no record in it.
#[test]
fn a_cursor_ahead_of_the_writer_keeps_its_chunk() {
    check(|| {
        let mut lane = lane_with(3, 1);
        let reader = lane.reader();
        let mut cursor = reader.open(Ssn(3)).expect("nothing is gone");
        let reading = thread::spawn(move || assert_contiguous(&read(&mut cursor), 3));
        append(&mut lane, WHOLE);
        release(&mut lane, 1);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
        drop(reader);
    });
}

/// Chunks left by an open cursor are reused, and unread ones are not, while it goes from chunk to chunk.
#[test]
fn chunks_are_reused_only_after_the_cursor_has_left_them() {
    check(|| {
        let mut lane = lane_with(5, 3);
        let reader = lane.reader();
        let mut cursor = reader.open(Ssn(1)).expect("nothing is gone");
        let reading = thread::spawn(move || {
            let seen = read(&mut cursor);
            assert_contiguous(&seen, 1);
            assert!(seen.len() >= 3, "three were there from the start: {seen:?}");
        });
        release(&mut lane, 2);
        append(&mut lane, WHOLE);
        release(&mut lane, 3);
        append(&mut lane, WHOLE);
        reading.join().expect("the reader ends");
        drop(reader);
    });
}

/// A slot freed by one cursor and taken by another at once still orders the first one's reads before the reuse of its
/// chunk.
#[test]
fn a_slot_taken_at_once_covers_the_previous_cursors_reads() {
    check(|| {
        let mut lane = LaneWriter::new(pool(3, 1), PEER);
        append(&mut lane, WHOLE);
        append(&mut lane, WHOLE);
        let reader = lane.reader();
        let mut first = reader.open(Ssn(1)).expect("nothing is gone");
        let second = reader.clone();
        let reading_first = thread::spawn(move || assert!(peek(&mut first).is_some()));
        let reading_second = thread::spawn(move || match second.open(Ssn(2)) {
            Ok(mut cursor) => assert_contiguous(&read(&mut cursor), 2),
            Err(error) => assert!(matches!(error, CursorError::TooMany { .. }), "{error}"),
        });
        release(&mut lane, 1);
        append(&mut lane, WHOLE);
        reading_first.join().expect("the first reader ends");
        reading_second.join().expect("the second reader ends");
        drop(reader);
    });
}

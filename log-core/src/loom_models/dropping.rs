//! A writer dropped before its cursors.

use loom::thread;

use super::{PEER, WHOLE, append, assert_contiguous, check, pool, read};
use crate::lane::LaneWriter;
use crate::nouns::{Rank, Ssn};

/// The writer is dropped while a cursor is opened and read, and another lane takes its freed blocks: every record seen
/// by the cursor is whole.
#[test]
fn a_cursor_outlives_its_writer() {
    check(|| {
        let pool = pool(4, 1);
        let mut lane = LaneWriter::new(pool.clone(), PEER);
        append(&mut lane, WHOLE);
        append(&mut lane, WHOLE);
        let mut other_lane = LaneWriter::new(pool, Rank(2));
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            let mut cursor = reader.open(Ssn(1)).expect("nothing is released");
            assert_contiguous(&read(&mut cursor), 1);
        });
        drop(lane);
        append(&mut other_lane, WHOLE);
        append(&mut other_lane, WHOLE);
        reading.join().expect("the reader ends");
    });
}

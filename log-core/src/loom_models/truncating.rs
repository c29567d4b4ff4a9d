//! A rank rolling back while a cursor is opened.

use loom::thread;

use super::{WHOLE, append_version, check, lane_with, peek};
use crate::lane::TruncateError;
use crate::nouns::Ssn;

/// A lane is truncated, and new records replace the ones cut off, while a cursor is opened: either the truncation is
/// refused, or the cursor sees the new records; never a mixture, and never a torn record.
#[test]
fn a_cursor_sees_the_old_records_or_the_new_ones() {
    check(|| {
        let mut lane = lane_with(4, 3);
        let reader = lane.reader();
        let reading = thread::spawn(move || {
            let mut cursor = reader.open(Ssn(1)).expect("nothing is released");
            let mut seen = Vec::new();
            while let Some(record) = peek(&mut cursor) {
                seen.push(record);
                cursor.advance();
            }
            let (old, new) = ([(1, 0), (2, 0), (3, 0)], [(1, 0), (2, 1), (3, 1)]);
            assert!(old.starts_with(&seen) || new.starts_with(&seen), "{seen:?}");
        });
        match lane.truncate(Ssn(1)) {
            Ok(_) => (0..2).for_each(|_| append_version(&mut lane, WHOLE, 1)),
            Err(error) => assert!(matches!(error, TruncateError::CursorOpen { .. }), "{error}"),
        }
        reading.join().expect("the reader ends");
    });
}

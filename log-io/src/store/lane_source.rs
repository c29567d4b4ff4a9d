//! A lane in memory as a source for records to write.

use counterfoil_log_core::{ChunkImage, Cursor, Record, Ssn};

use crate::RecordSource;

/// The records read by a cursor from a lane in memory, up to an SSN: sealed chunks in place, other records one by one.
#[derive(Debug)]
pub struct LaneSource {
    cursor: Cursor,
    upto: Ssn,
}

impl LaneSource {
    /// Creates a source for the records from the position of `cursor` up to `upto`, inclusive.
    pub fn new(cursor: Cursor, upto: Ssn) -> LaneSource {
        LaneSource { cursor, upto }
    }
}

impl RecordSource for LaneSource {
    fn next(&mut self) -> Option<Record<'_>> {
        if self.cursor.peek()?.ssn() > self.upto {
            return None;
        }
        self.cursor.read()
    }

    fn next_chunk(&mut self, bytes_max: usize) -> Option<ChunkImage> {
        self.cursor.read_chunk(self.upto, bytes_max)
    }
}

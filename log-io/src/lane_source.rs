//! A lane's records, to be written.

use counterfoil_log_core::{ChunkImage, Cursor, Record, Ssn};

use crate::RecordSource;

/// What a cursor reads of a lane in memory up to an SSN, each record once: whole chunks as they lie in memory where these are
/// written no more, and the others one by one.
#[derive(Debug)]
pub struct LaneSource {
    cursor: Cursor,
    upto: Ssn,
}

impl LaneSource {
    /// From where `cursor` stands up to `upto`.
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

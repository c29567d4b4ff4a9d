//! Block reads on any thread, ahead of a cursor.

pub(crate) mod block_cursor;
#[cfg(feature = "io-uring")]
pub(crate) mod demote;
pub(crate) mod read_ahead;
pub(crate) mod reader;

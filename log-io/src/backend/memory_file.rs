//! A file in memory, for tests.

use std::io;

use crate::ReadAt;

/// A file with these bytes.
#[derive(Debug)]
pub(crate) struct MemoryFile(pub(crate) Vec<u8>);

impl ReadAt for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.get(at as usize..).and_then(|bytes| bytes.get(..into.len()));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

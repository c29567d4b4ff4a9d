//! A read handle of a file that may be written at the same time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::buffer_pool::BufferPool;
use crate::files::length;
use crate::{Buffer, PAGE_BYTES, ReadAt};

/// Bytes read at a time into an aligned bounce buffer, for callers with unaligned memory.
const BOUNCE_BYTES: usize = 256 * 1024;

/// Bounce buffers kept in the process.
const BOUNCES_MAX: usize = 4;

static BOUNCES: Mutex<BufferPool> = Mutex::new(BufferPool::new(BOUNCES_MAX, BOUNCE_BYTES));

/// A file that is read with direct I/O, if its file system supports it. So a fresh write is read from the disk, as after a
/// crash, and a replay doesn't evict the job's own pages from the page cache.
#[derive(Debug)]
pub(crate) struct FileReader {
    fd: OwnedFd,
    direct: bool,
    /// An io_uring may read it.
    by_ring: bool,
}

impl FileReader {
    /// Creates a reader of an open file, with `O_DIRECT` or without; `by_ring` permits an io_uring to read it.
    pub(crate) fn new(fd: OwnedFd, by_ring: bool) -> io::Result<FileReader> {
        let direct = rustix::fs::fcntl_getfl(&fd)?.contains(OFlags::DIRECT);
        Ok(FileReader { fd, direct, by_ring })
    }

    /// Fills at least the first `needed` bytes of `into`. After a direct read that ended within a page, the next one begins
    /// at the start of that page: it can't begin elsewhere.
    fn fill(&self, at: u64, into: &mut [u8], needed: usize) -> io::Result<()> {
        let mut done = 0;
        loop {
            let read = match rustix::io::pread(&self.fd, &mut into[done..], at + done as u64) {
                Err(Errno::INTR) => continue,
                read => read?,
            };
            if done + read >= needed {
                return Ok(());
            }
            let next = match self.direct {
                true => (done + read) / PAGE_BYTES * PAGE_BYTES,
                false => done + read,
            };
            if next == done {
                let what = format!("the file ends {} bytes before the end of what is to be read", needed - done - read);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            done = next;
        }
    }

    fn fill_over_bounce(&self, at: u64, into: &mut [u8], bounce: &mut Buffer) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let from = at + done as u64;
            let start = from / PAGE_BYTES as u64 * PAGE_BYTES as u64;
            let before = (from - start) as usize;
            let len = (into.len() - done).min(bounce.capacity() - before);
            let pages = (before + len).next_multiple_of(PAGE_BYTES);
            self.fill(start, &mut bounce.bytes_mut()[..pages], before + len)?;
            into[done..done + len].copy_from_slice(&bounce.bytes_mut()[before..before + len]);
            done += len;
        }
        Ok(())
    }
}

impl ReadAt for FileReader {
    fn len(&self) -> io::Result<u64> {
        length(&self.fd)
    }

    /// Reads without a copy if `at`, the length and the address of `into` are multiples of [`PAGE_BYTES`].
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        if at.checked_add(into.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a read beyond what a file can hold"));
        }
        let aligned = [at as usize, into.len(), into.as_ptr().addr()].iter().all(|n| n.is_multiple_of(PAGE_BYTES));
        if aligned || !self.direct {
            return self.fill(at, into, into.len());
        }
        let bounces = || BOUNCES.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = bounces().take();
        let mut bounce = kept.unwrap_or_else(|| Buffer::new(BOUNCE_BYTES));
        let filled = self.fill_over_bounce(at, into, &mut bounce);
        // One more than is kept is dropped.
        let _ = bounces().put(bounce);
        filled
    }

    fn for_ring(&self) -> Option<BorrowedFd<'_>> {
        self.by_ring.then(|| self.fd.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_largest_offset() {
        let reader = FileReader::new(tempfile::tempfile().expect("a file").into(), false).expect("a reader");
        let last = i64::MAX as u64;
        assert!(reader.read_at(last, &mut []).is_ok());
        for (at, len) in [(last, 1), (last + 1, 0), (u64::MAX, 1)] {
            let error = reader.read_at(at, &mut vec![0; len]).expect_err("a refusal");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}

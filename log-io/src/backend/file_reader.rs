//! A read handle for a file under concurrent writes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::backend::buffer_pool::BufferPool;
use crate::{Buffer, PAGE_BYTES, ReadAt};

/// Bytes read at a time into an aligned bounce buffer, for callers with unaligned memory.
const BOUNCE_BYTES: usize = 256 * 1024;

/// Bounce buffers kept in the process.
const BOUNCES_MAX: usize = 4;

static BOUNCES: Mutex<BufferPool> = Mutex::new(BufferPool::new(BOUNCES_MAX, BOUNCE_BYTES));

/// A file read with direct I/O, if its file system supports it.
///
/// A fresh write therefore is read from the disk, as after a crash, and a replay doesn't evict the job's own pages from
/// the page cache.
#[derive(Debug)]
pub(crate) struct FileReader {
    fd: OwnedFd,
    direct: bool,
    /// An io_uring may read it.
    by_ring: bool,
}

impl FileReader {
    /// Creates a reader for an open file, with `O_DIRECT` or without; `by_ring` permits reads through an io_uring.
    pub(crate) fn new(fd: OwnedFd, by_ring: bool) -> io::Result<FileReader> {
        let direct = rustix::fs::fcntl_getfl(&fd)?.contains(OFlags::DIRECT);
        Ok(FileReader { fd, direct, by_ring })
    }

    /// Fills at least the first `needed` bytes in `into`.
    fn fill(&self, at: u64, into: &mut [u8], needed: usize) -> io::Result<()> {
        fill(|into, at| rustix::io::pread(&self.fd, into, at), self.direct, at, into, needed)
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

/// Fills at least the first `needed` bytes in `into` by calling `read` from offset `at` on.
///
/// After a direct read that ended within a page, the next read begins at the start of the page: it can't begin
/// elsewhere.
fn fill(
    read: impl Fn(&mut [u8], u64) -> Result<usize, Errno>,
    is_direct: bool,
    at: u64,
    into: &mut [u8],
    needed: usize,
) -> io::Result<()> {
    let mut done = 0;
    loop {
        let read = match read(&mut into[done..], at + done as u64) {
            Err(Errno::INTR) => continue,
            read => read?,
        };
        if done + read >= needed {
            return Ok(());
        }
        let next = match is_direct {
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

/// Returns the file length in bytes.
pub(crate) fn length(fd: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_size.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Fills `needed` bytes in 3 pages from offset 4,096 on, with `read` bytes at a time from a file of `end` bytes.
    ///
    /// Returns the result, and the offsets and lengths of the reads.
    fn filled(is_direct: bool, read: usize, end: u64, needed: usize) -> (io::Result<()>, Vec<(u64, usize)>) {
        let reads = RefCell::new(Vec::new());
        let byte = |offset: u64| (offset / 7) as u8;
        let mut into = vec![0; 3 * PAGE_BYTES];
        let read = |into: &mut [u8], at: u64| {
            reads.borrow_mut().push((at, into.len()));
            if reads.borrow().len() % 2 == 0 {
                return Err(Errno::INTR);
            }
            let len = into.len().min(read).min(end.saturating_sub(at) as usize);
            into[..len].iter_mut().zip(at..).for_each(|(into, offset)| *into = byte(offset));
            Ok(len)
        };
        let result = fill(read, is_direct, PAGE_BYTES as u64, &mut into, needed);
        if result.is_ok() {
            assert!(into[..needed].iter().zip(PAGE_BYTES as u64..).all(|(of, offset)| *of == byte(offset)));
        }
        // Every second one was interrupted and repeated.
        let reads = reads.into_inner();
        let repeated = reads.chunks(2).all(|pair| pair.len() == 1 || reads.contains(&pair[1]));
        assert!(repeated);
        (result, reads.into_iter().step_by(2).collect())
    }

    #[test]
    fn short_reads_continue_where_they_ended_or_at_a_page() {
        const PAGE: u64 = PAGE_BYTES as u64;
        let whole = 3 * PAGE_BYTES;
        let (result, reads) = filled(false, 5000, u64::MAX, whole);
        assert!(result.is_ok());
        assert_eq!(reads, [(PAGE, whole), (PAGE + 5000, whole - 5000), (PAGE + 10_000, whole - 10_000)]);
        let (result, reads) = filled(true, 5000, u64::MAX, whole);
        assert!(result.is_ok());
        assert_eq!(reads, [(PAGE, whole), (2 * PAGE, whole - PAGE_BYTES), (3 * PAGE, PAGE_BYTES)]);
        // Bytes beyond `needed` aren't awaited.
        let (result, reads) = filled(false, 5000, u64::MAX, 5000);
        assert!(result.is_ok() && reads.len() == 1);
        assert!(filled(false, 5000, PAGE + 7000, 7000).0.is_ok());
    }

    #[test]
    fn the_end_of_a_file_is_an_error_that_says_what_is_missing() {
        for (is_direct, reads) in [(false, 3), (true, 2)] {
            let (result, all) = filled(is_direct, 5000, PAGE_BYTES as u64 + 7000, 3 * PAGE_BYTES);
            let error = result.expect_err("the file is too short");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(error.to_string(), "the file ends 5288 bytes before the end of what is to be read");
            assert_eq!(all.len(), reads, "direct: {is_direct}");
        }
    }

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

//! What one write writes: a buffer, and behind it chunks as they lie in memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use counterfoil_log_core::ChunkImage;
use rustix::io::Errno;

use crate::Buffer;
use crate::transfer::{PAUSE, Progress, Step};

/// How many writes of chunks may be in flight, beside those of buffers as large as this: as many as have these bytes if they
/// are as large as a buffer, but no more than [`HEADS_MAX`].
///
/// They need no buffer but a page. And they come from memory that is in nobody's cache: whoever reads it for the disk takes
/// longer for each, and more of them have to be under way to keep the disk busy.
pub(crate) fn heads_max(buffer_bytes: usize) -> usize {
    (CHUNK_BYTES_IN_FLIGHT / buffer_bytes).clamp(1, HEADS_MAX)
}

const CHUNK_BYTES_IN_FLIGHT: usize = 8 << 20;
const HEADS_MAX: usize = 32;

/// A buffer and chunks, which are all the write's until it is complete.
#[derive(Debug)]
pub(crate) struct Gathered {
    head: Buffer,
    chunks: Vec<ChunkImage>,
}

/// Where the bytes of a write lie that were not written yet.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<libc::iovec>);

// SAFETY: addresses and lengths; nobody reads through them but the kernel, and only while the `Gathered` that they were made
// from, which may be sent, is there: see who passes them to it.
unsafe impl Send for Places {}

impl From<Buffer> for Gathered {
    fn from(head: Buffer) -> Gathered {
        Gathered { head, chunks: Vec::new() }
    }
}

impl Gathered {
    pub(crate) fn new(head: Buffer, chunks: Vec<ChunkImage>) -> Gathered {
        Gathered { head, chunks }
    }

    /// Bytes of all of it.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.chunks.iter().map(ChunkImage::len).sum::<usize>()
    }

    /// The buffer, where there is nothing else.
    pub(crate) fn alone(&self) -> Option<&Buffer> {
        self.chunks.is_empty().then_some(&self.head)
    }

    /// Gives the chunks' memory back.
    pub(crate) fn into_buffer(self) -> Buffer {
        self.head
    }

    /// Where the bytes lie behind the first `done`. They stay there and may be read as long as this is there: the buffer's
    /// bytes are its own, and a [`ChunkImage`] says the same of its address.
    pub(crate) fn places(&self, mut done: usize) -> Places {
        let head = (self.head.as_slice().as_ptr(), self.head.len());
        let mut places = Vec::with_capacity(1 + self.chunks.len());
        for (start, len) in std::iter::once(head).chain(self.chunks.iter().map(|chunk| (chunk.address(), chunk.len())))
        {
            let skipped = done.min(len);
            done -= skipped;
            if skipped < len {
                // Only an address is made: it is the kernel that reads there.
                let iov_base = start.wrapping_add(skipped).cast_mut().cast();
                places.push(libc::iovec { iov_base, iov_len: len - skipped });
            }
        }
        Places(places)
    }

    /// Writes all of it at `at`: as many calls as it takes.
    pub(crate) fn write_in_full(&self, file: impl AsFd, at: u64) -> io::Result<()> {
        match self.alone() {
            Some(buffer) => crate::pwrite::write_in_full(file, at, buffer.as_slice()),
            None => write_together(&[self], file, at),
        }
    }

    /// The most places that [`Gathered::places`] returns.
    pub(crate) fn places_max(&self) -> usize {
        1 + self.chunks.len()
    }
}

/// Writes all of these at `at`, one behind the other: as many calls as it takes. They have at most [`PLACES_MAX`] places together.
pub(crate) fn write_together(whats: &[&Gathered], file: impl AsFd, at: u64) -> io::Result<()> {
    let mut progress = Progress::new(whats.iter().map(|what| what.len()).sum());
    loop {
        let done = progress.done();
        match progress.advance(pwritev(&file, whats, done, at + done as u64)) {
            Step::Done => return Ok(()),
            Step::Again { progressed: true } => {}
            Step::Again { progressed: false } => std::thread::sleep(PAUSE),
            Step::Failed(error) => return Err(error),
        }
    }
}

impl Places {
    pub(crate) fn as_ptr(&self) -> *const libc::iovec {
        self.0.as_ptr()
    }

    /// How many there are: at most [`PLACES_MAX`].
    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }
}

/// Writes what is behind the first `done` bytes, or a part of it.
fn pwritev(file: &impl AsFd, whats: &[&Gathered], mut done: usize, at: u64) -> Result<usize, Errno> {
    let mut places = Places::default();
    for what in whats {
        places.0.append(&mut what.places(done).0);
        done = done.saturating_sub(what.len());
    }
    let (fd, count) = (file.as_fd().as_raw_fd(), places.count().cast_signed());
    // SAFETY: `count` places, each in memory that may be read until the call returns: the `Gathered` are borrowed. The
    // system call reads the bytes and keeps none of the addresses. What the log's writer changes in the header of a chunk
    // meanwhile is written as it was or as it is: no reader trusts it.
    let written = unsafe { libc::pwritev(fd, places.as_ptr(), count, at.cast_signed()) };
    usize::try_from(written).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// The kernel takes as many places at a time.
pub(crate) const PLACES_MAX: usize = 1024;

const _: () = assert!(crate::chunk_table::CHUNKS_MAX < PLACES_MAX);

#[cfg(test)]
mod tests {
    use counterfoil_log_core::{LaneWriter, Pool, PoolOptions, Rank, Ssn};

    use super::*;
    use crate::PAGE_BYTES;

    #[test]
    fn a_write_that_was_cut_short_goes_on_at_any_page() {
        let options =
            PoolOptions { memory_bytes_max: 1 << 20, chunk_bytes: 16 << 10, prefault_bytes: 0, cursors_max: 1 };
        let mut lane = LaneWriter::new(Pool::volatile(options).expect("a pool"), Rank(1));
        for _ in 0..100 {
            lane.claim(0, 1000).expect("room").commit();
        }
        let mut cursor = lane.cursor(Ssn::FIRST).expect("a cursor");
        let mut chunks = Vec::new();
        while chunks.len() < 3 {
            match cursor.read_chunk(Ssn::MAX, 1 << 20) {
                Some(chunk) => chunks.push(chunk),
                None => drop(cursor.read().expect("another record")),
            }
        }
        let mut head = Buffer::new(PAGE_BYTES);
        head.set_len(1);
        let start = head.as_slice().as_ptr();
        let what = Gathered::new(head, chunks);
        let all: Vec<usize> = what.places(0).0.iter().map(|place| place.iov_base.addr()).collect();
        assert_eq!((all.len(), all[0]), (4, start.addr()));
        for done in (0..=what.len()).step_by(PAGE_BYTES) {
            let places = what.places(done);
            let left: usize = places.0.iter().map(|place| place.iov_len).sum();
            assert_eq!(left, what.len() - done);
            assert_eq!(places.count() as usize, places.0.len());
            // All but the first begin where they began.
            let starts = places.0.iter().skip(1).map(|place| place.iov_base.addr());
            assert!(starts.eq(all[all.len() - places.0.len().saturating_sub(1)..].iter().copied()));
        }
    }
}
